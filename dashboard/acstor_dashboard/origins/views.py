"""Page of the origin's members: one call of the API, made again while something is copied."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from django import urls
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from acstor_dashboard import wording
from acstor_dashboard.views import PageView
from acstorclient.v1.origin_member import OriginMember

PANEL = "horizon:admin:acstor_origins"
"""Namespace of the panel's URLs."""
REFRESH_SECONDS = 10
"""Distance of the looks while something is copied and the page is seen."""
STATES = {
    "joining": gettext_lazy("Joining"),
    "active": gettext_lazy("In use"),
    "draining": gettext_lazy("Draining"),
    "failed": gettext_lazy("Given up"),
    "removed": gettext_lazy("Taken away"),
}
"""States of members."""
_USED = ("joining", "active", "draining")


class IndexView(PageView):
    """Members of the origin."""

    template_name = "acstor_dashboard/origins/index.html"
    page_title = gettext_lazy("Origins")
    rules = ("origin_members:list",)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: one call of the API."""
        members = self.ask(lambda api: list(api.origin_members()), None)
        context = super().get_context_data(**kwargs)
        if members is None:
            return context
        return {
            **context,
            "is_known": True,
            "summary": summary(members) if members else None,
            "rows": [self._row(member) for member in members],
            "refresh_seconds": REFRESH_SECONDS if any(map(_is_moving, members)) else None,
        }

    def _row(self, member: OriginMember) -> dict[str, Any]:
        action = {"active": "drain", "draining": "keep"}.get(member.state, "")
        if member.is_home or not self.has_right("origin_members:update"):
            action = ""
        return {
            **row_of(member),
            "action": {"drain": _("Drain"), "keep": _("Keep"), "": ""}[action],
            "action_url": urls.reverse(f"{PANEL}:{action}", kwargs={"member": member.name})
            if action
            else "",
        }


def row_of(member: OriginMember) -> dict[str, Any]:
    """Return a member as the table shows it; of one that is not used any more only its state."""
    is_used = member.state in _USED
    return {
        "name": member.name,
        "state": wording.word(STATES, member.state),
        "role": _("Home") if member.is_home else "",
        "reachable": wording.yes_or_no(member.is_reachable if is_used else None),
        "owed": wording.size(member.owed_bytes) if is_used else wording.UNKNOWN,
        "sole": wording.size(member.sole_bytes) if is_used else wording.UNKNOWN,
        "refs": _refs(member) if is_used else wording.UNKNOWN,
        "problem": member.problem or "",
        "time": wording.moment(member.seen_at),
    }


@dataclasses.dataclass(frozen=True)
class _Rule:
    """A reason for which not all is well.

    :ivar is_failing: whether something does not work because of it.
    """

    holds: Callable[[OriginMember], bool]
    words: object
    is_failing: bool = False


_RULES = (
    _Rule(
        lambda member: member.is_home and member.is_reachable is False,
        gettext_lazy("%(name)s, the home, is away: nothing can be registered, volumes wait."),
        is_failing=True,
    ),
    _Rule(
        lambda member: not member.is_home and member.is_reachable is False,
        gettext_lazy("%(name)s is away: collections wait, and copies to it."),
    ),
    _Rule(
        lambda member: bool(member.sole_bytes),
        gettext_lazy("%(name)s alone has %(sole)s of images: with it they are lost."),
    ),
    _Rule(
        lambda member: member.state != "draining" and bool(member.owed_bytes),
        gettext_lazy("%(name)s lacks %(owed)s of images."),
    ),
    _Rule(
        lambda member: member.seen_at is None,
        gettext_lazy("No registrar has looked at %(name)s yet."),
    ),
)


def summary(members: Sequence[OriginMember]) -> dict[str, Any]:
    """Return the state of all: one word, and the reasons below it."""
    used = [member for member in members if member.state in _USED]
    found = [(rule, member) for rule in _RULES for member in used if rule.holds(member)]
    is_failing = any(rule.is_failing for rule, member in found)
    words = _("Failing") if is_failing else (_("Degraded") if found else _("Healthy"))
    return {
        "word": words,
        "level": "danger" if is_failing else ("warning" if found else "success"),
        "count": len(used),
        "reasons": [
            str(rule.words)
            % {
                "name": member.name,
                "sole": wording.size(member.sole_bytes),
                "owed": wording.size(member.owed_bytes),
            }
            for rule, member in found
        ],
    }


def _is_moving(member: OriginMember) -> bool:
    """Return whether something is copied for a member."""
    to_others = member.state == "draining" and bool(member.sole_bytes)
    return member.state == "joining" or to_others or bool(member.owed_bytes)


def _refs(member: OriginMember) -> str:
    """Return how old a member's copies of the refs are."""
    if member.is_home or member.refs_behind is None:
        return wording.UNKNOWN
    if member.refs_age_seconds is None:
        return str(_("None yet"))
    values = {"count": member.refs_behind, "seconds": member.refs_age_seconds}
    return str(_("%(count)d behind, %(seconds)d s old") % values)
