"""URLs of the panel of versions."""

from django.urls import path

from acstor_dashboard.services.durability import DurabilityView
from acstor_dashboard.versions import (
    boot,
    changes,
    compare,
    file_compare,
    file_downloads,
    files,
    restore,
    views,
)

urlpatterns = [
    path("", views.IndexView.as_view(), name="index"),
    path("take/", changes.TakeView.as_view(), name="take"),
    path("launch/", boot.LaunchView.as_view(), name="launch"),
    path("servers/<uuid:owner>/", views.ServerView.as_view(), name="server"),
    path("volumes/<uuid:owner>/", views.VolumeView.as_view(), name="volume"),
    path("volumes/<uuid:owner>/durability/", DurabilityView.as_view(), name="durability"),
    path("<uuid:version>/", views.DetailView.as_view(), name="detail"),
    path("<uuid:version>/compare/", compare.CompareView.as_view(), name="compare"),
    path(
        "<uuid:version>/compare/files/",
        file_compare.CompareFilesView.as_view(),
        name="compare_files",
    ),
    path("<uuid:version>/files/", files.FilesView.as_view(), name="files"),
    path(
        "<uuid:version>/files/content/",
        file_downloads.ContentView.as_view(),
        name="file_content",
    ),
    path(
        "<uuid:version>/files/archive/",
        file_downloads.ArchiveView.as_view(),
        name="file_archive",
    ),
    path("<uuid:version>/boot/", boot.BootView.as_view(), name="boot"),
    path("<uuid:version>/restore/", restore.RestoreView.as_view(), name="restore"),
    path("<uuid:version>/export/", changes.ExportView.as_view(), name="export"),
    path("<uuid:version>/edit/", changes.EditView.as_view(), name="edit"),
    path("<uuid:version>/lock/", changes.LockView.as_view(), name="lock"),
    path("<uuid:version>/unlock/", changes.UnlockView.as_view(), name="unlock"),
    path("<uuid:version>/delete/", changes.DeleteView.as_view(), name="delete"),
]
