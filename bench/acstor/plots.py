"""Plots of reports, as SVG files."""

import pathlib

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from bench.acstor import tables
from bench.acstor.figures import Figure
from bench.acstor.report import Entry, Report

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "acstor"

COLOURS = {
    "non-cache": "#9c6b4e",
    "local-cache": "#efb118",
    "static-collaborative": "#ff725c",
    "acstor": "#4269d0",
}
_PANEL_INCHES = (3.6, 3.0)
_LABELS = {
    "cv": "CV of the extra traffic",
    "mean": "mean extra traffic (MB/s on 1 Gbit/s)",
    "guests_per_host": "guests per host",
    "weight_lambda": "lambda",
    "mean_s": "mean boot time (s)",
    "read_mb_per_s": "throughput of all guests (MB/s)",
    "throughput_mb_s": "throughput of a guest (MB/s)",
    "total_cv": "CV of all traffic",
}


def draw(report: Report, figure: Figure, path: pathlib.Path) -> None:
    """Draw a report: lines over the figure's axis, a panel per value of its facet."""
    panels: dict[str, list[Entry]] = {}
    for entry in report.entries:
        value = entry.point.get(figure.facet) if figure.facet else None
        title = "" if value is None else f"{_LABELS.get(figure.facet or '', figure.facet)}: {value}"
        panels.setdefault(title, []).append(entry)
    width, height = _PANEL_INCHES
    drawing = Drawing(figsize=(width * max(1, len(panels)), height), layout="constrained")
    all_axes = drawing.subplots(1, max(1, len(panels)), squeeze=False, sharey=True)[0]
    for axes, (title, entries) in zip(all_axes, panels.items(), strict=False):
        if figure.is_series:
            _series(axes, entries)
        else:
            _lines(axes, figure, entries)
        axes.set_title(title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    # All panels have this one's scale; set before they are drawn it would end at what is there.
    all_axes[0].set_ylim(bottom=0)
    all_axes[0].set_ylabel(_LABELS.get(figure.y, figure.y))
    all_axes[-1].legend(frameon=False, fontsize=8)
    drawing.savefig(path, format="svg", metadata={"Date": None})


def _lines(axes: Axes, figure: Figure, entries: list[Entry]) -> None:
    points: dict[str, list[tuple[float, float]]] = {}
    for (point, approach), found in tables.grouped(entries).items():
        value = tables.median_of(found, figure.y)
        if value is not None:
            points.setdefault(approach, []).append((float(dict(point)[figure.x]), value))
    for approach, line in points.items():
        line.sort()
        xs, ys = [at for at, _ in line], [value for _, value in line]
        axes.plot(xs, ys, color=COLOURS.get(approach), label=approach, marker="o", ms=3)
    axes.set_xlabel(_LABELS.get(figure.x, figure.x))


def _series(axes: Axes, entries: list[Entry]) -> None:
    for entry in entries:
        if entry.turn == 0:
            series = entry.storm.cv_series
            axes.plot(
                [at for at, _ in series],
                [cv for _, cv in series],
                color=COLOURS.get(entry.storm.approach),
                label=entry.storm.approach,
            )
    axes.set_xlabel("s since the first guest")
