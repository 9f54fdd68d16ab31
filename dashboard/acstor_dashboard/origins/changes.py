"""Forms that drain a member of the origin, or keep it after all."""

from typing import Any, ClassVar

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import messages

from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import ApiForm
from acstor_dashboard.origins.views import PANEL
from acstor_dashboard.views import ActionView


class DrainForm(ApiForm):
    """Form that drains a member, or undoes that."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Write what is wanted; the registrar that leads follows in its next pass."""
        del data
        api.update_origin_member(
            str(self.initial["member"]), draining=bool(self.initial["draining"])
        )
        messages.success(self.request, _("The registrar follows within a minute."))
        return True


class DrainView(ActionView):
    """Drain a member."""

    form_class = DrainForm
    page_title = gettext_lazy("Drain Member")
    modal_id = "acstor_drain_member"
    submit_label = gettext_lazy("Drain")
    rules = ("origin_members:update",)
    url = f"{PANEL}:drain"
    success = f"{PANEL}:index"
    explanation: ClassVar[tuple[object, ...]] = (
        gettext_lazy("It gets nothing new, and what it alone has is copied to the others."),
        gettext_lazy("Servers go on, and it is read as before."),
        gettext_lazy("It is taken away on a controller afterwards: acstor origin remove."),
    )
    is_drained: ClassVar[bool] = True

    def get_initial(self) -> dict[str, Any]:
        """Return what the form is about."""
        return {"member": self.kwargs["member"], "draining": self.is_drained}

    def losses(self) -> list[str]:
        """Return what is lost."""
        return [_("The copies that %s would have got of new images.") % self.kwargs["member"]]


class KeepView(DrainView):
    """Keep a member that is drained."""

    page_title = gettext_lazy("Keep Member")
    modal_id = "acstor_keep_member"
    submit_label = gettext_lazy("Keep")
    url = f"{PANEL}:keep"
    explanation = (gettext_lazy("It gets copies again, those too that it lacks by now."),)
    is_drained = False

    def losses(self) -> list[str]:
        """Return nothing: nothing is lost."""
        return []
