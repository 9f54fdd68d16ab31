"""URLs of the panel of schedules."""

from django.urls import path

from acstor_dashboard.schedules import changes, targets, views

urlpatterns = [
    path("", views.IndexView.as_view(), name="index"),
    path("create/", changes.CreateView.as_view(), name="create"),
    path("<uuid:schedule>/", views.DetailView.as_view(), name="detail"),
    path("<uuid:schedule>/edit/", changes.EditView.as_view(), name="edit"),
    path("<uuid:schedule>/delete/", changes.DeleteView.as_view(), name="delete"),
    path("<uuid:schedule>/targets/add/", targets.AddView.as_view(), name="add_target"),
    path(
        "<uuid:schedule>/targets/<uuid:target>/remove/",
        targets.RemoveView.as_view(),
        name="remove_target",
    ),
]
