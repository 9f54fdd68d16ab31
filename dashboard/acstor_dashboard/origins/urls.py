"""URLs of the panel of origins."""

from django.urls import path

from acstor_dashboard.origins import changes, views

urlpatterns = [
    path("", views.IndexView.as_view(), name="index"),
    path("members/<str:member>/drain/", changes.DrainView.as_view(), name="drain"),
    path("members/<str:member>/keep/", changes.KeepView.as_view(), name="keep"),
]
