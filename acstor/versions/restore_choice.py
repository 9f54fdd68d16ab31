"""The choice of the method by which a version is put back into its server.

In the order in which it is decided:

===============================  ==========================  =======
a rebuild                        in place                    choice
===============================  ==========================  =======
is refused                       is refused                  none
is possible                      is refused                  rebuild
is refused, or destroys          is possible                 in place
is possible                      moves fewer bytes           in place
is possible                      moves as many, or more, or  rebuild
                                 nobody knows
===============================  ==========================  =======

A method that loses something is none that is chosen. Where both lose nothing bytes decide, and only
where those of a restore in place are known to be fewer: a server is down for as long as its host
captures the present disk, compares and writes, while a rebuild captures it while the guest runs.
Both have a way back: a restore in place that fails writes the former disk back, or leaves the
server locked; a rebuild that fails leaves a server in error, whose former disk is a version.

Source: CloudVS, §3.7, which leaves the choice open.
"""

import dataclasses
import enum

from acstor import exception
from acstor.versions import rebuilding
from acstor.versions.moved_bytes import Estimate, Moved

REASON_LENGTH_MAX = 500
"""Longest reason, characters: it is part of the record of a task."""


class RestoreMethod(enum.StrEnum):
    """Method by which a version is put back into its server."""

    REBUILD = "rebuild"
    """Nova makes the disk anew of an image of the version."""
    IN_PLACE = "in_place"
    """The host writes what the disk has otherwise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Facts about both methods, for one version and one server."""

    rebuild: exception.AcstorError | None
    """Refusal, a loss included; None: it is possible."""
    in_place: exception.AcstorError | None
    """Refusal; None: it is possible."""
    estimate: Estimate | exception.AcstorError
    """Bytes that they move, or why nobody knows."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A method, and why it is taken."""

    method: RestoreMethod | None
    """None: neither is possible."""
    reason: str
    hint: str | None = None
    """Alternative that is left; None where a method is taken."""


def choose(options: Options) -> Choice:
    """Return the method that loses nothing and moves fewest bytes, as far as that is known."""
    rebuild, in_place = options.rebuild, options.in_place
    if rebuild is not None and in_place is not None:
        reason = rebuild.message
        if in_place.message != reason:
            reason = f"{reason}; and not in place: {in_place.message}"
        return Choice(None, _short(reason), rebuild.hint)
    if in_place is not None:
        return _taken(
            RestoreMethod.REBUILD, f"{rebuilding.REASON}; not in place: {in_place.message}"
        )
    if rebuild is not None:
        return _taken(RestoreMethod.IN_PLACE, rebuild.message)
    return _cheaper(options.estimate)


def unknown(error: exception.AcstorError) -> Choice:
    """Return the choice where the facts could not be had: as if there were one method."""
    return _taken(
        RestoreMethod.REBUILD,
        f"what a restore in place would move is not known: {exception.one_line(error)}",
    )


def _cheaper(found: Estimate | exception.AcstorError) -> Choice:
    if not isinstance(found, Estimate):
        return unknown(found)
    in_place, rebuild = _words(found.in_place), _words(found.rebuild)
    if found.in_place.bytes < found.rebuild.bytes:
        return _taken(RestoreMethod.IN_PLACE, f"{in_place} bytes are moved, by a rebuild {rebuild}")
    return _taken(RestoreMethod.REBUILD, f"{rebuild} bytes are moved, in place {in_place}")


def _words(moved: Moved) -> str:
    return f"{moved.bytes} to {moved.at_most}"


def _taken(method: RestoreMethod, reason: str) -> Choice:
    return Choice(method, _short(reason))


def _short(reason: str) -> str:
    """Return a reason as one line of a bounded length."""
    return " ".join(reason.split())[:REASON_LENGTH_MAX]
