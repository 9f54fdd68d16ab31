"""Form that puts a version back in place."""

from typing import Any

from django import http
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import forms, messages

from acstor_dashboard import wording
from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import given
from acstor_dashboard.tasks import links
from acstor_dashboard.versions.changes import VersionAction, VersionForm
from acstor_dashboard.versions.tables import PANEL

METHODS = (
    ("auto", gettext_lazy("The way that moves the fewest bytes and loses nothing")),
    ("in_place", gettext_lazy("Exchange the disk in place")),
    ("rebuild", gettext_lazy("Have Nova rebuild the server; UEFI variables are lost")),
)


class RestoreForm(VersionForm):
    """Form that puts a version back where it is from."""

    method = forms.ThemableChoiceField(label=gettext_lazy("Method"), choices=METHODS)
    scope = forms.ThemableChoiceField(
        label=gettext_lazy("Disks"),
        choices=(
            ("version", gettext_lazy("This disk alone")),
            ("group", gettext_lazy("All disks of this moment")),
        ),
    )
    keep_current = forms.BooleanField(
        label=gettext_lazy("Take a version of the present content first"),
        initial=True,
        required=False,
    )
    keep_nvram = forms.BooleanField(
        label=gettext_lazy("Leave the UEFI variables of the server as they are"), required=False
    )

    def act(self, api: PageProxy, data: dict[str, Any]) -> http.HttpResponse:
        """Begin it."""
        version = api.get_version(self.version_id)
        wanted: dict[str, Any] = {
            "server_id": version.server_id,
            "volume_id": None if version.server_id else version.volume_id,
            "method": data["method"],
        }
        if data["scope"] == "group" and version.group_id:
            wanted["group_id"] = version.group_id
        else:
            wanted["version_id"] = version.id
        if version.server_id and data["keep_nvram"]:
            wanted["restore_nvram"] = False
        task = api.create_restore(**given(wanted), keep_current=data["keep_current"])
        messages.info(self.request, _("The version is being restored."))
        return links.redirect(task)


class RestoreView(VersionAction):
    """Put a version back in place."""

    form_class = RestoreForm
    page_title = gettext_lazy("Restore Version")
    modal_id = "acstor_restore"
    submit_label = gettext_lazy("Restore")
    rules = ("restores:create", "versions:show")
    url = f"{PANEL}:restore"
    explanation = (
        gettext_lazy("The server or volume becomes as it was at that moment."),
        gettext_lazy(
            "All disks of a moment are written in place, all or none. A virtual TPM stays as it "
            "is: have the recovery keys of encrypted disks."
        ),
        gettext_lazy("To look at it first, boot the version as a new server instead."),
        gettext_lazy("Where this release of the API does not restore servers, it says so."),
    )

    def losses(self) -> list[str]:
        """Return what is overwritten."""
        version = self.version
        if version is None:
            return []
        return [
            _("What was written since %s, unless a version of it is taken first.")
            % wording.moment(version.created_at)
        ]
