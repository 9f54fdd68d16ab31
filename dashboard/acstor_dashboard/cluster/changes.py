"""Forms that drain a host, or give it its part of the ring back."""

from typing import Any, ClassVar

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import messages

from acstor_dashboard.cluster.views import PANEL
from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import ApiForm
from acstor_dashboard.views import ActionView


class DrainForm(ApiForm):
    """Form that drains a host, or undoes that."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Write what is wanted; the host follows within seconds."""
        del data
        api.update_host(str(self.initial["host"]), draining=bool(self.initial["draining"]))
        messages.success(self.request, _("The host follows within seconds."))
        return True


class DrainView(ActionView):
    """Drain a host."""

    form_class = DrainForm
    page_title = gettext_lazy("Drain Host")
    modal_id = "acstor_drain"
    submit_label = gettext_lazy("Drain")
    rules = ("hosts:update",)
    url = f"{PANEL}:drain"
    success = f"{PANEL}:index"
    explanation: ClassVar[tuple[object, ...]] = (
        gettext_lazy("Its part of the ring goes to the others; its servers go on."),
        gettext_lazy("It takes it back when somebody says so."),
    )
    is_drained: ClassVar[bool] = True

    def get_initial(self) -> dict[str, Any]:
        """Return what the form is about."""
        return {"host": self.kwargs["host"], "draining": self.is_drained}

    def losses(self) -> list[str]:
        """Return what is lost."""
        return [_("The share of %s in serving other hosts.") % self.kwargs["host"]]


class UndrainView(DrainView):
    """Give a host its part of the ring back."""

    page_title = gettext_lazy("Give Host its Part Back")
    modal_id = "acstor_undrain"
    submit_label = gettext_lazy("Give Back")
    url = f"{PANEL}:undrain"
    explanation = (gettext_lazy("It gets its part of the ring and takes new work again."),)
    is_drained = False

    def losses(self) -> list[str]:
        """Return nothing: nothing is lost."""
        return []
