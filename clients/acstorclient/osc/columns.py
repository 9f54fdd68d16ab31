"""Values that people and programs are shown differently, and rows of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cliff import columns

from acstorclient.v1.files import printable

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
"""Binary units, each 1024 of the one before."""

Row = tuple[tuple[str, ...], tuple[Any, ...]]
Table = tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]
Column = tuple[str, str, Callable[[Any], Any] | None]
"""Head, attribute, and what shows it; None: as it is."""


def size_text(size: float) -> str:
    """Return bytes in their largest unit, ``1.5 GiB``."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {UNITS[unit]}" if unit else f"{size:g} {UNITS[0]}"


class Size(columns.FormattableColumn[int | None]):
    """Bytes: ``1.5 GiB`` for people, the number for programs."""

    def human_readable(self) -> str:
        """Return the size in its largest unit."""
        return "" if self._value is None else size_text(self._value)


class Share(columns.FormattableColumn[float | None]):
    """A part of a whole: ``42 %`` for people, 0 to 1 for programs."""

    def human_readable(self) -> str:
        """Return the percentage."""
        return "" if self._value is None else f"{100 * self._value:.0f} %"


class Lines(columns.FormattableColumn[Sequence[Any] | None]):
    """A list: a line each for people."""

    def human_readable(self) -> str:
        """Return the lines."""
        return "\n".join(_plain(each) for each in self._value or ())

    def machine_readable(self) -> list[Any]:
        """Return the list."""
        return list(self._value or ())


class Fields(columns.FormattableColumn[Mapping[str, Any] | None]):
    """A mapping: lines ``name=value`` for people."""

    def human_readable(self) -> str:
        """Return the lines."""
        return "\n".join(f"{name}={_plain(value)}" for name, value in (self._value or {}).items())

    def machine_readable(self) -> dict[str, Any]:
        """Return the mapping."""
        return dict(self._value or {})


class FileName(columns.FormattableColumn[str]):
    """A name out of somebody's disk: what a terminal would obey is escaped for people."""

    def human_readable(self) -> str:
        """Return the name in printable characters."""
        return printable(self._value)


def rows(items: Iterable[Any], shown: Sequence[Column]) -> Table:
    """Return the table of items."""
    heads = tuple(head for head, _, _ in shown)
    return heads, (_values(item, shown) for item in items)


def row(item: Any, shown: Sequence[Column]) -> Row:
    """Return the heads and values of one item."""
    return tuple(head for head, _, _ in shown), _values(item, shown)


def fields(*names: str, **shown: Callable[[Any], Any]) -> tuple[Column, ...]:
    """Return columns that are called as the attributes, in the order of their names.

    :param shown: what shows some of them.
    """
    return tuple((name, name, shown.get(name)) for name in names)


def _values(item: Any, shown: Sequence[Column]) -> tuple[Any, ...]:
    values = ((getattr(item, attribute), show) for _, attribute, show in shown)
    return tuple(show(value) if show else value for value, show in values)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(each) for each in value)
    return str(value)
