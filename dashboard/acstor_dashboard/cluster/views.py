"""Page of the cluster: one document of the API, fetched again while somebody looks."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import http, urls
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from acstor_dashboard import wording
from acstor_dashboard.cluster import flow
from acstor_dashboard.views import PageView
from acstorclient.v1.cluster import LiveState

PANEL = "horizon:admin:acstor_cluster"
"""Namespace of the panel's URLs."""
REFRESH_SECONDS = 3
"""Distance of the looks while the page is seen."""
ROWS = 50
"""Hosts of one page."""
ORDERS = ("name", "load", "received", "sent")
"""Orders of the hosts."""
_CURSOR = re.compile(r'"([0-9a-f]{1,64})"')
_KEYS = {
    "load": "load",
    "received": "moved_in_bytes_per_second",
    "sent": "moved_out_bytes_per_second",
}


class IndexView(PageView):
    """Hosts with their traffic, load, space and state."""

    template_name = "acstor_dashboard/cluster/index.html"
    page_title = gettext_lazy("Cluster")
    rules = ("cluster:show",)

    def get(self, request: http.HttpRequest, *args: Any, **kwargs: Any) -> http.HttpResponse:
        """Answer the page; 304 to who has it already and nothing has changed."""
        match = _CURSOR.fullmatch(request.headers.get("If-None-Match", ""))
        known = LiveState({"cursor": match[1]}, "") if match else None
        found = self.ask(lambda api: api.get_live_state(known), None)
        if found is not None and found is known:
            return http.HttpResponse(status=304)
        self.state = found
        answer: http.HttpResponse = super().get(request, *args, **kwargs)
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context."""
        context = super().get_context_data(**kwargs)
        context["refresh_seconds"] = REFRESH_SECONDS
        if self.state is None:
            return context
        hosts: Sequence[Mapping[str, Any]] = self.state.body.get("hosts") or []
        query = self.request.GET
        wanted, order = query.get("name", ""), query.get("order", "")
        order = order if order in ORDERS else "name"
        found = ordered([host for host in hosts if wanted in host["name"]], order)
        pages = max(math.ceil(len(found) / ROWS), 1)
        number = min(max(_number(query.get("page", "")), 1), pages)
        return {
            **context,
            "etag": f'"{self.state.cursor}"',
            "flow": flow.draw(hosts),
            "summary": summary(hosts, self.state.body.get("ring_generation")),
            "rows": [self._row(host) for host in found[(number - 1) * ROWS : number * ROWS]],
            "name": wanted,
            "order": order,
            "orders": [{"value": each, "text": _order_text(each)} for each in ORDERS],
            "page": number,
            "pages": pages,
            "count": len(found),
            "before": number - 1 if number > 1 else None,
            "after": number + 1 if number < pages else None,
        }

    def _row(self, host: Mapping[str, Any]) -> dict[str, Any]:
        is_draining = host["state"] == "draining"
        may_drain = self.has_right("hosts:update")
        action = "undrain" if is_draining else "drain"
        return {
            **row_of(host),
            "action": _("Give its part back") if is_draining else _("Drain"),
            "action_url": urls.reverse(f"{PANEL}:{action}", kwargs={"host": host["name"]})
            if may_drain
            else "",
        }


def ordered(hosts: Sequence[Mapping[str, Any]], order: str) -> list[Mapping[str, Any]]:
    """Return hosts in an order: by name, or those with most first."""
    if order == "name":
        return sorted(hosts, key=lambda host: str(host["name"]))
    key = _KEYS[order]
    return sorted(hosts, key=lambda host: (-(host.get(key) or 0), host["name"]))


def row_of(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return a host as the table shows it."""
    disk = host.get("disk")
    return {
        "name": host["name"],
        "state": wording.word(wording.HOST_STATES, host["state"]),
        "serves": wording.yes_or_no(host.get("is_up")),
        "topology": host.get("topology") or "",
        "share": wording.share(host.get("ring_share")),
        "load": wording.share(host.get("load")),
        "received": wording.rate(host.get("moved_in_bytes_per_second")),
        "sent": wording.rate(host.get("moved_out_bytes_per_second")),
        "extra": " / ".join(
            wording.rate(host.get(f"extra_{way}_bytes_per_second")) for way in ("in", "out")
        ),
        "link": wording.rate(host.get("link_bytes_per_second")),
        "capacity": wording.size(host.get("capacity_bytes")),
        "disk": _disk(disk),
        "images": sum(part >= 1.0 for part in (host.get("images_covered") or {}).values()),
    }


def summary(hosts: Sequence[Mapping[str, Any]], generation: int | None) -> dict[str, Any]:
    """Return the state of all: one word, and the reasons below it."""
    gone = [host["name"] for host in hosts if host["state"] == "gone"]
    down = [host["name"] for host in hosts if host.get("is_up") is False]
    ill = [host["name"] for host in hosts if (host.get("disk") or {}).get("is_healthy") is False]
    reasons = [
        words % {"count": len(names), "names": _names(names)}
        for names, words in (
            (
                down,
                ngettext(
                    "%(count)d data plane is down: %(names)s",
                    "%(count)d data planes are down: %(names)s",
                    len(down),
                ),
            ),
            (
                ill,
                ngettext(
                    "%(count)d disk is failing: %(names)s",
                    "%(count)d disks are failing: %(names)s",
                    len(ill),
                ),
            ),
            (
                gone,
                ngettext(
                    "%(count)d host sends no heartbeat: %(names)s",
                    "%(count)d hosts send no heartbeat: %(names)s",
                    len(gone),
                ),
            ),
        )
        if names
    ]
    return {
        "word": _("Failing") if down or ill else (_("Degraded") if gone else _("Healthy")),
        "level": "danger" if down or ill else ("warning" if gone else "success"),
        "reasons": reasons,
        "hosts": len(hosts),
        "generation": wording.UNKNOWN if generation is None else generation,
    }


NAMES_MAX = 5
"""Hosts that a reason names."""


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    return f"{shown}, \N{HORIZONTAL ELLIPSIS}" if len(names) > NAMES_MAX else shown


def _disk(disk: Mapping[str, Any] | None) -> str:
    if disk is None:
        return wording.UNKNOWN
    health = str(_("Healthy") if disk.get("is_healthy") else _("Failing"))
    if disk.get("wear") is None:
        return health
    values = {"health": health, "wear": wording.share(disk["wear"])}
    return str(_("%(health)s, %(wear)s worn") % values)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 1


def _order_text(order: str) -> str:
    words = {"name": _("Name"), "load": _("Load"), "received": _("Received"), "sent": _("Sent")}
    return str(words[order])
