"""Request for a hand-over: a server comes, and its host is to have what the server reads."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.control import parameters

DISKS_MAX = 64
"""Images, and volumes, of one server that are looked at; Nova attaches some 26 volumes."""
_HOST = re.compile(r"[a-z0-9][a-z0-9_.-]{0,239}\Z")


class MoveKind(enum.StrEnum):
    """Kind of a server's move."""

    LIVE = "live-migration"
    COLD = "cold-migration"
    """Resizes that go to another host, too."""
    EVACUATION = "evacuation"
    """The host that the server comes from is dead."""


@dataclasses.dataclass(frozen=True, slots=True)
class HandOverRequest:
    """Request that the host gets which a server comes to."""

    instance: str
    kind: MoveKind
    source: str
    """Name of the host that the server comes from."""
    images: tuple[str, ...] = ()
    """Ids of the images that its disks are made of."""
    volumes: tuple[str, ...] = ()
    """Ids of its volumes, of whatever back end."""

    def to_arguments(self) -> dict[str, object]:
        """Return the request as a call carries it."""
        return {
            "instance": self.instance,
            "kind": str(self.kind),
            "source": self.source,
            "images": list(self.images),
            "volumes": list(self.volumes),
        }

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "HandOverRequest":
        """Return the request that a call carries.

        :raises InvalidError: when a field is missing, unknown or out of range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(map(str, arguments.keys() - known)):
            raise exception.InvalidError(f"a hand-over has no field {name[:100]!r}")
        try:
            kind = MoveKind(arguments.get("kind"))  # type: ignore[arg-type]
        except ValueError as error:
            raise exception.InvalidError(
                f"kind is {' or '.join(MoveKind)}, not {arguments.get('kind')!r:.50}"
            ) from error
        return cls(
            checked_id(arguments.get("instance"), "an instance"),
            kind,
            checked_host(arguments.get("source")),
            _checked_ids(arguments.get("images"), "an image"),
            _checked_ids(arguments.get("volumes"), "a volume"),
        )


def checked_id(value: object, what: str) -> str:
    """Return the id of something that OpenStack has.

    :param what: names it in errors.
    :raises InvalidError: when it is no UUID in its one form.
    """
    if not parameters.is_id(value):
        raise exception.InvalidError(
            f"the id of {what} is a UUID in lower case, not {value!r:.100}"
        )
    return str(value)


def checked_host(value: object) -> str:
    """Return the name of a host.

    :raises InvalidError: when no host has such a name.
    """
    if not isinstance(value, str) or not _HOST.match(value):
        raise exception.InvalidError(f"{value!r:.100} is no name of a host")
    return value


def ids_in(values: object) -> tuple[str, ...]:
    """Return those of some values that are ids, each once, :data:`DISKS_MAX` at most."""
    given = values if isinstance(values, list) else []
    return tuple(dict.fromkeys(filter(parameters.is_id, given)))[:DISKS_MAX]


def _checked_ids(values: object, what: str) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) > DISKS_MAX:
        raise exception.InvalidError(f"ids of {what} are a list of at most {DISKS_MAX}")
    return tuple(checked_id(value, what) for value in values)
