"""URLs of the panel of usage."""

from django.urls import path

from acstor_dashboard.usage import views

urlpatterns = [path("", views.IndexView.as_view(), name="index")]
