"""Tabs at a server and at a volume, asked for when somebody opens them."""

from typing import Any, ClassVar

from django import http, urls
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import tabs
from horizon.utils import functions

from acstor_dashboard import authorization, marker_pages, timeline, wording
from acstor_dashboard.failures import Kind
from acstor_dashboard.marker_pages import Page, Place
from acstor_dashboard.versions import tables
from acstor_dashboard.views import Asking
from acstorclient.v1.version import Version
from acstorclient.v1.volume import Volume

DURABILITIES = {
    "write-through": gettext_lazy("Written to the host and to the store before it counts"),
    "write-back": gettext_lazy("Written to the host, and to the store every period"),
    "none": gettext_lazy("Written to the host only"),
}
"""Durabilities of volumes, as the page says them."""


class VersionsTab(Asking, tabs.Tab):
    """Newest versions of a server or volume.

    :cvar owner_key: key of the server or volume in what the tabs are given.
    :cvar field: filter of the API that has its id.
    :cvar is_for_all: whether it is of any project: on pages of administrators.
    """

    name = gettext_lazy("Versions")
    slug = "acstor_versions"
    template_name = "acstor_dashboard/_versions_tab.html"
    preload = False
    permissions = ("openstack.services.acstor",)
    owner_key: ClassVar[str]
    field: ClassVar[str]
    is_for_all: ClassVar[bool] = False

    def allowed(self, request: http.HttpRequest) -> bool:
        """Return whether the user sees it."""
        return authorization.may(request, "versions:list") and bool(
            request.user.has_perms(self.permissions)
        )

    def get_context_data(self, request: http.HttpRequest, **kwargs: Any) -> dict[str, Any]:
        """Return the context."""
        self.failures = []
        owner = self.tab_group.kwargs[self.owner_key]
        place = Place(None, False, functions.get_page_size(request))
        query = {self.field: owner.id, **({"all_projects": "true"} if self.is_for_all else {})}
        page = self.ask(
            lambda api: marker_pages.fetch(api, Version, place, query), Page[Version](())
        )
        kind = self.field.removesuffix("_id")
        may_take = not self.is_for_all and authorization.may(request, "versions:create")
        take_url = f"{urls.reverse(f'{tables.PANEL}:take')}?{self.field}={owner.id}"
        return {
            **kwargs,
            **self.more(request, owner),
            "failures": self.failures,
            "rows": [_row(each) for each in page.items],
            "has_more": page.following is not None,
            "timeline": timeline.draw(page.items),
            "all_url": urls.reverse(f"{tables.PANEL}:{kind}", kwargs={"owner": owner.id}),
            "take_url": take_url if may_take else "",
        }

    def more(self, request: http.HttpRequest, owner: Any) -> dict[str, Any]:
        """Return what is shown above the versions."""
        del request, owner
        return {}


class ServerTab(VersionsTab):
    """Versions of a server."""

    owner_key = "instance"
    field = "server_id"


class AdminServerTab(ServerTab):
    """Versions of any project's server."""

    is_for_all = True


class VolumeTab(VersionsTab):
    """Durability, recovery point and versions of a volume."""

    owner_key = "volume"
    field = "volume_id"

    def more(self, request: http.HttpRequest, owner: Any) -> dict[str, Any]:
        """Return durability and recovery point, in words; nothing of other back-ends' volumes."""
        if self.failures or not authorization.may(request, "volumes:show"):
            return {}
        volume = self.ask(lambda api: api.get_volume(owner.id), None)
        if volume is None:
            gone = [each for each in self.failures if each.kind is Kind.GONE]
            self.failures = [each for each in self.failures if each not in gone]
            return {"is_foreign": bool(gone)}
        return {"facts": volume_facts(volume)}


class AdminVolumeTab(VolumeTab):
    """Versions of any project's volume."""

    is_for_all = True


def _row(version: Version) -> dict[str, Any]:
    return {
        "time": wording.moment(version.created_at),
        "url": tables.detail_url(version),
        "name": version.name or "",
        "disk": version.disk or "",
        "unique": wording.size(version.unique_bytes),
        "shared": wording.size(version.shared_bytes),
        "trigger": wording.word(wording.TRIGGERS, version.trigger),
        "consistency": wording.word(wording.CONSISTENCIES, version.consistency),
        "state": wording.word(wording.STATES, version.state),
        "lock": wording.lock(version.lock),
    }


def volume_facts(volume: Volume) -> list[dict[str, object]]:
    """Return what the loss of the host would leave of a volume: name and value of each."""
    point = volume.recovery_point or {}
    facts: list[tuple[str, object]] = [
        (_("Durability"), wording.word(DURABILITIES, volume.durability)),
        (_("Period"), _period(volume.interval_seconds)),
        (_("Recovery point"), _recovery_point(point)),
        (_("Not in the store yet"), wording.size(volume.dirty_bytes)),
    ]
    return [{"name": name, "value": value} for name, value in facts]


def _period(seconds: float | None) -> str:
    return wording.UNKNOWN if seconds is None else str(_("%g s") % seconds)


def _recovery_point(point: dict[str, Any]) -> str:
    if not point.get("at"):
        return str(_("Not known: its host did not say."))
    values = {"at": wording.moment(point["at"]), "age": round(point.get("age_seconds") or 0)}
    return str(_("%(at)s, %(age)d s ago") % values)
