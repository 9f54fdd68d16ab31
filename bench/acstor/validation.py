"""The simulator beside the testbed: the storms of a report, simulated under the same conditions.

Same hosts, links, extra traffic (the very same flows), reads, think times, deadlines and intervals.
Placement differs, since a ring's seed is drawn when it is first published.
"""

import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from bench.acstor import images
from bench.acstor.report import Entry, Report
from bench.acstor.settings import BOOT, FIRST_READ, TRACE, EvaluationSettings
from bench.acstor.tables import grouped, median_of
from sim import run, scenario
from testbed import boot_trace
from testbed.exception import TestbedError
from testbed.rates import LinkRate
from testbed.results.tables import Rows, number

MEASURES = {"mean_s": "boot_mean_s", "median_s": "boot_median_s", "p99_s": "boot_p99_s",
            "origin_mb": "origin_mb"}  # fmt: skip
"""Columns of the testbed's tables and the simulator's names for them."""
LEFT_SHARE = 0.17
"""Share of a link that UDP fills that some chunks at a time get (``left-share``), headers
included."""
IN_ORDER = 0.9
"""Share of a link that who asked first gets, with BBR (``left-share``); 0.42 with CUBIC."""


def settings_of(report: Report, entry: Entry) -> EvaluationSettings:
    """Return the settings of a storm."""
    fields = dict(report.settings) | dict(entry.point)
    fields["rate"] = LinkRate.parse(str(fields["rate"]))
    fields["root"] = pathlib.Path(str(fields["root"]))
    return EvaluationSettings(**fields)


def scenario_fields(
    settings: EvaluationSettings,
    approach: str,
    trace: pathlib.Path,
    left_share: float = LEFT_SHARE,
    in_order: float = IN_ORDER,
) -> dict[str, Any]:
    """Return what a scenario file for a storm would hold.

    :param trace: the reads that every guest replays.
    :param left_share: of a link that is full of traffic of a fixed rate, what others get.
    :param in_order: share of a link that goes to who asked first.
    :raises TestbedError: when the guests of the storm did not boot but work.
    """
    if settings.workload != BOOT:
        raise TestbedError(
            f"{settings.workload}: only boots are simulated under a storm's conditions"
        )
    read_path: dict[str, Any] = {}
    if approach in ("static-collaborative", "acstor"):
        read_path = {name: float(value) for name, value in settings.read_path().items()}
    return {
        "version": 1,
        "title": "validation",
        "network": {
            "fanout": [settings.hosts],
            "rates": [str(settings.rate)],
            "origin": str(settings.rate),
            "in_order": in_order,
        },
        "machines": {
            "per_host": settings.guests_per_host,
            "images": settings.images,
            "traces": [str(trace)],
            "think_scale": settings.think_scale,
            "first_read": 0,  # the trace is cut already
            "stagger": settings.stagger,
            "span": settings.span,
        },
        "traffic": {
            "mean": settings.mean_bytes_per_s / 1e6,
            "cv": settings.cv,
            "udp_share": settings.udp_share,
            "flows_per_host": settings.flows_per_host,
            "left_share": left_share,
        },
        "timing": {"boot_at": settings.warm_up, "end": settings.warm_up + settings.deadline},
        "policy": {"weights": settings.weights, "weight_lambda": settings.weight_lambda},
        "readpath": read_path | {"report_interval": settings.interval, "quantum": 0.0},
        "variants": {approach: {"approach": approach}},
    }


def simulate(
    report: Report,
    entries: Sequence[Entry],
    left_share: float = LEFT_SHARE,
    in_order: float = IN_ORDER,
) -> list[Mapping[str, Any]]:
    """Return the simulator's results for storms of a report.

    :raises ScenarioError: when the simulator has no such setting.
    """
    found: list[Mapping[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="acstor-validation-") as directory:
        for entry in entries:
            settings = settings_of(report, entry)
            path = pathlib.Path(directory) / f"{settings.reads}.jsonl"
            if not path.exists():
                recorded = boot_trace.load(TRACE)
                boot_trace.save(images.cut(recorded, FIRST_READ, settings.reads), path)
            fields = scenario_fields(settings, entry.storm.approach, path, left_share, in_order)
            parsed = scenario.parse("validation", fields)
            case = next(parsed.cases())
            found.append(run.run_case(dataclasses.replace(case, seed=settings.seed + entry.turn)))
    return found


def beside(report: Report, left_share: float = LEFT_SHARE, in_order: float = IN_ORDER) -> Rows:
    """Return a table, header first: measured, simulated, and simulated over measured."""
    axes = list(report.entries[0].point) if report.entries else []
    rows = [[*axes, "approach", *(f"{name}{part}" for name in MEASURES
                                  for part in (" measured", " simulated", " ratio"))]]  # fmt: skip
    for (point, approach), entries in grouped(report.entries).items():
        simulated = simulate(report, entries, left_share, in_order)
        cells = [number(value) for _, value in point] + [approach]
        for column, name in MEASURES.items():
            measured = median_of(entries, column)
            values = [float(one[name]) for one in simulated if one[name] is not None]
            value = statistics.median(values) if values else None
            ratio = value / measured if value is not None and measured else None
            cells += [number(each) for each in (measured, value, ratio)]
        rows.append(cells)
    return rows
