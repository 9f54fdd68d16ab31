"""Forms that bring an image to hosts, and that stop that."""

from typing import Any

from django import forms as django_forms
from django import http
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import forms, messages

from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import ApiForm
from acstor_dashboard.images import tables
from acstor_dashboard.tasks import links
from acstor_dashboard.views import ActionView

HOSTS_MAX = 200
"""Most hosts that one preload names."""
RATE_MAX = 1_000_000
"""Highest limit of a host, MiB/s."""


class ImageAction(ActionView):
    """A form about one image."""

    success = f"{tables.PANEL}:detail"

    def get_success_url(self) -> str:
        """Return the image's page."""
        return tables.url_of(str(self.kwargs["image"]), "detail")

    def get_initial(self) -> dict[str, Any]:
        """Return the ids for the form."""
        return {f"{name}_id": str(value) for name, value in self.kwargs.items()}


class PreloadForm(ApiForm):
    """Form that brings an image to hosts."""

    hosts = forms.CharField(
        label=gettext_lazy("Hosts"),
        required=False,
        widget=django_forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy("Names with commas or spaces between them; without: all hosts."),
    )
    rate_mib = forms.IntegerField(
        label=gettext_lazy("Limit of each host (MiB/s)"),
        min_value=1,
        max_value=RATE_MAX,
        required=False,
    )

    def clean_hosts(self) -> list[str]:
        """Return the names."""
        names = list(dict.fromkeys(self.cleaned_data["hosts"].replace(",", " ").split()))
        if len(names) > HOSTS_MAX:
            raise django_forms.ValidationError(
                _("At most %d hosts; of more: all, or several preloads.") % HOSTS_MAX, code="many"
            )
        return names

    def act(self, api: PageProxy, data: dict[str, Any]) -> http.HttpResponse:
        """Begin it."""
        image_id = str(self.initial["image_id"])
        task = api.create_preload(image_id, hosts=data["hosts"] or "all", rate_mib=data["rate_mib"])
        messages.info(self.request, _("The image is being brought to the hosts."))
        return links.redirect(task)


class PreloadView(ImageAction):
    """Bring an image to hosts."""

    form_class = PreloadForm
    page_title = gettext_lazy("Preload Image")
    modal_id = "acstor_preload"
    submit_label = gettext_lazy("Preload")
    rules = ("preloads:create",)
    url = f"{tables.PANEL}:preload"
    explanation = (
        gettext_lazy("Hosts fetch what boots of it before anybody boots it."),
        gettext_lazy("Other images may lose their place on hosts that are full."),
    )


class StopForm(ApiForm):
    """Form that stops a preload."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Stop it."""
        del data
        api.delete_preload(str(self.initial["image_id"]), str(self.initial["preload_id"]))
        messages.success(self.request, _("The preload stops."))
        return True


class StopView(ImageAction):
    """Stop a preload."""

    form_class = StopForm
    page_title = gettext_lazy("Stop Preload")
    modal_id = "acstor_stop"
    submit_label = gettext_lazy("Stop Preload")
    rules = ("preloads:delete",)
    url = f"{tables.PANEL}:stop"
    explanation = (gettext_lazy("What has come stays as long as there is room."),)
