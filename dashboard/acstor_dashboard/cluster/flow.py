"""Picture of the traffic in three columns: hosts that receive, hosts that send, the origin.

Hosts tell what their data planes receive and send, not from whom. What all receive is from other
hosts and from the origin, what all send is to other hosts and to the origin: so the difference is
the least that came from the origin, and the smaller sum the most that went among hosts.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _

from acstor_dashboard import wording

WIDTH = 1000
"""Width of the picture, its own units."""
COLUMN = 260
"""Width of a column."""
ROW = 30
"""Height of a host."""
HEAD = 40
"""Height of the heads of the columns."""
HOSTS_MAX = 8
"""Most hosts of a column, those with most traffic; the rest is one more row."""
ARROW_MAX = 36
"""Thickest arrow, of all bytes that are received."""
BUSY_LOAD = 0.8
"""Load above which a host is drawn grey."""


@dataclasses.dataclass(frozen=True)
class Bar:
    """Host in a column: a bar of its bytes per second."""

    x: int
    y: int
    width: int
    name: str
    rate: str
    is_busy: bool

    @property
    def text_y(self) -> int:
        """Return the height of its words."""
        return self.y - 6


@dataclasses.dataclass(frozen=True)
class Arrow:
    """Bytes per second from one column to the left."""

    begin: int
    end: int
    y: int
    thickness: int
    text: str

    @property
    def text_y(self) -> int:
        """Return the height of its words."""
        return self.y - self.thickness // 2 - 8

    @property
    def middle(self) -> int:
        """Return the place of its words."""
        return (self.begin + self.end) // 2


@dataclasses.dataclass(frozen=True)
class Flow:
    """The picture."""

    height: int
    receivers: Sequence[Bar]
    senders: Sequence[Bar]
    arrows: Sequence[Arrow]
    origin_x: int
    origin_y: int
    summary: Sequence[str]
    """The same in words, a sentence each."""
    width: int = WIDTH
    column: int = COLUMN

    @property
    def middle(self) -> int:
        """Return the place of the middle column's head."""
        return self.width // 2


def draw(hosts: Sequence[Mapping[str, Any]]) -> Flow:
    """Return the picture of what hosts tell; those that tell nothing are not in it."""
    received = sum(host.get("moved_in_bytes_per_second") or 0 for host in hosts)
    sent = sum(host.get("moved_out_bytes_per_second") or 0 for host in hosts)
    among, origin = min(received, sent), max(received - sent, 0)
    middle, right = (WIDTH - COLUMN) // 2, WIDTH - COLUMN
    receivers = _bars(hosts, "moved_in_bytes_per_second", 0)
    senders = _bars(hosts, "moved_out_bytes_per_second", middle)
    rows = max(len(receivers), len(senders), 3)
    height = HEAD + rows * ROW + ROW
    arrows = [
        _arrow(COLUMN, middle, HEAD + ROW, among, received, _("at most %s")),
        _arrow(COLUMN, right, height - ROW // 2, origin, received, _("at least %s")),
    ]
    return Flow(
        height=height,
        receivers=receivers,
        senders=senders,
        arrows=[each for each in arrows if each is not None],
        origin_x=right,
        origin_y=height - ROW,
        summary=[
            _("Hosts receive %s for their servers.") % wording.rate(received),
            _("At most %s of it come from other hosts.") % wording.rate(among),
            _("At least %s of it come from the origin.") % wording.rate(origin),
        ],
    )


def _bars(hosts: Sequence[Mapping[str, Any]], key: str, x: int) -> list[Bar]:
    moving = sorted(
        (host for host in hosts if host.get(key)), key=lambda host: (-host[key], host["name"])
    )
    shown, rest = moving[:HOSTS_MAX], moving[HOSTS_MAX:]
    values = [(host["name"], host[key], (host.get("load") or 0) >= BUSY_LOAD) for host in shown]
    if rest:
        values.append((_("%d others") % len(rest), sum(host[key] for host in rest), False))
    largest = max((value for _name, value, _is_busy in values), default=0)
    return [
        Bar(
            x=x,
            y=HEAD + ROW * row + ROW // 2,
            width=max(COLUMN * value // largest, 2),
            name=name,
            rate=wording.rate(value),
            is_busy=is_busy,
        )
        for row, (name, value, is_busy) in enumerate(values)
    ]


def _arrow(begin: int, end: int, y: int, value: int, whole: int, words: str) -> Arrow | None:
    if not value or not whole:
        return None
    thickness = max(ARROW_MAX * value // whole, 2)
    return Arrow(begin + 10, end - 10, y, thickness, words % wording.rate(value))
