"""URLs of the panel of tasks."""

from django.urls import path

from acstor_dashboard.tasks import views

urlpatterns = [
    path("", views.IndexView.as_view(), name="index"),
    path("<uuid:task>/", views.DetailView.as_view(), name="detail"),
    path("<uuid:task>/cancel/", views.CancelView.as_view(), name="cancel"),
]
