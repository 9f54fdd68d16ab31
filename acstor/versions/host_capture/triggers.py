"""Events at which versions of a server are wanted, as flavors, images and metadata say it."""

from collections.abc import Iterable
from dataclasses import dataclass

from acstor.repository.versions.record import Trigger

EXTRA_SPEC = "acstor:version_on"
"""Extra spec of flavors, and key of the metadata of servers."""
IMAGE_PROPERTY = "acstor_version_on"
"""Property of images, whose names have no colon."""
ALLOWED = (Trigger.SHUTDOWN, Trigger.RESIZE, Trigger.REBUILD, Trigger.DELETE)
"""Events at which a host is told to keep disks."""
NONE = "none"
"""Word for no event, where one is asked for at a place behind."""
_WORDS_MAX = 16
_TEXT_LENGTH_MAX = 255


@dataclass(frozen=True)
class WantedTriggers:
    """Reading of a text."""

    triggers: frozenset[Trigger]
    unknown: tuple[str, ...] = ()
    """Words that are no such event: somebody wrote them, and is to be told."""
    is_none: bool = False
    """True if the text says that there is to be none."""


def wanted_triggers(text: str, allowed: Iterable[Trigger] = ALLOWED) -> WantedTriggers:
    """Return the events that a text asks for: words with commas between them.

    Anybody may write anything there, so nothing is an error.

    :param allowed: events that may be asked for.
    """
    words = [word.strip().lower() for word in text[:_TEXT_LENGTH_MAX].split(",")][:_WORDS_MAX]
    if words == [NONE]:
        return WantedTriggers(frozenset(), is_none=True)
    known = {trigger.value: trigger for trigger in allowed}
    found = frozenset(known[word] for word in words if word in known)
    return WantedTriggers(found, tuple(word for word in words if word and word not in known))
