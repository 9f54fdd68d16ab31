"""The page of results: tables and plots of every scenario, written by one command."""

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from sim import plots, scenario, sweep, tables

RATIOS = {
    "figure-6": ("static-collaborative", "boot_mean_s"),
    "figure-8": ("static-collaborative", "boot_mean_s"),
    "figure-11": ("static-collaborative", "boot_mean_s"),
    "best-case": ("static-collaborative", "boot_mean_s"),
    "left-share": ("static-collaborative", "boot_mean_s"),
    "tcp": ("static-collaborative", "boot_mean_s"),
    "figure-7": ("static-collaborative", "boot_mean_s"),
    "grid": ("local-cache", "boot_mean_s"),
}
"""Scenarios whose boot times are also shown as ratios: to which variant, and which times."""
ORDER = (
    "table-1", "figure-6", "figure-7", "figure-8", "figure-9-web-server", "figure-9-web-proxy",
    "figure-9-video-server", "figure-10", "figure-11", "best-case", "grid", "read-path",
    "left-share", "in-order", "tcp", "policies", "onset", "oscillation", "square-wave", "liars",
    "half-leaves", "hosts-1000", "hosts-10000", "testbed-32",
)  # fmt: skip
_SUMMARISED = ("oscillation", "onset")
_HEAD = """\
==========================
Results from the simulator
==========================

Written by ``python -m sim page doc/source/contributor/simulator --results DIR``: do not edit.
What is simulated, and what is not, is said in :doc:`/contributor/simulator`; how targets are met
is said there, too. Figures are medians over the seeds, with the lowest and the highest of the first
column of figures.

"""


def write(
    directory: pathlib.Path,
    kept: pathlib.Path,
    names: Sequence[str],
    run: Callable[[str], dict[str, Any]],
) -> None:
    """Write ``results.rst`` and its plots.

    :param kept: results by scenario; what is not there is run, and put there.
    :param run: returns the document of a scenario's results.
    """
    directory.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    parts = [_HEAD]
    for name in names or ORDER:
        path = kept / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(run(name)) + "\n")
        parts.append(_section(sweep.read_document(path), directory))
    (directory / "results.rst").write_text("".join(parts))


def _section(document: dict[str, Any], directory: pathlib.Path) -> str:
    name, title = document["scenario"], document["title"]
    lines = [f"{title}\n{'=' * len(title)}\n"]
    about = " ".join(document["about"].split())
    runs = len(document["results"])
    lines.append(f"{about}\n" if about else "")
    lines.append(f"Scenario ``{name}``; {runs} runs, {_seeds(document)} per point.\n")
    if document["plot"]:
        plots.draw(document, directory / f"{name}.svg")
        lines.append(f".. image:: {name}.svg\n   :alt: {title}\n   :width: 100%\n")
    metrics = scenario.load(name).metrics
    lines.append(tables.as_rst(tables.of_medians(document["results"], metrics)))
    if name in RATIOS:
        base, metric = RATIOS[name]
        lines.append(f"How many times faster than {base} (``{metric}``, seed by seed):\n")
        lines.append(tables.as_rst(tables.of_ratios(document["results"], metric, base)))
    if name in _SUMMARISED:
        lines.append(_worst(document))
    return "\n".join(line for line in lines if line) + "\n"


def _seeds(document: dict[str, Any]) -> int:
    return len({result["seed"] for result in document["results"]})


def _worst(document: dict[str, Any]) -> str:
    generations = [result["generations"] for result in document["results"]]
    relief = [
        one["relief_intervals"]
        for one in document["results"]
        if one["relief_intervals"] is not None
    ]
    text = f"Most generations of a run: {max(generations)}."
    if relief:
        text += f" Longest relief: {max(relief):.2f} intervals."
    return text + "\n"
