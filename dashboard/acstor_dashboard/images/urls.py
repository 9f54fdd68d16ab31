"""URLs of the panel of images."""

from django.urls import path

from acstor_dashboard.images import changes, views

urlpatterns = [
    path("", views.IndexView.as_view(), name="index"),
    path("<uuid:image>/", views.DetailView.as_view(), name="detail"),
    path("<uuid:image>/preload/", changes.PreloadView.as_view(), name="preload"),
    path("<uuid:image>/preloads/<uuid:preload>/stop/", changes.StopView.as_view(), name="stop"),
]
