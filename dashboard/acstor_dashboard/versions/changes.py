"""Forms that take, rename, lock, unlock, delete and export versions."""

import functools
from typing import Any

from django import http
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import forms, messages

from acstor_dashboard import wording
from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import CONSISTENCY_CHOICES, DATE_HELP, ApiForm, given
from acstor_dashboard.tasks import links
from acstor_dashboard.versions import owners
from acstor_dashboard.versions.tables import PANEL
from acstor_dashboard.views import ActionView
from acstorclient.v1.version import Version


class VersionAction(ActionView):
    """A form about one version."""

    success = f"{PANEL}:index"

    @functools.cached_property
    def version(self) -> Version | None:
        """Return the version; None: it is not there, and the form says so."""
        version_id = str(self.kwargs["version"])
        return self.ask(lambda api: api.get_version(version_id), None)

    def get_initial(self) -> dict[str, Any]:
        """Return the id for the form."""
        return {"version_id": str(self.kwargs["version"])}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context, with the version."""
        version = self.version
        return super().get_context_data(**kwargs, version=version)


class VersionForm(ApiForm):
    """A form about one version, whose id is in its URL."""

    @property
    def version_id(self) -> str:
        """Return the id of the version."""
        return str(self.initial["version_id"])


class TakeForm(ApiForm):
    """Form that takes a version."""

    kind = forms.ThemableChoiceField(
        label=gettext_lazy("Of"),
        choices=(("server", gettext_lazy("Server")), ("volume", gettext_lazy("Volume"))),
    )
    owner = forms.CharField(label=gettext_lazy("Name or ID"), max_length=255)
    name = forms.CharField(label=gettext_lazy("Version Name"), max_length=255, required=False)
    consistency = forms.ThemableChoiceField(
        label=gettext_lazy("Consistency"), choices=CONSISTENCY_CHOICES
    )
    expires_at = forms.DateTimeField(
        label=gettext_lazy("Expires"), required=False, help_text=DATE_HELP
    )

    def clean(self) -> dict[str, Any]:
        """Resolve the name of the server or volume."""
        data: dict[str, Any] = super().clean()
        if not self.errors:
            data["owner_id"] = owners.find(self.request, data["kind"], data["owner"])
        return data

    def act(self, api: PageProxy, data: dict[str, Any]) -> http.HttpResponse:
        """Begin to take it."""
        attributes = given({name: data[name] for name in ("name", "consistency", "expires_at")})
        task = api.create_version(**{f"{data['kind']}_id": data["owner_id"]}, **attributes)
        messages.info(self.request, _("The version is being taken."))
        return links.redirect(task)


class TakeView(ActionView):
    """Take a version."""

    form_class = TakeForm
    page_title = gettext_lazy("Take Version")
    modal_id = "acstor_take"
    submit_label = gettext_lazy("Take Version")
    rules = ("versions:create",)
    url = f"{PANEL}:take"
    success = f"{PANEL}:index"
    explanation = (
        gettext_lazy("All disks of a server are taken at the same moment, while it runs."),
        gettext_lazy("A version holds what changed since the one before, and boots at once."),
    )

    def get_initial(self) -> dict[str, Any]:
        """Return the server or volume that the user comes from."""
        for kind in ("server", "volume"):
            if owner := self.request.GET.get(f"{kind}_id"):
                return {"kind": kind, "owner": owner}
        return {}


class EditForm(VersionForm):
    """Form that changes name and expiry."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=255, required=False)
    expires_at = forms.DateTimeField(
        label=gettext_lazy("Expires"), required=False, help_text=DATE_HELP
    )

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Change them; an empty expiry is none."""
        expires_at = data["expires_at"] and data["expires_at"].isoformat()
        api.update_version(self.version_id, name=data["name"], expires_at=expires_at)
        messages.success(self.request, _("The version was changed."))
        return True


class EditView(VersionAction):
    """Change name and expiry of a version."""

    form_class = EditForm
    page_title = gettext_lazy("Edit Version")
    modal_id = "acstor_edit"
    submit_label = gettext_lazy("Save")
    rules = ("versions:update",)
    url = f"{PANEL}:edit"
    explanation = (gettext_lazy("Without an expiry it stays until somebody deletes it."),)

    def get_initial(self) -> dict[str, Any]:
        """Return name and expiry as they are."""
        initial = super().get_initial()
        if self.request.method == "POST" or self.version is None:
            return initial
        expires_at = wording.time_of(self.version.expires_at)
        return {**initial, "name": self.version.name, "expires_at": expires_at}


class LockForm(VersionForm):
    """Form that locks a version."""

    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=255)
    until = forms.DateTimeField(label=gettext_lazy("Until"), required=False, help_text=DATE_HELP)

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Lock it."""
        until = data["until"] and data["until"].isoformat()
        api.lock_version(self.version_id, data["reason"], until)
        messages.success(self.request, _("The version is locked."))
        return True


class LockView(VersionAction):
    """Lock a version."""

    form_class = LockForm
    page_title = gettext_lazy("Lock Version")
    modal_id = "acstor_lock"
    submit_label = gettext_lazy("Lock")
    rules = ("versions:lock",)
    url = f"{PANEL}:lock"
    explanation = (
        gettext_lazy("A locked version is not deleted and does not expire."),
        gettext_lazy("Only a manager of the project takes the lock off again."),
    )


class UnlockForm(VersionForm):
    """Form that takes the lock off."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Take it off."""
        del data
        api.unlock_version(self.version_id)
        messages.success(self.request, _("The version is not locked any more."))
        return True


class UnlockView(VersionAction):
    """Take the lock off a version."""

    form_class = UnlockForm
    page_title = gettext_lazy("Unlock Version")
    modal_id = "acstor_unlock"
    submit_label = gettext_lazy("Unlock")
    rules = ("versions:unlock",)
    url = f"{PANEL}:unlock"

    def losses(self) -> list[str]:
        """Return what the lock has kept from happening."""
        version = self.version
        if version is None:
            return []
        found = [_("Its protection: members of the project can delete it.")]
        if version.expires_at:
            found.append(_("It expires at %s.") % wording.moment(version.expires_at))
        return found


class DeleteForm(VersionForm):
    """Form that deletes a version."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Delete it."""
        del data
        if api.delete_version(self.version_id):
            messages.success(self.request, _("The version was deleted."))
        else:
            messages.info(self.request, _("The version is in use; it goes with its last use."))
        return True


class DeleteView(VersionAction):
    """Delete a version."""

    form_class = DeleteForm
    page_title = gettext_lazy("Delete Version")
    modal_id = "acstor_delete"
    submit_label = gettext_lazy("Delete Version")
    rules = ("versions:delete",)
    url = f"{PANEL}:delete"
    explanation = (
        gettext_lazy("Deleting is not erasing: what other versions share stays stored."),
        gettext_lazy("Servers that were booted from it stay."),
    )

    def losses(self) -> list[str]:
        """Return what goes with it."""
        version = self.version
        if version is None:
            return []
        name = version.name or version.id
        values = {"name": name, "time": wording.moment(version.created_at)}
        return [
            _("The restore point %(name)s of %(time)s. Nothing brings it back.") % values,
            _("%s that no other version holds.") % wording.size(version.unique_bytes),
        ]


class ExportForm(VersionForm):
    """Form that makes an image of a version."""

    name = forms.CharField(label=gettext_lazy("Image Name"), max_length=255)
    disk_format = forms.ThemableChoiceField(
        label=gettext_lazy("Format"), choices=(("qcow2", "QCOW2"), ("raw", gettext_lazy("Raw")))
    )

    def act(self, api: PageProxy, data: dict[str, Any]) -> http.HttpResponse:
        """Begin it."""
        task = api.create_export(self.version_id, data["disk_format"], data["name"])
        messages.info(self.request, _("The image is being made."))
        return links.redirect(task)


class ExportView(VersionAction):
    """Make an image of a version that outlives it."""

    form_class = ExportForm
    page_title = gettext_lazy("Export Version as Image")
    modal_id = "acstor_export"
    submit_label = gettext_lazy("Export")
    rules = ("exports:create",)
    url = f"{PANEL}:export"
    explanation = (
        gettext_lazy("The image has bytes of its own and counts against your quota of images."),
        gettext_lazy("It stays when the version goes."),
    )
