"""Results as tables: on a terminal, as JSON rows, in reStructuredText."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.acstor.figures import Figure
from bench.acstor.report import Entry, Report
from bench.acstor.result import StormResult
from testbed.results.tables import Rows, number

COLUMNS: Mapping[str, Callable[[StormResult], float | None]] = {
    "mean_s": lambda storm: storm.mean_s,
    "trimmed_mean_s": lambda storm: storm.trimmed_mean_s,
    "median_s": lambda storm: storm.median_s,
    "p99_s": lambda storm: storm.p99_s,
    "failed": lambda storm: storm.failed,
    "origin_mb": lambda storm: storm.origin_bytes / 1e6,
    "generations": lambda storm: len(storm.generations),
    "idle": lambda storm: storm.processor_idle,
    "total_cv": lambda storm: storm.total_cv,
    "remap_misses": lambda storm: storm.remap_misses,
    "least_misses": lambda storm: storm.least_misses,
    "misses_ratio": lambda storm: (
        storm.remap_misses / storm.least_misses if storm.least_misses else None
    ),
    "remap_origin_mb": lambda storm: (
        storm.counter("acstor_remapped_bytes_total", outcome="origin") / 1e6
    ),
    "moved_share": lambda storm: sum(one.moved_share for one in storm.generations),
    "relief_s": lambda storm: storm.relief_s,
    "throughput_mb_s": lambda storm: (
        None if storm.throughput_bytes_per_s is None else storm.throughput_bytes_per_s / 1e6
    ),
    "read_mb_per_s": lambda storm: storm.read_bytes_per_s / 1e6,
}
"""Figures of a storm by the name of their column."""
BASE = "static-collaborative"


def of_report(report: Report, figure: Figure) -> Rows:
    """Return a table, header first: medians over the turns."""
    rows = [[*figure.axes, "approach", *figure.columns, "turns", "build"]]
    for (point, approach), entries in grouped(report.entries).items():
        cells = [number(value) for _, value in point]
        cells.append(approach)
        cells += [number(median_of(entries, column)) for column in figure.columns]
        builds = {entry.build["revision"] for entry in entries}
        rows.append([*cells, str(len(entries)), ", ".join(sorted(builds))])
    return rows


def of_ratios(report: Report, figure: Figure) -> Rows:
    """Return how many times faster each approach is than static collaborative, by three means.

    Each turn's ratio is of the same traffic and the same guests; the table has their medians.
    """
    measures = [name for name in ("mean_s", "trimmed_mean_s", "median_s") if name in figure.columns]
    rows = [[*figure.axes, "approach", *measures]]
    if not measures:
        return rows
    entries = {entry.key: entry for entry in report.entries}
    for (point, approach), found in grouped(report.entries).items():
        if approach == BASE:
            continue
        cells = [number(value) for _, value in point] + [approach]
        for name in measures:
            ratios = []
            for entry in found:
                base = entries.get((*sorted(entry.point.items()), entry.turn, BASE))
                if base is not None:
                    value, own = COLUMNS[name](base.storm), COLUMNS[name](entry.storm)
                    ratios.append((value or 0.0) / (own or 1.0))
            cells.append(number(statistics.median(ratios) if ratios else None))
        rows.append(cells)
    return rows


def grouped(
    entries: Sequence[Entry],
) -> dict[tuple[tuple[tuple[str, Any], ...], str], list[Entry]]:
    """Return the entries by point and approach, in the order in which they were run."""
    groups: dict[tuple[tuple[tuple[str, Any], ...], str], list[Entry]] = {}
    for entry in entries:
        key = (tuple(entry.point.items()), entry.storm.approach)
        groups.setdefault(key, []).append(entry)
    return groups


def median_of(entries: Sequence[Entry], column: str) -> float | None:
    """Return the median of a column over the turns; None where none has a value."""
    values = [value for entry in entries if (value := COLUMNS[column](entry.storm)) is not None]
    return statistics.median(values) if values else None


def as_objects(rows: Rows) -> list[dict[str, str]]:
    """Return a table as JSON objects, one per row."""
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
