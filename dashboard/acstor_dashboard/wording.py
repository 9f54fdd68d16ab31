"""Words for what the API says in codes: times, sizes, reasons, states, retention."""

import datetime
from collections.abc import Mapping
from typing import Any

from django.template import defaultfilters
from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

UNKNOWN = "\N{EN DASH}"
"""Shown where nothing is known."""
TRIGGERS: Mapping[str, object] = {
    "manual": gettext_lazy("By hand"),
    "schedule": gettext_lazy("Schedule"),
    "shutdown": gettext_lazy("Before a shutdown"),
    "resize": gettext_lazy("Before a resize"),
    "rebuild": gettext_lazy("Before a rebuild"),
    "restore": gettext_lazy("Before a restore"),
    "delete": gettext_lazy("Before a deletion"),
    "quota": gettext_lazy("The host had no room for its changes"),
    "snapshot": gettext_lazy("Snapshot of the volume"),
}
"""Reasons for which versions are taken."""
CONSISTENCIES: Mapping[str, object] = {
    "crash": gettext_lazy("As after a power cut"),
    "fs": gettext_lazy("File systems frozen"),
}
STATES: Mapping[str, object] = {
    "captured": gettext_lazy("On its host only"),
    "committed": gettext_lazy("Safe"),
    "merged": gettext_lazy("Safe, merged"),
    "condemned": gettext_lazy("Goes with its last use"),
}
"""States of versions; captured ones are lost with their host."""
TASK_KINDS: Mapping[str, object] = {
    "create": gettext_lazy("Take a version"),
    "delete": gettext_lazy("Delete a version"),
    "restore": gettext_lazy("Restore"),
    "image": gettext_lazy("Make a version bootable"),
    "image_remove": gettext_lazy("Remove the boot image of a version"),
    "export": gettext_lazy("Export a version"),
    "expire": gettext_lazy("Apply a retention"),
    "preload": gettext_lazy("Preload an image"),
}
TASK_STATES: Mapping[str, object] = {
    "queued": gettext_lazy("Queued"),
    "running": gettext_lazy("Running"),
    "reverting": gettext_lazy("Being undone"),
    "done": gettext_lazy("Done"),
    "failed": gettext_lazy("Failed"),
    "cancelled": gettext_lazy("Cancelled"),
}
HOST_STATES: Mapping[str, object] = {
    "serving": gettext_lazy("Serving"),
    "draining": gettext_lazy("Draining"),
    "gone": gettext_lazy("No heartbeat"),
}
EVERY: Mapping[str, object] = {
    "hour": gettext_lazy("Every hour"),
    "day": gettext_lazy("Every day"),
    "week": gettext_lazy("Every week"),
    "month": gettext_lazy("Every month"),
}
DAYS = (
    gettext_lazy("Monday"),
    gettext_lazy("Tuesday"),
    gettext_lazy("Wednesday"),
    gettext_lazy("Thursday"),
    gettext_lazy("Friday"),
    gettext_lazy("Saturday"),
    gettext_lazy("Sunday"),
)
KEPT_REASONS: Mapping[str, object] = {
    "last": gettext_lazy("among the newest"),
    "hourly": gettext_lazy("one of its hour"),
    "daily": gettext_lazy("one of its day"),
    "weekly": gettext_lazy("one of its week"),
    "monthly": gettext_lazy("one of its month"),
    "yearly": gettext_lazy("one of its year"),
    "within": gettext_lazy("young enough"),
    "locked": gettext_lazy("locked"),
    "in use": gettext_lazy("in use"),
    "taken for another reason": gettext_lazy("not taken by this schedule"),
}
"""Reasons for which a retention keeps a version."""


def word(words: Mapping[str, object], code: str | None) -> str:
    """Return the words for a code, the code itself where a newer API has one more."""
    return str(words.get(code or "", code or UNKNOWN))


def time_of(text: str | None) -> datetime.datetime | None:
    """Return a time of the API in the user's zone; None: there is none."""
    if not text:
        return None
    try:
        found: datetime.datetime = timezone.localtime(datetime.datetime.fromisoformat(text))
    except (ValueError, OverflowError):  # of a disk, which may say anything
        return None
    return found


def moment(text: str | None) -> str:
    """Return a time of the API as the page shows it."""
    found = time_of(text)
    return UNKNOWN if found is None else formats.date_format(found, "Y-m-d H:i T")


def size(count: float | None) -> str:
    """Return bytes as the page shows them."""
    return UNKNOWN if count is None else str(defaultfilters.filesizeformat(count))


def rate(count: float | None) -> str:
    """Return bytes per second as the page shows them."""
    return UNKNOWN if count is None else _("%s/s") % size(count)


def share(part: float | None) -> str:
    """Return a part of a whole as the page shows it."""
    return UNKNOWN if part is None else _("%d %%") % round(part * 100)


def yes_or_no(is_so: bool | None) -> str:
    """Return what is so or not as the page shows it."""
    return UNKNOWN if is_so is None else str(_("Yes") if is_so else _("No"))


def lock(fields: Mapping[str, Any] | None) -> str:
    """Return the words for a lock."""
    if fields is None:
        return ""
    until = fields.get("until")
    head = _("Until %s") % moment(until) if until else _("Until somebody unlocks it")
    return f"{head}: {fields['reason']}" if fields.get("reason") else head


def reasons(codes: list[str]) -> str:
    """Return the words for what keeps a version."""
    return ", ".join(word(KEPT_REASONS, code) for code in codes)


def when(every: str, at: str | None, on: int | None, zone: str) -> str:
    """Return the words for the times of a schedule."""
    parts = [word(EVERY, every)]
    if every == "week" and on is not None and 1 <= on <= len(DAYS):
        parts.append(_("on %s") % DAYS[on - 1])
    if every == "month" and on is not None:
        parts.append(_("on day %d") % on)
    if every == "hour":
        return " ".join(parts)
    if at:
        parts.append(_("at %s") % at)
    return f"{' '.join(parts)} ({zone})"


def retention(keep: Mapping[str, Any]) -> list[str]:
    """Return a retention as sentences, in the order in which it is applied."""
    if not keep:
        return [_("Keeps everything.")]
    return [sentence for name in _ORDER if (sentence := _kept(name, keep.get(name)))]


_ORDER = (
    "last",
    "hourly",
    "daily",
    "weekly",
    "monthly",
    "yearly",
    "within",
    "within_hourly",
    "within_daily",
    "within_weekly",
    "within_monthly",
    "within_yearly",
)
_SPANS: Mapping[str, object] = {
    "within": gettext_lazy("everything of the last %s"),
    "within_hourly": gettext_lazy("one an hour of the last %s"),
    "within_daily": gettext_lazy("one a day of the last %s"),
    "within_weekly": gettext_lazy("one a week of the last %s"),
    "within_monthly": gettext_lazy("one a month of the last %s"),
    "within_yearly": gettext_lazy("one a year of the last %s"),
}
_ALL: Mapping[str, object] = {
    "last": gettext_lazy("all"),
    "hourly": gettext_lazy("one of every hour"),
    "daily": gettext_lazy("one of every day"),
    "weekly": gettext_lazy("one of every week"),
    "monthly": gettext_lazy("one of every month"),
    "yearly": gettext_lazy("one of every year"),
}


def _kept(name: str, value: object) -> str:
    """Return the words for one reason of a retention; empty: it is not asked for."""
    if isinstance(value, str) and value and name in _SPANS:
        return str(_SPANS[name]) % _span(value)
    if isinstance(value, int) and value < 0:
        return str(_ALL.get(name, name))
    return _counted(name, value) if isinstance(value, int) and value else ""


def _counted(name: str, count: int) -> str:
    sentences = {
        "last": ngettext("the newest one", "the newest %(count)d", count),
        "hourly": ngettext("one of an hour", "one of each of %(count)d hours", count),
        "daily": ngettext("one of a day", "one of each of %(count)d days", count),
        "weekly": ngettext("one of a week", "one of each of %(count)d weeks", count),
        "monthly": ngettext("one of a month", "one of each of %(count)d months", count),
        "yearly": ngettext("one of a year", "one of each of %(count)d years", count),
    }
    return str(sentences.get(name, name) % {"count": count})


def _span(text: str) -> str:
    """Return the words for a span such as ``1y6m``."""
    words, digits = [], ""
    for letter in text:
        if letter.isdecimal():
            digits += letter
            continue
        count = int(digits or 0)
        unit = {
            "y": ngettext("%(count)d year", "%(count)d years", count),
            "m": ngettext("%(count)d month", "%(count)d months", count),
            "d": ngettext("%(count)d day", "%(count)d days", count),
            "h": ngettext("%(count)d hour", "%(count)d hours", count),
        }.get(letter, letter)
        words.append(unit % {"count": count} if "%" in unit else unit)
        digits = ""
    return " ".join(words)
