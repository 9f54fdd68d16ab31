"""Results of record of the evaluation: what its page shows of a report, without the storms."""

from collections.abc import Mapping

from bench.acstor import tables
from bench.acstor.figures import Figure
from bench.acstor.report import Entry, Report
from testbed.results.curves import curve_of
from testbed.results.labels import label_of
from testbed.results.record import Curve, Curves, Lines, Panel, Record, Table
from testbed.results.tables import number, rounded

STORMS = "storms"
"""Name of a record's table."""
_HEADINGS: Mapping[str, str] = {
    "cv": "CV",
    "mean": "MB/s",
    "guests_per_host": "guests per host",
    "weight_lambda": "lambda",
    "mean_s": "mean",
    "trimmed_mean_s": "without 5",
    "median_s": "median",
    "p99_s": "99 %",
    "origin_mb": "origin MB",
    "total_cv": "CV of all traffic",
    "throughput_mb_s": "throughput MB/s",
    "moved_share": "moved share",
    "remap_misses": "misses",
    "least_misses": "forced by the weights",
    "misses_ratio": "ratio",
    "remap_origin_mb": "read from the origin, MB",
    "relief_s": "relief, s",
}


def of_report(report: Report, figure: Figure) -> Record:
    """Return the record of a report: medians over the turns, and the figure's plot."""
    columns = [*figure.axes, "approach", *figure.columns, "turns"]
    rows = [
        [rounded(value) for _, value in point]
        + [approach]
        + [rounded(tables.median_of(entries, column)) for column in figure.columns]
        + [len(entries)]
        for (point, approach), entries in tables.grouped(report.entries).items()
    ]
    builds = sorted({entry.build["revision"] for entry in report.entries})
    return Record(
        title=report.title,
        source=f"python -m bench.acstor {figure.name}; build {', '.join(builds)}",
        tables={STORMS: Table(columns, rows, [_HEADINGS.get(name, name) for name in columns])},
        conditions={name: value for name, value in report.settings.items() if name != "root"},
        plot=_series(report, figure) if figure.is_series else _lines(figure),
    )


def _lines(figure: Figure) -> Lines:
    facet = figure.facet or ""
    others = [axis for axis in figure.axes if axis not in (figure.x, facet)]
    return Lines(STORMS, figure.x, figure.y, ["approach", *others], facet)


def _series(report: Report, figure: Figure) -> Curves:
    """Return the CV of the hosts' traffic over time, of the first turn."""
    panels: dict[str, dict[str, Curve]] = {}
    for entry in report.entries:
        if entry.turn == 0:
            lines = panels.setdefault(_title(entry, figure), {})
            lines[entry.storm.approach] = curve_of(entry.storm.cv_series)
    y_label = label_of(figure.y)
    found = [Panel(title, lines) for title, lines in panels.items()]
    return Curves("s since the first guest", y_label, found)


def _title(entry: Entry, figure: Figure) -> str:
    if figure.facet is None:
        return ""
    return f"{label_of(figure.facet)}: {number(entry.point[figure.facet])}"
