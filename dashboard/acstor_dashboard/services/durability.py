"""Form that changes the durability of a volume."""

import functools
from typing import Any

from django import urls
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import forms, messages

from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import ApiForm
from acstor_dashboard.services.tabs import DURABILITIES, volume_facts
from acstor_dashboard.views import ActionView
from acstorclient.v1.volume import Volume


class DurabilityForm(ApiForm):
    """Form that changes durability and period."""

    durability = forms.ThemableChoiceField(
        label=gettext_lazy("Durability"), choices=tuple(DURABILITIES.items())
    )
    interval_seconds = forms.FloatField(
        label=gettext_lazy("Period (seconds)"),
        required=False,
        min_value=0,
        help_text=gettext_lazy("Longest time between two writes to the store."),
    )

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Change it within what the type of the volume allows."""
        wanted: dict[str, Any] = {"durability": data["durability"]}
        if data["interval_seconds"]:
            wanted["interval_seconds"] = data["interval_seconds"]
        api.update_volume(str(self.initial["volume_id"]), **wanted)
        messages.success(self.request, _("The durability was changed."))
        return True


class DurabilityView(ActionView):
    """Change the durability of a volume."""

    form_class = DurabilityForm
    page_title = gettext_lazy("Durability of Volume")
    modal_id = "acstor_durability"
    submit_label = gettext_lazy("Save")
    rules = ("volumes:update", "volumes:show")
    url = "horizon:project:acstor_versions:durability"
    success = "horizon:project:acstor_versions:volume"

    @functools.cached_property
    def volume(self) -> Volume | None:
        """Return the volume; None: it is not there or not ACStor's, and the form says so."""
        volume_id = str(self.kwargs["owner"])
        return self.ask(lambda api: api.get_volume(volume_id), None)

    def get_success_url(self) -> str:
        """Return the volume's timeline."""
        return str(urls.reverse(self.success, kwargs=self.kwargs))

    def get_initial(self) -> dict[str, Any]:
        """Return the durability as it is."""
        known: dict[str, Any] = {"volume_id": str(self.kwargs["owner"])}
        if self.request.method == "POST" or self.volume is None:
            return known
        now = {
            "durability": self.volume.durability,
            "interval_seconds": self.volume.interval_seconds,
        }
        return {**known, **now}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context, with what the loss of the host would leave now."""
        facts = [] if self.volume is None else volume_facts(self.volume)
        context = super().get_context_data(**kwargs)
        context["explanation"] = [f"{fact['name']}: {fact['value']}" for fact in facts]
        return context

    def losses(self) -> list[str]:
        """Return what a weaker durability may lose."""
        return [_("If the host is lost: with a weaker durability, what the store has not got yet.")]
