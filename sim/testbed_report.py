"""Measurements of the testbed, to be set beside simulated ones.

Reads two documents of ``testbed``: the report of the demo (``acstor-testbed-report``: boot
times of real guests by approach) and the report of a replay (``acstor-replay-report``: a trace
replayed on every host). The conditions that a scenario must share are the number of hosts, the
rates of the links, the trace and the scale of its think times.
"""

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.exception import ScenarioError
from testbed.results.tables import Rows, number

DEMO, REPLAY = "acstor-testbed-report", "acstor-replay-report"


@dataclass(frozen=True)
class Measured:
    """One approach on the testbed."""

    approach: str
    boot_times_s: Sequence[float]
    origin_bytes: float | None
    """Chunk bytes that left the origin."""

    @property
    def mean_s(self) -> float:
        """Return the mean boot time."""
        return statistics.fmean(self.boot_times_s)


def read(path: pathlib.Path) -> list[Measured]:
    """Return what a report of the testbed holds.

    :raises ScenarioError: when it is none, or holds no boot that ended.
    """
    try:
        document = json.loads(path.read_text())
        kind = document["format"]
        if kind == DEMO:
            found = [_of_demo(approach) for approach in document["approaches"]]
        elif kind == REPLAY:
            found = [_of_replay(document)]
        else:
            raise ScenarioError(f"{path}: {kind!r} is no report of the testbed")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScenarioError(f"{path} is no report of the testbed: {error!r:.100}") from error
    found = [one for one in found if one.boot_times_s]
    if not found:
        raise ScenarioError(f"{path}: no machine booted")
    return found


def _of_demo(approach: Mapping[str, Any]) -> Measured:
    times = [guest["boot_time_s"] for guest in approach["guests"]]
    return Measured(
        str(approach["name"]),
        [float(time) for time in times if time is not None],
        approach.get("origin_chunk_bytes"),
    )


def _of_replay(document: Mapping[str, Any]) -> Measured:
    times = [float(host["elapsed_s"]) for host in document["hosts"].values()]
    return Measured(str(document["approach"]), times, float(document["origin_chunk_bytes"]))


def beside(results: Sequence[Mapping[str, Any]], measured: Sequence[Measured]) -> Rows:
    """Return a table, header first: simulated and measured boot times, and their ratio."""
    rows = [["variant", "simulated (s)", "measured (s)", "simulated / measured",
             "origin simulated (MB)", "origin measured (MB)"]]  # fmt: skip
    for one in measured:
        same = [
            result
            for result in results
            if result["approach"] == one.approach and result["boot_mean_s"] is not None
        ]
        if not same:
            continue
        simulated = statistics.median(float(result["boot_mean_s"]) for result in same)
        origin = statistics.median(float(result["origin_mb"]) for result in same)
        rows.append(
            [one.approach, number(simulated), number(one.mean_s), number(simulated / one.mean_s),
             number(origin), number(None if one.origin_bytes is None else one.origin_bytes / 1e6)]
        )  # fmt: skip
    return rows
