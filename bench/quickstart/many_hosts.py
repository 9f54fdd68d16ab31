"""The storm of the quickstart: many hosts boot at once, one of them with a busy link.

Every host replays the first reads of a recorded boot, once by each approach, beside the same other
traffic. It is a storm of the evaluation (:mod:`bench.acstor`), on links that this machine's
processors can fill.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from acstor.exception import AcstorError
from bench.acstor import report
from bench.acstor.result import StormResult
from bench.acstor.settings import EvaluationSettings
from bench.quickstart.live import StormView
from testbed.approaches.names import APPROACHES
from testbed.rates import LinkRate
from testbed.run_directory import DEFAULT_ROOT

HOSTS = 16
RATE = LinkRate(100_000_000)
"""Of every link, the origin's too: the origin of a rack of hosts has not the sum of their links."""
BUSY_HOSTS = 1
BUSY_SHARE = 0.9
READS = 400
THINK_SCALE = 0.1
"""The trace is of an emulated guest, whose processor takes about ten times as long."""
INTERVAL_S = 2.0
WARM_UP_S = 8.0
DEADLINE_S = 120.0


def settings_of(
    hosts: int, rate: LinkRate, root: pathlib.Path = DEFAULT_ROOT
) -> EvaluationSettings:
    """Return the settings of the storm.

    :raises TestbedError: when there are too few hosts, or too many.
    """
    return EvaluationSettings(
        hosts=hosts,
        guests_per_host=1,
        images=1,
        rate=rate,
        reads=READS,
        think_scale=THINK_SCALE,
        busy_hosts=BUSY_HOSTS,
        busy_share=BUSY_SHARE,
        interval=INTERVAL_S,
        warm_up=WARM_UP_S,
        deadline=DEADLINE_S,
        root=root,
    )


@dataclasses.dataclass(frozen=True)
class HostTimes:
    """One host: seconds that its boot took, by approach; None where it did not end."""

    name: str
    is_busy: bool
    boot_s: Mapping[str, float | None]


@dataclasses.dataclass(frozen=True)
class StormReport:
    """Outcome of the storms of all approaches."""

    settings: EvaluationSettings
    storms: Mapping[str, StormResult]
    """By approach; those that failed are left out."""
    failures: Mapping[str, str]

    @property
    def is_complete(self) -> bool:
        """Return whether every host booted in every way."""
        return not self.failures and not any(storm.failed for storm in self.storms.values())

    def hosts(self) -> list[HostTimes]:
        """Return a line for each host."""
        by_approach = {
            name: {guest.host: guest.boot_time_s for guest in storm.guests}
            for name, storm in self.storms.items()
        }
        names = sorted({name for one in by_approach.values() for name in one}, key=_number)
        return [
            HostTimes(
                name,
                _number(name) < self.settings.busy_hosts,
                {approach: found.get(name) for approach, found in by_approach.items()},
            )
            for name in names
        ]

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "settings": report.plain(self.settings),
            "storms": [storm.as_json() for storm in self.storms.values()],
            "failures": dict(self.failures),
        }


def run(settings: EvaluationSettings, approaches: Sequence[str], view: StormView) -> StormReport:
    """Run the storm once by each approach; one that fails is told, and the next one goes on.

    :raises TestbedError: when the hosts cannot be made.
    """
    storms: dict[str, StormResult] = {}
    failures: dict[str, str] = {}
    view.step(f"making {settings.hosts} hosts with links of {settings.rate}")
    with report.StormSeries(settings) as series:
        for name in approaches:
            with view.storm(APPROACHES[name].title, settings):
                try:
                    storms[name] = series.run(settings, name, on_progress=view.watch)
                except AcstorError as error:
                    failures[name] = error.message
            view.storm_over(storms.get(name), failures.get(name))
    return StormReport(settings, storms, failures)


def _number(host: str) -> int:
    return int(host.removeprefix("h"))
