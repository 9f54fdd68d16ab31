"""Golden runs of the simulator: every scenario in small, with its full results as JSON.

``python -m tests.unit.sim.golden_runs [NAME ...]`` writes the files anew, after a change that is
meant to change results; the commit says why they differ.
"""

import json
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from sim import scenario
from sim.run import run_case
from sim.scenario import Case

DIRECTORY = pathlib.Path(__file__).resolve().parent / "golden"
_WALL_TIMES = ("elapsed_s", "decide_s")
"""Results that are of the machine that ran it."""
_SERIES_STEP = 10
"""Of ``cv_series`` every so many entries are kept."""

_STAR = {"network.fanout": [8]}
_TREE = {"network.fanout": [2, 2, 4]}
_LOADED = {"traffic.mean": 100, "traffic.cv": 1.0}
_UNEVEN = {"traffic.mean": 70, "traffic.cv": 1.2}
_BUSY = {"machines.per_host": 3, "machines.images": 2}
_SHORT = {**_STAR, **_BUSY, "timing.boot_at": 25.0}
_MIX = {**_STAR, **_UNEVEN, "timing.boot_at": 25.0, "timing.end": 29.0}
_THOUSANDS = {
    "network.fanout": [2, 3, 4], "network.rates": ["2gbit", "2gbit", "1gbit"],
    "network.origin": "2gbit", "timing.boot_at": 25.0,
}  # fmt: skip

POINTS: Mapping[str, list[Mapping[str, Any]]] = {
    "best-case": [{**_SHORT, **_UNEVEN}],
    "figure-10": [{**_SHORT, "traffic.cv": 0.8}],
    "figure-11": [{**_TREE, "traffic.cv": 1.2, "traffic.mean": 40.0, "timing.boot_at": 25.0}],
    "figure-6": [{**_SHORT, "traffic.mean": 40, "traffic.cv": 0.0}, {**_SHORT, **_LOADED}],
    "figure-7": [{**_SHORT, "traffic.mean": 60, "traffic.cv": 0.4}],
    "figure-8": [{**_SHORT, "machines.per_host": 6, "traffic.cv": 1.2}],
    "figure-9-video-server": [_MIX],
    "figure-9-web-proxy": [_MIX],
    "figure-9-web-server": [_MIX],
    "grid": [{**_SHORT, **_LOADED, "machines.per_host": 1}],
    "half-leaves": [{**_SHORT, **_UNEVEN, "faults.leave_at": 27.0}],
    "hosts-1000": [_THOUSANDS],
    "hosts-10000": [{**_THOUSANDS, "network.origin": "4gbit"}],
    "in-order": [{**_SHORT, "traffic.cv": 0.8, "network.in_order": 0.42, "machines.per_host": 1}],
    "left-share": [{**_SHORT, "traffic.cv": 1.2, "traffic.left_share": 0.02}],
    "liars": [{**_SHORT, **_UNEVEN, "faults.lie": 6.25e9}],
    "onset": [{**_STAR, **_LOADED}],
    "oscillation": [{**_STAR, **_LOADED, "timing.end": 120.0}],
    "policies": [{**_SHORT, **_UNEVEN}],
    "read-path": [{**_SHORT, **_LOADED}, {**_SHORT, "traffic.mean": 40, "traffic.cv": 0.0}],
    "square-wave": [{**_STAR, "traffic.period": 60.0, "timing.end": 180.0}],
    "table-1": [{**_SHORT, "policy.weight_lambda": 1.67}],
    "tcp": [{**_SHORT, **_LOADED, "traffic.udp_share": 0.5}],
    "testbed-32": [{**_STAR, "network.origin": "200mbit"}],
    "known-image": [{**_SHORT, **_UNEVEN}],
    "new-image": [{**_SHORT, **_UNEVEN, "traffic.left_share": "measured"}],
    "never-slower": [
        {**_SHORT, **_LOADED, "network.origin": "4gbit", "traffic.asymmetry": 0.8},
    ],
    "never-slower-warm": [{**_SHORT, **_LOADED, "machines.per_host": 1}],
    "rack-partners": [
        {**_TREE, "traffic.rack_share": 0.8, "traffic.cv": 1.2, "traffic.mean": 40.0,
         "timing.boot_at": 25.0},
    ],
    "wrong-profile": [{**_SHORT, **_UNEVEN}],
    "processors": [{**_SHORT, **_UNEVEN, "network.cpu": 30.0}],
    "bounded": [{**_SHORT, **_UNEVEN, "machines.capacity_chunks": 96, "machines.warm": True}],
    "deadlines": [
        {**_SHORT, **_LOADED, "readpath.peer_deadline": 0.05, "readpath.origin_deadline": 0.1},
    ],
}  # fmt: skip
"""By scenario: settings in place of its own, axes included. Three are none that come with the
simulator: full stores, sources that are given up, and slow processors, by each approach."""
_BASE = {"bounded": "figure-6", "deadlines": "figure-6", "processors": "figure-6"}


def cases(name: str) -> Iterator[Case]:
    """Yield the small cases of a scenario: its variants at each point, with the first seed."""
    loaded = scenario.load(_BASE.get(name, name))
    for point in POINTS[name]:
        axes = {path: values[:1] for path, values in loaded.axes.items()}
        axes |= {path: [value] for path, value in point.items()}
        yield from loaded.only(axes, None, 1).cases()


def outcome(case: Case) -> dict[str, Any]:
    """Return what a case's results are compared by."""
    found: dict[str, Any] = json.loads(json.dumps(run_case(case)))
    for name in _WALL_TIMES:
        found.pop(name, None)
    found["cv_series"] = found["cv_series"][::_SERIES_STEP]
    return found


def _write(name: str) -> None:
    lines = ",\n".join(json.dumps(outcome(case)) for case in cases(name))
    (DIRECTORY / f"{name}.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or POINTS:
        _write(chosen)
