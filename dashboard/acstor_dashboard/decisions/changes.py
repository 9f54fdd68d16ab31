"""Forms that pin the weight of a host, and that give it back to the policy."""

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import forms, messages

from acstor_dashboard.connection import PageProxy
from acstor_dashboard.decisions.views import PANEL
from acstor_dashboard.forms import ApiForm
from acstor_dashboard.views import ActionView

WEIGHT_MIN = 0.0001
"""Least weight; 1 is that of an ordinary host."""
WEIGHT_MAX = 100.0
"""Greatest weight."""


class PinForm(ApiForm):
    """Form that pins a weight."""

    host = forms.RegexField(
        r"^[a-z0-9][a-z0-9_.-]{0,239}$", label=gettext_lazy("Host"), max_length=240
    )
    weight = forms.FloatField(
        label=gettext_lazy("Weight"), min_value=WEIGHT_MIN, max_value=WEIGHT_MAX, initial=1
    )

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Pin it."""
        api.create_pin(host=data["host"], weight=data["weight"])
        messages.success(self.request, _("The weight is pinned."))
        return True


class PinView(ActionView):
    """Pin the weight of a host."""

    form_class = PinForm
    page_title = gettext_lazy("Pin Weight")
    modal_id = "acstor_pin"
    submit_label = gettext_lazy("Pin")
    rules = ("pins:create",)
    url = f"{PANEL}:pin"
    success = f"{PANEL}:index"
    explanation = (
        gettext_lazy("The policy does not change a pinned weight. 1 is that of an ordinary host."),
    )


class UnpinForm(ApiForm):
    """Form that takes a pin back."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Take it back."""
        del data
        api.delete_pin(str(self.initial["host"]))
        messages.success(self.request, _("The policy decides on the weight again."))
        return True


class UnpinView(ActionView):
    """Give the weight of a host back to the policy."""

    form_class = UnpinForm
    page_title = gettext_lazy("Take Pin Back")
    modal_id = "acstor_unpin"
    submit_label = gettext_lazy("Take Pin Back")
    rules = ("pins:delete",)
    url = f"{PANEL}:unpin"
    success = f"{PANEL}:index"

    def get_initial(self) -> dict[str, Any]:
        """Return what the form is about."""
        return {"host": self.kwargs["host"]}

    def losses(self) -> list[str]:
        """Return what is lost."""
        return [_("The weight that somebody has fixed for %s.") % self.kwargs["host"]]
