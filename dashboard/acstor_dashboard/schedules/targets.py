"""Forms that give a schedule a server or volume, or take one from it."""

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import forms, messages

from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import ApiForm
from acstor_dashboard.schedules import tables
from acstor_dashboard.versions import owners
from acstor_dashboard.views import ActionView


class TargetAction(ActionView):
    """A form about the targets of one schedule."""

    success = f"{tables.PANEL}:detail"

    def get_success_url(self) -> str:
        """Return the schedule's page."""
        return tables.detail_url(str(self.kwargs["schedule"]))

    def get_initial(self) -> dict[str, Any]:
        """Return the ids for the form."""
        return {f"{name}_id": str(value) for name, value in self.kwargs.items()}


class AddForm(ApiForm):
    """Form that adds a target."""

    kind = forms.ThemableChoiceField(
        label=gettext_lazy("Kind"),
        choices=(("server", gettext_lazy("Server")), ("volume", gettext_lazy("Volume"))),
    )
    owner = forms.CharField(label=gettext_lazy("Name or ID"), max_length=255)

    def clean(self) -> dict[str, Any]:
        """Resolve the name."""
        data: dict[str, Any] = super().clean()
        if not self.errors:
            data["owner_id"] = owners.find(self.request, data["kind"], data["owner"])
        return data

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Add it."""
        api.add_target(str(self.initial["schedule_id"]), data["owner_id"], data["kind"])
        messages.success(self.request, _("The schedule takes versions of it, too."))
        return True


class AddView(TargetAction):
    """Add a target."""

    form_class = AddForm
    page_title = gettext_lazy("Add Server or Volume to Schedule")
    modal_id = "acstor_target_add"
    submit_label = gettext_lazy("Add")
    rules = ("schedules:add_target",)
    url = f"{tables.PANEL}:add_target"
    explanation = (gettext_lazy("All disks of a server are taken at the same moment."),)


class RemoveForm(ApiForm):
    """Form that removes a target."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Remove it."""
        del data
        api.remove_target(str(self.initial["schedule_id"]), str(self.initial["target_id"]))
        messages.success(self.request, _("The schedule takes no more versions of it."))
        return True


class RemoveView(TargetAction):
    """Remove a target."""

    form_class = RemoveForm
    page_title = gettext_lazy("Remove Server or Volume from Schedule")
    modal_id = "acstor_target_remove"
    submit_label = gettext_lazy("Remove")
    rules = ("schedules:remove_target",)
    url = f"{tables.PANEL}:remove_target"
    explanation = (gettext_lazy("Its versions stay until somebody deletes them."),)

    def losses(self) -> list[str]:
        """Return what is lost."""
        return [_("From now on no version of %s by this schedule.") % self.kwargs["target"]]
