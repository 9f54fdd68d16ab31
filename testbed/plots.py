"""The plots of the report, as SVG texts."""

import io
from collections.abc import Callable
from typing import TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.measurement import ApproachResult, DemoResult

mpl.use("svg")

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2")
_SIZE_INCHES = (7.5, 3.4)
_MEGABYTE = 1e6
Drawn = TypeVar("Drawn")


def all_plots(result: DemoResult) -> list[tuple[str, str]]:
    """Return (caption, SVG) pairs."""
    approaches = [approach for approach in result.approaches if approach.guests]
    if not approaches:
        return []
    return [
        ("Boot time of each guest: request to login prompt", svg(_boot_times, approaches)),
        ("Bytes out of the origin's link while the guests boot", svg(_origin_curve, approaches)),
        ("Bytes between hosts while the guests boot", svg(_peer_curve, approaches)),
        ("Bytes that the guests got, by tier", svg(_tiers, approaches)),
        ("Bytes received and sent over each link", svg(_links, approaches)),
    ]


def svg(draw: Callable[[Axes, Drawn], None], drawn: Drawn) -> str:
    """Return the SVG of what ``draw`` draws, to be put into HTML."""
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    draw(axes, drawn)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    output = io.StringIO()
    figure.savefig(output, format="svg")
    text = output.getvalue()
    # The XML prologue has no place inside of HTML.
    return text[text.index("<svg") :]


def colour(index: int) -> str:
    """Return the colour of the approach of that number."""
    return _COLOURS[index % len(_COLOURS)]


def _boot_times(axes: Axes, approaches: list[ApproachResult]) -> None:
    for index, approach in enumerate(approaches):
        times = sorted(approach.boot_times_s)
        width = 0.8 / max(1, len(times))
        places = [index - 0.4 + width * (number + 0.5) for number in range(len(times))]
        axes.bar(places, times, width * 0.9, color=colour(index))
    axes.set_xticks(range(len(approaches)), [approach.title for approach in approaches])
    axes.set_ylabel("s")


def _origin_curve(axes: Axes, approaches: list[ApproachResult]) -> None:
    for index, approach in enumerate(approaches):
        axes.plot(
            [sample.time_s for sample in approach.samples],
            [sample.origin_sent / _MEGABYTE for sample in approach.samples],
            label=approach.title,
            color=colour(index),
        )
    _label_curves(axes)


def _peer_curve(axes: Axes, approaches: list[ApproachResult]) -> None:
    for index, approach in enumerate(approaches):
        axes.plot(
            [sample.time_s for sample in approach.samples],
            [sample.peers_sent / _MEGABYTE for sample in approach.samples],
            label=approach.title,
            color=colour(index),
        )
    _label_curves(axes)


def _label_curves(axes: Axes) -> None:
    axes.set_xlabel("s since the request")
    axes.set_ylabel("MB")
    axes.legend(frameon=False)


def _tiers(axes: Axes, approaches: list[ApproachResult]) -> None:
    bottoms = [0.0] * len(approaches)
    for index, tier in enumerate(("local", "peer", "origin")):
        heights = [(getattr(item.tier_total, tier) or 0) / _MEGABYTE for item in approaches]
        axes.bar(range(len(approaches)), heights, 0.6, bottoms, label=tier, color=colour(index))
        bottoms = [one + two for one, two in zip(bottoms, heights, strict=True)]
    axes.set_xticks(range(len(approaches)), [approach.title for approach in approaches])
    axes.set_ylabel("MB")
    axes.legend(frameon=False)


def _links(axes: Axes, approaches: list[ApproachResult]) -> None:
    members = list(approaches[0].links)
    width = 0.8 / len(approaches)
    for index, approach in enumerate(approaches):
        places = [number - 0.4 + width * (index + 0.5) for number in range(len(members))]
        received = [approach.links[name].received / _MEGABYTE for name in members]
        sent = [-approach.links[name].sent / _MEGABYTE for name in members]
        axes.bar(places, received, width * 0.9, color=colour(index), label=approach.title)
        axes.bar(places, sent, width * 0.9, color=colour(index), alpha=0.55)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(members)), members, rotation=0 if len(members) < 12 else 90)
    axes.set_ylabel("MB received / sent (below)")
    axes.legend(frameon=False)
