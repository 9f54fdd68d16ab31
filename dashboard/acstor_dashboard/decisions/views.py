"""Page of the decision in force and of pinned weights."""

import math
from typing import Any

from django import urls
from django.utils.translation import gettext_lazy

from acstor_dashboard import wording
from acstor_dashboard.views import PageView
from acstorclient.v1.cluster import Decision

PANEL = "horizon:admin:acstor_decisions"
"""Namespace of the panel's URLs."""
ROWS = 100
"""Weights of one page."""


class IndexView(PageView):
    """The decision in force with its reasons, weights of hosts, pins."""

    template_name = "acstor_dashboard/decisions/index.html"
    page_title = gettext_lazy("Decisions")
    rules = ("decisions:list", "pins:list")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: two calls of the API."""
        decisions = self.ask(lambda api: list(api.decisions()), None)
        pins = None if self.failures else self.ask(lambda api: list(api.pins()), None)
        context = super().get_context_data(**kwargs)
        if pins is None or decisions is None:
            return context
        may_unpin = self.has_right("pins:delete")
        return {
            **context,
            "is_known": True,
            "decision": self._decision(decisions[0]) if decisions else None,
            "pin_url": urls.reverse(f"{PANEL}:pin") if self.has_right("pins:create") else "",
            "pins": [
                {
                    "host": pin.host,
                    "weight": f"{pin.weight:g}",
                    "url": urls.reverse(f"{PANEL}:unpin", kwargs={"host": pin.host})
                    if may_unpin
                    else "",
                }
                for pin in pins
            ],
        }

    def _decision(self, decision: Decision) -> dict[str, Any]:
        weights = sorted((decision.weights or {}).items(), key=lambda pair: (pair[1], pair[0]))
        pages = max(math.ceil(len(weights) / ROWS), 1)
        text = self.request.GET.get("page", "")
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 1
        number = min(max(number, 1), pages)
        return {
            "id": decision.id,
            "time": wording.moment(decision.created_at),
            "policy": decision.policy,
            "term": decision.term,
            "generation": wording.UNKNOWN if decision.generation is None else decision.generation,
            "threshold": wording.UNKNOWN if decision.threshold is None else decision.threshold,
            "reasons": decision.reasons or [],
            "weights": [
                (host, f"{weight:g}") for host, weight in weights[(number - 1) * ROWS :][:ROWS]
            ],
            "page": number,
            "pages": pages,
            "before": number - 1 if number > 1 else None,
            "after": number + 1 if number < pages else None,
        }
