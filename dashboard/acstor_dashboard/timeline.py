"""Timeline of versions: a drawing made here, of whole numbers, without script or style.

Its place on the page is :file:`templates/acstor_dashboard/_timeline.html`. Colours are the theme's:
``currentColor`` and classes of :file:`static/acstor_dashboard/acstor.scss`.
"""

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from acstor_dashboard import wording
from acstorclient.v1.version import Version

VERSIONS_MAX = 200
"""Most versions of one drawing, the newest: more are no dots any more."""
WIDTH = 1000
"""Width of the drawing, its own units; the page scales it."""
LANE = 64
"""Height of the lane of a disk."""
MARGIN = 48
"""Space left and right of the first and last dot."""
AXIS = 40
"""Height of the axis below the lanes."""
RADIUS_MIN = 5
"""Radius of a version that holds nothing alone: it can still be pointed at."""
RADIUS_MAX = 16
"""Radius of the one that holds most: two lanes do not touch."""
TICKS = 5
"""Times written at the axis."""


@dataclasses.dataclass(frozen=True, slots=True)
class DrawnVersion:
    """Version, as much of it as a drawing has.

    A resource of openstacksdk has the same, and takes most of the time of a page to be made two
    hundred times.
    """

    id: str
    name: str | None
    disk: str | None
    state: str | None
    trigger: str | None
    is_restorable: bool
    unique_bytes: int | None
    created_at: str | None
    lock: Mapping[str, Any] | None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Return a version of the API's answer."""
        return cls(
            id=str(body.get("id")),
            name=body.get("name"),
            disk=body.get("disk"),
            state=body.get("state"),
            trigger=body.get("trigger"),
            is_restorable=bool(body.get("restorable")),
            unique_bytes=body.get("unique_bytes"),
            created_at=body.get("created_at"),
            lock=body.get("lock"),
        )


Drawable = Version | DrawnVersion


@dataclasses.dataclass(frozen=True)
class Dot:
    """A version: its area is what it alone holds."""

    x: int
    y: int
    radius: int
    is_safe: bool
    is_locked: bool
    label: str
    """Words of a pointer's help."""

    @property
    def box(self) -> tuple[int, int, int]:
        """Return corner and side of the square that marks a lock."""
        half = self.radius + 4
        return self.x - half, self.y - half, 2 * half


@dataclasses.dataclass(frozen=True)
class Lane:
    """A disk."""

    y: int
    name: str


@dataclasses.dataclass(frozen=True)
class Tick:
    """A time at the axis."""

    x: int
    text: str
    anchor: str
    """Value of ``text-anchor``."""


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Drawing of versions."""

    height: int
    lanes: Sequence[Lane]
    dots: Sequence[Dot]
    ticks: Sequence[Tick]
    summary: str
    """The same in words."""
    width: int = WIDTH

    @property
    def axis_y(self) -> int:
        """Return the height of the axis."""
        return self.height - AXIS


def draw(versions: Sequence[Drawable]) -> Timeline | None:
    """Return the drawing of versions of one server or volume; None: there is nothing to draw."""
    timed = [
        (at, version)
        for version in versions[:VERSIONS_MAX]
        if (at := wording.time_of(version.created_at)) is not None
    ]
    if not timed:
        return None
    begin, end = min(at for at, _version in timed), max(at for at, _version in timed)
    disks = sorted({version.disk or "" for _at, version in timed})
    lanes = {disk: Lane(LANE // 2 + LANE * row, disk) for row, disk in enumerate(disks)}
    largest = max(version.unique_bytes or 0 for _at, version in timed)
    dots = [
        _dot(version, _x(at, begin, end), lanes[version.disk or ""].y, largest)
        for at, version in reversed(timed)
    ]
    return Timeline(
        height=LANE * len(disks) + AXIS,
        lanes=list(lanes.values()),
        dots=dots,
        ticks=_ticks(begin, end),
        summary=_summary([version for _at, version in timed], begin, end),
    )


def _x(at: datetime.datetime, begin: datetime.datetime, end: datetime.datetime) -> int:
    span = (end - begin).total_seconds()
    part = (at - begin).total_seconds() / span if span else 0.5
    return MARGIN + round(part * (WIDTH - 2 * MARGIN))


def _dot(version: Drawable, x: int, y: int, largest: int) -> Dot:
    part = math.sqrt((version.unique_bytes or 0) / largest) if largest else 0.0
    label = " · ".join(
        [
            wording.moment(version.created_at),
            version.name or version.id,
            _("%s of its own") % wording.size(version.unique_bytes),
            wording.word(wording.TRIGGERS, version.trigger),
            wording.word(wording.STATES, version.state),
        ]
    )
    return Dot(
        x=x,
        y=y,
        radius=RADIUS_MIN + round(part * (RADIUS_MAX - RADIUS_MIN)),
        is_safe=bool(version.is_restorable),
        is_locked=version.lock is not None,
        label=label,
    )


def _ticks(begin: datetime.datetime, end: datetime.datetime) -> list[Tick]:
    if begin == end:
        return [Tick(WIDTH // 2, wording.moment(begin.isoformat()), "middle")]
    step = (end - begin) / (TICKS - 1)
    anchors = ["start", *["middle"] * (TICKS - 2), "end"]
    times = [begin + step * number for number in range(TICKS)]
    edges = [0, *(_x(at, begin, end) for at in times[1:-1]), WIDTH]
    return [
        Tick(x, wording.moment(at.isoformat()), anchor)
        for x, at, anchor in zip(edges, times, anchors, strict=True)
    ]


def _summary(versions: Sequence[Drawable], begin: datetime.datetime, end: datetime.datetime) -> str:
    count, safe = len(versions), sum(bool(each.is_restorable) for each in versions)
    head = ngettext(
        "%(count)d version from %(begin)s to %(end)s",
        "%(count)d versions from %(begin)s to %(end)s",
        count,
    ) % {
        "count": count,
        "begin": wording.moment(begin.isoformat()),
        "end": wording.moment(end.isoformat()),
    }
    own = wording.size(sum(each.unique_bytes or 0 for each in versions))
    tail = _("%(safe)d of them can be restored; %(own)s are held by one of them alone.")
    return f"{head}. {tail % {'safe': safe, 'own': own}}"
