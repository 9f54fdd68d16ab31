"""Boot of a version as a new server: its image first, then a server with the user's own token."""

from typing import Any

from django import http, urls
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import exceptions, forms, messages
from openstack_dashboard import api as services
from openstack_dashboard.api import base

from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import ApiForm
from acstor_dashboard.tasks import links
from acstor_dashboard.versions.changes import VersionAction, VersionForm
from acstor_dashboard.versions.tables import PANEL
from acstor_dashboard.views import ActionView
from acstorclient.v1.base import is_uuid

NETWORKS_MAX = 200
"""Most networks that the form offers."""


class BootForm(VersionForm):
    """Form that makes a version bootable."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> http.HttpResponse:
        """Make the image, or find it."""
        del data
        task = api.create_version_image(self.version_id)
        if image_id := task.outcome.get("image_id"):
            return http.HttpResponseRedirect(launch_url(str(image_id)))
        messages.info(self.request, _("The version is being made bootable."))
        return links.redirect(task)


class BootView(VersionAction):
    """Make a version bootable."""

    form_class = BootForm
    page_title = gettext_lazy("Boot Version as New Server")
    modal_id = "acstor_boot"
    submit_label = gettext_lazy("Make Bootable")
    rules = ("versions:create_image",)
    url = f"{PANEL}:boot"
    explanation = (
        gettext_lazy("First an image of the version is made; it takes no space of its own."),
        gettext_lazy("Then you choose flavor and network of the new server. The old one stays."),
        gettext_lazy("The version stays as long as the image is there."),
    )


class LaunchForm(ApiForm):
    """Form that creates a server of the image of a version."""

    image_id = forms.CharField(widget=forms.HiddenInput)
    name = forms.CharField(label=gettext_lazy("Server Name"), max_length=255)
    flavor = forms.ThemableChoiceField(label=gettext_lazy("Flavor"))
    networks = forms.MultipleChoiceField(
        label=gettext_lazy("Networks"),
        required=False,
        help_text=gettext_lazy("Without a choice, as the cloud allocates them."),
    )
    key_name = forms.ThemableChoiceField(label=gettext_lazy("Key Pair"), required=False)

    def __init__(self, request: http.HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.fields["flavor"].choices = _choices(_flavors, request)
        self.fields["networks"].choices = _choices(_networks, request)
        keys = _choices(_keys, request)
        self.fields["key_name"].choices = [("", gettext_lazy("No key pair")), *keys]

    def clean_image_id(self) -> str:
        """Refuse what is no id."""
        image_id = str(self.cleaned_data["image_id"])
        if not is_uuid(image_id):
            raise forms.ValidationError(_("This is not the ID of an image."), code="invalid")
        return image_id

    def handle(self, request: http.HttpRequest, data: dict[str, Any]) -> Any:
        """Create the server; Nova's refusal is said as Horizon says it."""
        try:
            server = services.nova.server_create(
                request,
                data["name"],
                data["image_id"],
                data["flavor"],
                data["key_name"] or None,
                None,
                None,
                nics=[{"net-id": network} for network in data["networks"]] or "auto",
            )
        except Exception:
            exceptions.handle(request, _("The server could not be created."))
            return False
        messages.success(request, _("The server %s is being created.") % server.name)
        return http.HttpResponseRedirect(urls.reverse("horizon:project:instances:index"))


class LaunchView(ActionView):
    """Create a server of the image of a version."""

    form_class = LaunchForm
    page_title = gettext_lazy("New Server of a Version")
    modal_id = "acstor_launch"
    submit_label = gettext_lazy("Create Server")
    rules = ("versions:create_image",)
    url = f"{PANEL}:launch"
    success = f"{PANEL}:index"
    explanation = (
        gettext_lazy("It is created with your rights and counts against your quota."),
        gettext_lazy("The cloud's own form offers more: choose the image there."),
    )

    def get_initial(self) -> dict[str, Any]:
        """Return the image."""
        return {"image_id": self.request.GET.get("image_id", "")}


def launch_url(image_id: str) -> str:
    """Return the URL of the form for an image."""
    return f"{urls.reverse(f'{PANEL}:launch')}?image_id={image_id}"


def _choices(source: Any, request: http.HttpRequest) -> list[tuple[str, str]]:
    """Return choices of another service; none where it fails, which is said."""
    try:
        return list(source(request))
    except Exception:
        exceptions.handle(request, _("Flavors, networks or key pairs cannot be listed."))
        return []


def _flavors(request: http.HttpRequest) -> list[tuple[str, str]]:
    return [(each.id, each.name) for each in services.nova.flavor_list(request)]


def _keys(request: http.HttpRequest) -> list[tuple[str, str]]:
    return [(each.name, each.name) for each in services.nova.keypair_list(request)]


def _networks(request: http.HttpRequest) -> list[tuple[str, str]]:
    if not base.is_service_enabled(request, "network"):
        return []
    found = services.neutron.network_list_for_tenant(request, request.user.project_id)
    return [(each.id, each.name or each.id) for each in found[:NETWORKS_MAX]]
