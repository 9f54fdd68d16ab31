"""Drawings of results, as SVG files: of pages, and of the commands' ``--plot``."""

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.results.labels import label_of
from testbed.results.record import Curve, Curves, Lines, Record, RecordError
from testbed.results.tables import cell_text

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "acstor"
mpl.rcParams["svg.fonttype"] = "none"  # letters as text, not as outlines

COLOURS = {
    "non-cache": "#9c6b4e",
    "local-cache": "#efb118",
    "static-collaborative": "#ff725c",
    "acstor": "#4269d0",
    "no cache": "#9c9c9c",
    "write-through": "#4269d0",
    "write-back": "#efb118",
    "differential": "#ff725c",
}
_MORE = ("#6cc5b0", "#a463f2", "#97bbf5", "#9c9c9c", "#ff8ab7")
_STYLES = ("-", "--", ":", "-.")
_PANEL_INCHES = (3.5, 3.0)
_LOW_PANEL_INCHES = (5.0, 1.9)
"""Size of a panel where panels are in several rows, inches."""


@dataclass
class _Line:
    label: str
    colour: str
    style: str
    points: list[tuple[float, float]]
    spread: list[tuple[float, float]]
    """Lowest and highest of each point; empty: not shaded."""
    is_of_points: bool
    """True if only the points are results, and not what is between them."""


def draw(record: Record, path: pathlib.Path) -> None:
    """Draw the record's plot.

    :raises RecordError: when it has none.
    """
    plot = record.plot
    if plot is None:
        raise RecordError(f"{record.title}: nothing to plot", hint="show its tables")
    if isinstance(plot, Lines):
        panels, x_label, y_label = _panels(record, plot), label_of(plot.x), label_of(plot.y)
        columns, is_log, is_shared = 0, plot.is_log, True
    else:
        panels, x_label, y_label = _panels_of_curves(plot), plot.x_label, plot.y_label
        columns, is_log, is_shared = plot.columns, False, plot.is_y_shared
    columns = columns or max(1, len(panels))
    rows = -(-len(panels) // columns) or 1
    width, height = _PANEL_INCHES if rows == 1 else _LOW_PANEL_INCHES
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    all_axes = figure.subplots(rows, columns, squeeze=False, sharey=is_shared)
    for index, (title, lines) in enumerate(panels.items()):
        axes = all_axes[index // columns][index % columns]
        for line in lines:
            _draw_line(axes, line)
        axes.set_title(title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        if index // columns == rows - 1:
            axes.set_xlabel(x_label)
        if not is_shared:
            axes.set_ylim(bottom=0)
    first: Axes = all_axes[0][0]
    if is_log:
        first.set_yscale("log")
    else:
        # All panels have this one's scale; set before they are drawn it would end at what is there.
        first.set_ylim(bottom=0)
    first.set_ylabel(y_label)
    if any(panels.values()):
        all_axes[0][-1].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_line(axes: Axes, line: _Line) -> None:
    xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
    axes.plot(
        xs, ys, color=line.colour, linestyle=line.style, label=line.label, ms=3,
        marker="o" if line.is_of_points else None, linewidth=1.5 if line.is_of_points else 1.0,
    )  # fmt: skip
    if line.spread:
        low, high = [one for one, _ in line.spread], [two for _, two in line.spread]
        axes.fill_between(xs, low, high, color=line.colour, alpha=0.15, linewidth=0)


def _panels(record: Record, plot: Lines) -> dict[str, list[_Line]]:
    panels: dict[str, dict[tuple[str, ...], list[Mapping[str, object]]]] = {}
    names: list[tuple[str, ...]] = []
    for row in record.tables[plot.table].objects():
        if row[plot.y] is None:
            continue
        title = (
            f"{label_of(plot.facet)}: {cell_text(row[plot.facet])}" if plot.facet else plot.title
        )
        name = tuple(cell_text(row[column]) for column in plot.line)
        names += [] if name in names else [name]
        panels.setdefault(title, {}).setdefault(name, []).append(row)
    colours = _colours([name[0] for name in sorted(names)])
    rest = list(dict.fromkeys(name[1:] for name in names))
    found: dict[str, list[_Line]] = {}
    for title, lines in panels.items():
        found[title] = []
        for name, rows in sorted(lines.items()):
            rows.sort(key=lambda row: _number(row[plot.x]))
            more = (f"{label_of(c)} {v}" for c, v in zip(plot.line[1:], name[1:], strict=True))
            found[title].append(
                _Line(
                    ", ".join([name[0], *more]), colours[name[0]],
                    _STYLES[rest.index(name[1:]) % len(_STYLES)],
                    [(_number(row[plot.x]), _number(row[plot.y])) for row in rows],
                    [(_number(row[plot.low]), _number(row[plot.high])) for row in rows]
                    if plot.low
                    else [],
                    is_of_points=True,
                )
            )  # fmt: skip
    return found


def _panels_of_curves(plot: Curves) -> dict[str, list[_Line]]:
    names = dict.fromkeys(name for panel in plot.panels for name in panel.lines)
    colours = _colours(list(names))
    return {
        panel.title: [
            _Line(name, colours[name], "-", _points(curve, plot.x_step), [], is_of_points=False)
            for name, curve in panel.lines.items()
        ]
        for panel in plot.panels
    }


def _points(curve: Curve, step: float) -> list[tuple[float, float]]:
    xs = curve.x or [index * float(step) for index in range(len(curve.y))]
    return [(float(x), float(y)) for x, y in zip(xs, curve.y, strict=True)]


def _colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name, the same in all plots where it has one of its own."""
    others = [name for name in dict.fromkeys(names) if name not in COLOURS]
    more = {name: _MORE[number % len(_MORE)] for number, name in enumerate(others)}
    return COLOURS | more


def _number(cell: object) -> float:
    """Return a cell as a coordinate.

    :raises RecordError: when it is none.
    """
    try:
        return float(str(cell))
    except ValueError as error:
        raise RecordError(f"{cell!r} cannot be drawn: it is no number") from error
