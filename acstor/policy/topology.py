"""The declared topology: which switches are above which host, and how fast they are.

Positions are written as in ``[DEFAULT] topology``: the switches from the root down, such as
``pod-2/rack-17``. The switch right above a host is level 0 (edge), the one above that level 1
(aggregate), and so on up to the root, which all hosts share and which has no name.
"""

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acstor import exception

TOPOLOGY_VERSION = 1
"""Raised when a field changes its meaning; unknown fields are ignored."""
LEVELS_MAX = 5
"""Four named parts of a position, and the root."""
FILE_BYTES_MAX = 16 << 20
_MBIT = 1_000_000 / 8
_SPEED_MAX = 1e9  # Mbit/s
_PATH = re.compile(r"[A-Za-z0-9_.@-]{1,63}(/[A-Za-z0-9_.@-]{1,63}){0,3}")
Path = tuple[str, ...]


@dataclass(frozen=True)
class Speeds:
    """Speeds of a switch, bytes per second; None: not declared."""

    uplink: float | None = None
    """To the switch above, in one direction."""
    capacity: float | None = None
    """Traffic that it forwards altogether."""


@dataclass(frozen=True)
class Topology:
    """Places of hosts, and the speeds of the switches above them."""

    levels: tuple[Speeds, ...] = ()
    """Of ordinary switches, from the hosts up; the last is the root's."""
    names: tuple[str, ...] = ()
    """Of the levels."""
    switches: Mapping[Path, Speeds] = field(default_factory=dict)
    """Of switches that differ, by position."""
    hosts: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str) -> "Topology":
        """Read a topology file, TOML; its page is ``formats/topology.rst``.

        :raises ConfigurationError: when it cannot be read or is malformed.
        """
        try:
            with open(path, "rb") as source:
                content = source.read(FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise exception.InvalidError(f"longer than {FILE_BYTES_MAX} bytes")
            return cls.parse(tomllib.loads(content.decode()))
        except OSError as error:
            raise exception.ConfigurationError(
                f"topology file {path}: {error.strerror}", hint="correct [policy] topology_file"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, exception.InvalidError) as error:
            raise exception.ConfigurationError(
                f"topology file {path}: {error}", hint="correct the file"
            ) from error

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "Topology":
        """Return the topology that a mapping with the fields of the file describes.

        :raises InvalidError: when something is malformed.
        """
        if fields.get("version") != TOPOLOGY_VERSION:
            raise exception.InvalidError(f"version = {fields.get('version')!r:.20}, not 1")
        levels = fields.get("levels")
        if not isinstance(levels, Sequence) or not 1 <= len(levels) <= LEVELS_MAX:
            raise exception.InvalidError(f"levels: 1 to {LEVELS_MAX} of them, from the hosts up")
        return cls(
            tuple(_speeds(level, f"level {number}") for number, level in enumerate(levels)),
            tuple(
                str(level.get("name", f"level {number}"))[:63]
                for number, level in enumerate(levels)
            ),
            {
                as_path(name, "switch"): _speeds(speeds, f"switch {name}")
                for name, speeds in _table(fields, "switches").items()
            },
            {
                str(host): as_path(position, f"host {host}")
                for host, position in _table(fields, "hosts").items()
            },
        )

    def with_hosts(self, positions: Mapping[str, str]) -> "Topology":
        """Return the topology with hosts added; those that it has itself stay where they are.

        :param positions: as in a ring; empty ones are left out.
        """
        added = {host: tuple(text.split("/")) for host, text in positions.items() if text}
        return dataclasses.replace(self, hosts={**added, **self.hosts})

    def switch_above(self, host: str, level: int) -> Path | None:
        """Return the switch of a level above a host; None: its position does not say."""
        path = self.hosts.get(host)
        if path is None or level > len(path):
            return None
        return path[: len(path) - level]

    def speeds_of(self, switch: Path, level: int) -> Speeds:
        """Return how fast a switch is, as far as it is declared."""
        general = self.levels[level] if level < len(self.levels) else Speeds()
        own = self.switches.get(switch, Speeds())
        return Speeds(own.uplink or general.uplink, own.capacity or general.capacity)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types that :meth:`parse` takes, for journals."""
        return {
            "version": TOPOLOGY_VERSION,
            "levels": [
                {**_mbit(speeds), "name": name}
                for speeds, name in zip(self.levels, self.names, strict=True)
            ],
            "switches": {"/".join(path): _mbit(each) for path, each in self.switches.items()},
            "hosts": {host: "/".join(path) for host, path in sorted(self.hosts.items())},
        }


def as_path(text: object, what: str) -> Path:
    """Return a position as its parts.

    :raises InvalidError: when it is malformed.
    """
    if not isinstance(text, str) or _PATH.fullmatch(text) is None:
        raise exception.InvalidError(f"{what}: {text!r:.50} is no position such as pod-1/rack-2")
    return tuple(text.split("/"))


def _speeds(fields: object, what: str) -> Speeds:
    if not isinstance(fields, Mapping):
        raise exception.InvalidError(f"{what} is no table")
    return Speeds(_speed(fields, "uplink", what), _speed(fields, "capacity", what))


def _speed(fields: Mapping[str, Any], name: str, what: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 < value <= _SPEED_MAX:
        raise exception.InvalidError(f"{what}: {name} = {value!r:.30} is no speed in Mbit/s")
    return float(value) * _MBIT


def _table(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name, {})
    if not isinstance(value, Mapping):
        raise exception.InvalidError(f"{name} is no table")
    return value


def _mbit(speeds: Speeds) -> dict[str, float]:
    return {
        name: value / _MBIT
        for name, value in (("uplink", speeds.uplink), ("capacity", speeds.capacity))
        if value is not None
    }
