"""Values that people and programs are shown differently."""

from collections.abc import Mapping, Sequence
from typing import Any

from cliff import columns

from acstor.conf.types import GIB, KIB, MIB, TIB


class Size(columns.FormattableColumn[int]):
    """Bytes: ``1.5 GiB`` for people, the number for programs."""

    def human_readable(self) -> str:
        """Return the size in its largest binary unit."""
        for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
            if self._value >= unit:
                return f"{self._value / unit:.1f} {name}"
        return f"{self._value} B"


class Rate(columns.FormattableColumn[float | None]):
    """Bytes per second: ``1.5 MiB/s`` for people, the number for programs; None: not known."""

    def human_readable(self) -> str:
        """Return the rate in its largest binary unit."""
        return "unknown" if self._value is None else f"{Size(int(self._value)).human_readable()}/s"


class Share(columns.FormattableColumn[float]):
    """A proportion: ``12.50 %`` for people, 0 to 1 for programs."""

    def human_readable(self) -> str:
        """Return the percentage."""
        return f"{100 * self._value:.2f} %"


class Disk(columns.FormattableColumn[Mapping[str, Any] | None]):
    """A disk as host states tell it: ``well, 12 % worn`` for people; None: not known."""

    def human_readable(self) -> str:
        """Return how it is, and what part of its life is over where it says so."""
        if self._value is None:
            return "unknown"
        state, wear = "well" if self._value["is_healthy"] else "failing", self._value["wear"]
        return state if wear is None else f"{state}, {100 * wear:.0f} % worn"


class Latencies(columns.FormattableColumn[Sequence[Mapping[str, Any]]]):
    """Peers with ``name``, ``p50_ms``, ``p99_ms``: a line ``name p50/p99 ms`` each for people."""

    def human_readable(self) -> str:
        """Return a line for each peer."""
        return "\n".join(
            f"{each['name']} {each['p50_ms']:.1f}/{each['p99_ms']:.1f} ms" for each in self._value
        )


class Names(columns.FormattableColumn[Sequence[str]]):
    """Names: one a line for people, a list for programs."""

    def human_readable(self) -> str:
        """Return a line for each."""
        return "\n".join(self._value)

    def machine_readable(self) -> list[str]:
        """Return the list."""
        return list(self._value)


class Fields(columns.FormattableColumn[Any]):
    """A mapping or a list of mappings: lines of ``name=value`` for people, itself for programs."""

    def human_readable(self) -> str:
        """Return a line per entry."""
        if isinstance(self._value, dict):
            return "\n".join(f"{name}={_plain(value)}" for name, value in self._value.items())
        return "\n".join(
            " ".join(f"{name}={_plain(value)}" for name, value in entry.items())
            for entry in self._value
        )


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}:{_plain(inner)}" for name, inner in value.items())
    return str(value)
