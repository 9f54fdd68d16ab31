"""Results of record: what the page of results shows of a scenario, without the runs themselves."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim import sweep
from sim.exception import ScenarioError
from sim.tables import ceiling_columns
from testbed.results.curves import curve_of
from testbed.results.labels import label_of
from testbed.results.record import Curve, Curves, Lines, Panel, Record, Table
from testbed.results.tables import number, rounded

MEDIANS, RATIOS = "medians", "ratios"
"""Names of a record's tables."""
RATIO_BASES = {
    "figure-6": "static-collaborative",
    "figure-8": "static-collaborative",
    "figure-11": "static-collaborative",
    "best-case": "static-collaborative",
    "left-share": "static-collaborative",
    "tcp": "static-collaborative",
    "figure-7": "static-collaborative",
    "known-image": "static-collaborative",
    "new-image": "static-collaborative",
    "rack-partners": "static-collaborative",
    "never-slower": "local-cache",
    "never-slower-warm": "local-cache",
    "wrong-profile": "none",
    "grid": "local-cache",
}
"""Scenarios whose boot times are also shown as ratios, and to those of which variant."""
_RATIO_METRIC = "boot_mean_s"
_SUMMARISED = ("oscillation", "onset")
_Y_DEFAULT = "boot_mean_s"


def of_document(document: Mapping[str, Any], source: str) -> Record:
    """Return the record of a document of results.

    :param source: where they are from.
    :raises ScenarioError: when the plot's metric is not in the table.
    """
    name, results = document["scenario"], document["results"]
    metrics = document["metrics"]
    tables = {MEDIANS: _medians(results, metrics)}
    if name in RATIO_BASES:
        base = RATIO_BASES[name]
        caption = f"How many times faster than {base} (``{_RATIO_METRIC}``, seed by seed):"
        tables[RATIOS] = _ratios(results, base, caption)
    return Record(
        title=document["title"],
        source=source,
        tables=tables,
        about=" ".join(document["about"].split()),
        conditions={
            "scenario": name,
            "runs": len(results),
            "per_point": len({result["seed"] for result in results}),
        },
        notes=[_worst(results)] if name in _SUMMARISED else [],
        plot=_plot(document, tables[MEDIANS]) if document["plot"] else None,
    )


def _medians(results: Sequence[dict[str, Any]], metrics: Sequence[str]) -> Table:
    """Return medians over the seeds, and the spread of the first metric."""
    found, first = sweep.medians(results, metrics), metrics[0]
    axes = list(found[0]["axes"]) if found else []
    rows = [
        [rounded(row["axes"][name]) for name in axes]
        + [row["variant"]]
        + [rounded(row[metric]) for metric in (*metrics, f"{first}_low", f"{first}_high")]
        for row in found
    ]
    return Table([*axes, "variant", *metrics, "lowest", "highest"], rows)


def _ratios(results: Sequence[dict[str, Any]], base: str, caption: str) -> Table:
    found = sweep.ratios(results, _RATIO_METRIC, base)
    axes = list(found[0]["axes"]) if found else []
    ceiling = ceiling_columns(found)
    rows = [
        [rounded(row["axes"][name]) for name in axes]
        + [row["variant"], *(rounded(row[name]) for name in ("ratio", "low", "high", *ceiling))]
        + [row["runs"]]
        for row in found
    ]
    names = [f"{base} / variant", "lowest", "highest", *ceiling]
    return Table([*axes, "variant", *names, "runs"], rows, caption=caption)


def _plot(document: Mapping[str, Any], medians: Table) -> Lines | Curves:
    plot = document["plot"]
    if plot.get("kind") == "series":
        return _series(document)
    if "x" not in plot:
        raise ScenarioError(f"{document['scenario']} has no [plot]")
    y, facet = plot.get("y", _Y_DEFAULT), plot.get("facet", "")
    metrics = document["metrics"]
    if y not in metrics:
        raise ScenarioError(f"{document['scenario']}: plots {y}, which is none of its metrics")
    axes = medians.columns[: medians.columns.index("variant")]
    is_first = y == metrics[0]
    return Lines(
        table=MEDIANS,
        x=plot["x"],
        y=y,
        line=["variant", *(axis for axis in axes if axis not in (plot["x"], facet))],
        facet=facet,
        low="lowest" if is_first else "",
        high="highest" if is_first else "",
        is_log=bool(plot.get("log")),
    )


def _series(document: Mapping[str, Any]) -> Curves:
    """Return the CV of the hosts' traffic over time, of the first seed."""
    plot = document["plot"]
    facet, y = plot.get("facet"), plot.get("y", _Y_DEFAULT)
    panels: dict[str, dict[str, Curve]] = {}
    for result in document["results"]:
        if result["seed"] != 1:
            continue
        title = f"{label_of(facet)}: {number(result['axes'][facet])}" if facet else ""
        panels.setdefault(title, {})[result["variant"]] = curve_of(result["cv_series"])
    return Curves("second", label_of(y), [Panel(*panel) for panel in panels.items()])


def _worst(results: Sequence[dict[str, Any]]) -> str:
    generations = [result["generations"] for result in results]
    relief = [one["relief_intervals"] for one in results if one["relief_intervals"] is not None]
    text = f"Most generations of a run: {max(generations)}."
    if relief:
        text += f" Longest relief: {max(relief):.2f} intervals."
    return text
