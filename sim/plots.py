"""Plots of results, as SVG files."""

import pathlib
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim import sweep
from sim.exception import ScenarioError

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "acstor"

COLOURS = {
    "non-cache": "#9c6b4e",
    "local-cache": "#efb118",
    "static-collaborative": "#ff725c",
    "acstor": "#4269d0",
}
_MORE = ("#6cc5b0", "#a463f2", "#97bbf5", "#9c9c9c", "#ff8ab7")
_PANEL_INCHES = (3.4, 3.0)
LABELS = {
    "traffic.cv": "CV of the extra traffic",
    "traffic.mean": "mean extra traffic (MB/s)",
    "machines.per_host": "machines per host",
    "boot_mean_s": "mean boot time (s)",
    "throughput_mb_s": "throughput (MB/s)",
    "total_cv": "CV of all traffic",
}


def draw(document: dict[str, Any], path: pathlib.Path) -> None:
    """Draw what the scenario's ``[plot]`` says: lines over an axis, a panel per facet.

    :raises ScenarioError: when the scenario names nothing to plot.
    """
    plot = document["plot"]
    if plot.get("kind") == "series":
        panels = _series_panels(document)
    elif "x" in plot:
        panels = _line_panels(document)
    else:
        raise ScenarioError(f"{document['scenario']} has no [plot]")
    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width * len(panels), height), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    x, y = plot.get("x", "second"), plot.get("y", "boot_mean_s")
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        for number, (variant, points) in enumerate(sorted(lines.items())):
            _line(axes, variant, number, points)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(LABELS.get(x, x))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    if plot.get("log"):
        all_axes[0].set_yscale("log")
    else:
        # All panels have this one's scale; set before they are drawn it would end at what is there.
        all_axes[0].set_ylim(bottom=0)
    all_axes[0].set_ylabel(LABELS.get(y, y))
    all_axes[-1].legend(frameon=False, fontsize=8)
    figure.savefig(path, format="svg", metadata={"Date": None})


Point = tuple[float, float, float, float]


def _line(axes: Axes, variant: str, number: int, points: list[Point]) -> None:
    colour = COLOURS.get(variant, _MORE[number % len(_MORE)])
    points.sort()
    xs = [point[0] for point in points]
    marker = "o" if len(points) < 30 else None
    axes.plot(xs, [point[1] for point in points], color=colour, label=variant, marker=marker, ms=3)
    low, high = [point[2] for point in points], [point[3] for point in points]
    axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)


def _line_panels(document: dict[str, Any]) -> dict[str, dict[str, list[Point]]]:
    plot = document["plot"]
    x, y, facet = plot["x"], plot.get("y", "boot_mean_s"), plot.get("facet")
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in sweep.medians(document["results"], [y]):
        if row[y] is None or x not in row["axes"]:
            continue
        title = f"{LABELS.get(facet, facet)}: {row['axes'][facet]}" if facet else ""
        lines = panels.setdefault(title, {})
        point = (float(row["axes"][x]), row[y], row[f"{y}_low"], row[f"{y}_high"])
        lines.setdefault(row["variant"], []).append(point)
    return panels


def _series_panels(document: dict[str, Any]) -> dict[str, dict[str, list[Point]]]:
    """Return the CV of the hosts' traffic over time, of the first seed."""
    facet = document["plot"].get("facet")
    panels: dict[str, dict[str, list[Point]]] = {}
    for result in document["results"]:
        if result["seed"] != 1:
            continue
        title = f"{LABELS.get(facet, facet)}: {result['axes'][facet]}" if facet else ""
        points = [(at, cv, cv, cv) for at, cv in result["cv_series"]]
        panels.setdefault(title, {})[result["variant"]] = points
    return panels
