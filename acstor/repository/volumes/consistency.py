"""Consistency of a volume over the members of an origin: what its log has reached when it counts.

flexStore's levels (section III-C), said of the log objects of a volume: *weak* copies them when the
volume moves, *adaptive* in the background by a budget, *strong* stores them in all members of the
volume before they are acknowledged. Unlike there a level says nothing of reads: each object is the
same in all members, so a read is of the newest state whichever member answers (RFD 38, *Levels*).
With one store all levels are the same.
"""

import enum


class ConsistencyLevel(enum.StrEnum):
    """Level of consistency of a volume."""

    WEAK = "weak"
    ADAPTIVE = "adaptive"
    """The usual one."""
    STRONG = "strong"


def parse_level(text: object) -> ConsistencyLevel:
    """Return the level of that name.

    :raises ValueError: naming the levels, when it is none.
    """
    try:
        return ConsistencyLevel(str(text))
    except ValueError:
        names = ", ".join(ConsistencyLevel)
        raise ValueError(f"{text!r} is no level of consistency ({names})") from None
