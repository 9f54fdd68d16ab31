"""Events at which versions of a server are wanted, as flavors, images and metadata say it."""

from dataclasses import dataclass

from acstor.repository.versions.record import Trigger

EXTRA_SPEC = "acstor:version_on"
"""Extra spec of flavors, and key of the metadata of servers."""
IMAGE_PROPERTY = "acstor_version_on"
"""Property of images, whose names have no colon."""
ALLOWED = (Trigger.SHUTDOWN, Trigger.RESIZE, Trigger.REBUILD, Trigger.DELETE)
"""Events that may be asked for."""
_WORDS_MAX = 16
_TEXT_LENGTH_MAX = 255


@dataclass(frozen=True)
class WantedTriggers:
    """Reading of a text."""

    triggers: frozenset[Trigger]
    unknown: tuple[str, ...] = ()
    """Words that are no such event: somebody wrote them, and is to be told."""


def wanted_triggers(text: str) -> WantedTriggers:
    """Return the events that a text asks for: words with commas between them.

    Anybody may write anything there, so nothing is an error.
    """
    words = [word.strip().lower() for word in text[:_TEXT_LENGTH_MAX].split(",")][:_WORDS_MAX]
    known = {trigger.value: trigger for trigger in ALLOWED}
    found = frozenset(known[word] for word in words if word in known)
    return WantedTriggers(found, tuple(word for word in words if word and word not in known))
