"""URLs of the panel of decisions."""

from django.urls import path

from acstor_dashboard.decisions import changes, views

urlpatterns = [
    path("", views.IndexView.as_view(), name="index"),
    path("pins/create/", changes.PinView.as_view(), name="pin"),
    path("pins/<str:host>/delete/", changes.UnpinView.as_view(), name="unpin"),
]
