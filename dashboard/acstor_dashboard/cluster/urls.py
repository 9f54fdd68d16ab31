"""URLs of the panel of the cluster."""

from django.urls import path

from acstor_dashboard.cluster import changes, views

urlpatterns = [
    path("", views.IndexView.as_view(), name="index"),
    path("hosts/<str:host>/drain/", changes.DrainView.as_view(), name="drain"),
    path("hosts/<str:host>/undrain/", changes.UndrainView.as_view(), name="undrain"),
]
