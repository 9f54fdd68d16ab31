"""Versions that are asked for at events of a server's life, and how long they are kept.

Of each of the two, the first place counts that says something: the server's metadata, the extra
specs of its flavor, the properties of its image, the defaults of its project. Nonsense says
nothing, but of how long versions are kept: there it keeps them all, since what was meant may have
been more than what the next place says.
"""

import dataclasses
import logging
import re
from collections.abc import Iterable, Mapping

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.versions.database.project_settings import AUTOMATIC, ProjectDefaults
from acstor.versions.host_capture.triggers import (
    EXTRA_SPEC,
    IMAGE_PROPERTY,
    NONE,
    wanted_triggers,
)
from acstor.versions.retention import COUNTERS, Policy

LOG = logging.getLogger(__name__)

SERVER_KEEP = "acstor:version_keep"
"""Key of a server's metadata, or of an extra spec: a policy such as ``last=3,daily=14,within=3d``.
Of events it is :data:`.triggers.EXTRA_SPEC`."""
IMAGE_KEEP = "acstor_version_keep"
"""Property of an image: as :data:`SERVER_KEEP`."""
_PART = re.compile(r"\s*([a-z_]+)\s*=\s*(-?[0-9a-z]+)\s*\Z")
_LENGTH_MAX = 255


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Texts of one place that may say something."""

    name: str
    """For people."""
    version_on: str | None
    version_keep: str | None


def place_of(name: str, texts: Mapping[str, str], *, is_image: bool = False) -> Place:
    """Return what metadata, extra specs or properties say."""
    on, keep = (IMAGE_PROPERTY, IMAGE_KEEP) if is_image else (EXTRA_SPEC, SERVER_KEEP)
    return Place(name, texts.get(on), texts.get(keep))


def requested(places: Iterable[Place], defaults: ProjectDefaults) -> ProjectDefaults:
    """Return the events at which versions are asked for, and the policy for them.

    :param places: the first one counts most.
    """
    on: frozenset[Trigger] | None = None
    keep: Policy | None = None
    for place in places:
        if on is None and place.version_on is not None:
            on = _events(place)
        if keep is None and place.version_keep is not None:
            keep = _policy(place)
    return ProjectDefaults(
        defaults.version_on if on is None else on,
        defaults.version_keep if keep is None else keep,
    )


def _events(place: Place) -> frozenset[Trigger] | None:
    found = wanted_triggers(str(place.version_on), AUTOMATIC)
    if found.is_none:
        return frozenset()
    if found.unknown:
        word = found.unknown[0][:40]
        LOG.warning("%s: version_on has no %r; it is passed over", place.name, word)
    return found.triggers or None


def _policy(place: Place) -> Policy:
    try:
        return parse_policy(str(place.version_keep))
    except exception.InvalidError as error:
        LOG.warning("%s: %s; all its versions are kept", place.name, exception.one_line(error))
        return Policy()


def parse_policy(text: str) -> Policy:
    """Return the policy that a text such as ``last=3,daily=14,within=3d`` says.

    :raises InvalidError: when it says none.
    """
    if text.strip().lower() == NONE:
        return Policy()
    fields: dict[str, int | str] = {}
    for part in text[:_LENGTH_MAX].split(","):
        match = _PART.match(part)
        if match is None or match[1] in fields:
            raise exception.InvalidError(
                f"version_keep {text!r:.60} is no policy", hint="write last=3,daily=14,within=3d"
            )
        name, value = match[1], match[2]
        fields[name] = value if name not in COUNTERS else _count(value)
    return Policy.from_fields(fields)


def _count(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise exception.InvalidError(f"version_keep has a count of {value!r:.20}") from None
