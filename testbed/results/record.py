"""The format of a result of record.

A file holds what pages show of a measurement, in tables of rounded figures, and what is drawn of
it. It is no raw result: ``python -m sim run --json`` and ``python -m bench.acstor ... --json``
keep those.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from acstor.exception import ErrorKind
from testbed.exception import TestbedError

DIRECTORY = pathlib.Path(__file__).resolve().parents[2] / "bench" / "results"
FORMAT = "acstor-results"
FORMAT_VERSION = 1
BYTES_MAX = 100_000
"""Size of a file: curves are kept as they are seen, not as they were sampled."""


class RecordError(TestbedError):
    """A result of record is not of the format, or of a version that this release does not read."""

    kind = ErrorKind.INVALID
    default_hint = "write it anew: 'python -m sim record' or 'python -m bench.acstor record'"


@dataclass(frozen=True)
class Table:
    """Figures in rows."""

    columns: Sequence[str]
    """Names, each once."""
    rows: Sequence[Sequence[Any]]
    """Cells: text, a number, None, several numbers, or ``median``, ``low`` and ``high``."""
    headings: Sequence[str] = ()
    """Headings that a page shows over the columns; empty: their names."""
    caption: str = ""

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield each row with its cells by column."""
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))


@dataclass(frozen=True)
class Lines:
    """A plot of a table: a panel for each value of ``facet``, a line for each of ``line``."""

    table: str
    x: str
    y: str
    line: Sequence[str]
    """Columns that tell the lines of a panel apart; the first gives the colour."""
    facet: str = ""
    low: str = ""
    high: str = ""
    """Columns between which the spread is shaded; empty: none is."""
    title: str = ""
    """Of the only panel."""
    is_log: bool = False


@dataclass(frozen=True)
class Curve:
    """Points of a line."""

    y: Sequence[float]
    x: Sequence[float] = ()
    """Empty: points are :attr:`Curves.x_step` apart."""


@dataclass(frozen=True)
class Panel:
    """Lines by name over the same axis."""

    title: str
    lines: Mapping[str, Curve]


@dataclass(frozen=True)
class Curves:
    """A plot of what no table holds: values over time."""

    x_label: str
    y_label: str
    panels: Sequence[Panel]
    x_step: float = 0.0
    columns: int = 0
    """Panels side by side; 0: all of them."""
    is_y_shared: bool = True


@dataclass(frozen=True)
class Record:
    """Content of one file of results."""

    title: str
    source: str
    """Source of the figures: command, date, and what was lost on the way."""
    tables: Mapping[str, Table]
    about: str = ""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    plot: Lines | Curves | None = None


def read(path: pathlib.Path) -> Record:
    """Read a file; figures keep the digits that it has.

    :raises RecordError: when it is none, of another version or larger than :data:`BYTES_MAX`.
    """
    try:
        content = path.read_bytes()
        if len(content) > BYTES_MAX:
            raise RecordError(f"{path} has {len(content)} bytes, more than {BYTES_MAX}")
        fields = json.loads(content, parse_float=Decimal)
        if fields["format"] != FORMAT or fields["version"] != FORMAT_VERSION:
            raise RecordError(f"{path} is no result of version {FORMAT_VERSION}")
        record = Record(
            title=fields["title"],
            source=fields["source"],
            tables={name: Table(**table) for name, table in fields["tables"].items()},
            about=fields["about"],
            conditions=fields["conditions"],
            notes=fields["notes"],
            plot=_plot(fields["plot"]),
        )
        _check(record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path} is no result of record: {error!r:.200}") from error
    return record


def _plot(fields: Mapping[str, Any] | None) -> Lines | Curves | None:
    if fields is None:
        return None
    if "table" in fields:
        return Lines(**fields)
    panels = [
        Panel(one["title"], {name: Curve(**curve) for name, curve in one["lines"].items()})
        for one in fields["panels"]
    ]
    return Curves(**{**fields, "panels": panels})


def _check(record: Record) -> None:
    """Check that every name means something.

    :raises ValueError: names what does not.
    """
    if not record.title or not record.source:
        raise ValueError("title and source are needed")
    for name, table in record.tables.items():
        if len(set(table.columns)) != len(table.columns):
            raise ValueError(f"table {name} has a column twice")
        if any(len(row) != len(table.columns) for row in table.rows):
            raise ValueError(f"table {name} has rows of other lengths than its header")
        if len(table.headings) not in (0, len(table.columns)):
            raise ValueError(f"table {name} has a heading for some of its columns only")
    if isinstance(record.plot, Lines):
        plot = record.plot
        wanted = {plot.x, plot.y, *plot.line, plot.facet, plot.low, plot.high} - {""}
        unknown = wanted - set(record.tables[plot.table].columns)
        if unknown or not plot.line:
            raise ValueError(f"the plot names columns that are not there: {sorted(unknown)}")
    elif isinstance(record.plot, Curves):
        for panel in record.plot.panels:
            for name, curve in panel.lines.items():
                if len(curve.x) != len(curve.y) and (curve.x or not record.plot.x_step):
                    raise ValueError(f"line {name} has not as many times as values")


def write(record: Record, path: pathlib.Path) -> None:
    """Write a file, a row a line, so that a changed figure is a changed line.

    :raises RecordError: when it would be larger than :data:`BYTES_MAX`, or names columns that are
        not there.
    """
    try:
        _check(record)
    except (ValueError, KeyError) as error:
        raise RecordError(f"{path}: {error}") from error
    fields = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "title": record.title,
        "about": record.about,
        "source": record.source,
        "conditions": record.conditions,
        "tables": {name: _given(table) for name, table in record.tables.items()},
        "notes": record.notes,
        "plot": None if record.plot is None else _given(record.plot),
    }
    text = _text(fields, depth=0) + "\n"
    if len(text.encode()) > BYTES_MAX:
        raise RecordError(f"{path} would have more than {BYTES_MAX} bytes: keep fewer points")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _given(part: Table | Lines | Curves | Panel | Curve) -> dict[str, Any]:
    """Return the fields that are not as by default, by name."""
    fields = {}
    for one in dataclasses.fields(part):
        value = getattr(part, one.name)
        is_needed = (
            one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        )
        is_empty = isinstance(value, Sequence | Mapping) and not value
        if is_needed or (value != one.default and not is_empty):
            fields[one.name] = value
    if isinstance(part, Curves):
        fields["panels"] = [_given(panel) for panel in part.panels]
    elif isinstance(part, Panel):
        fields["lines"] = {name: _given(curve) for name, curve in part.lines.items()}
    return fields


def _text(value: Any, depth: int) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        return json.dumps(value)
    if isinstance(value, Mapping):
        opened, closed = "{", "}"
        parts = [f"{json.dumps(name)}: {_text(one, depth + 1)}" for name, one in value.items()]
    else:
        opened, closed = "[", "]"
        parts = [_text(one, depth + 1) for one in value]
    if not _is_nested(value):
        return opened + ", ".join(parts) + closed
    inner = " " * (depth + 1)
    return f"{opened}\n{inner}" + f",\n{inner}".join(parts) + f"\n{' ' * depth}{closed}"


def _is_nested(value: Any) -> bool:
    """Say whether a container is written over several lines: a row and a curve are not."""
    if isinstance(value, Mapping):
        return any(
            isinstance(one, Mapping) or (isinstance(one, list | tuple) and _is_nested(one))
            for one in value.values()
        )
    return bool(value) and all(isinstance(one, Mapping | list | tuple) for one in value)
