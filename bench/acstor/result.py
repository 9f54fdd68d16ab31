"""Result of a storm, as values that tables, plots and the JSON report are made of."""

import dataclasses
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.acstor.guests import GuestResult
from bench.acstor.images import CHUNK_SIZE
from bench.acstor.settings import ROOT
from testbed import processes
from testbed.exception import TestbedError

FORMAT = "acstor-evaluation-report"
FORMAT_VERSION = 1
DISCARDED = 5
"""Guests left out of the trimmed mean: the paper discards 1 to 5 that do not boot (5.4.2)."""
_GIT_TIMEOUT_S = 10.0


@dataclasses.dataclass(frozen=True)
class Generation:
    """A ring that was published during a storm."""

    number: int
    at_s: float
    """Seconds since the extra traffic began; noticed within half a second."""
    moved_share: float
    """Share of the circle that changed hands."""
    least_moved_share: float
    """Share of the circle that had to change hands for the new weights."""


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The extra traffic of a storm: what was drawn, what the interfaces counted before it."""

    mean_bytes_per_s: float
    cv: float
    measured_mean_bytes_per_s: float
    measured_cv: float
    report: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Report of the generator on itself."""


@dataclasses.dataclass(frozen=True)
class StormResult:
    """One storm of one approach."""

    approach: str
    guests: Sequence[GuestResult]
    deadline_s: float
    elapsed_s: float
    origin_sent: int
    """Bytes over the origin's link."""
    origin_chunk_bytes: int | None
    """Of them chunks, as the data planes count; None: not counted."""
    union_bytes: int | None
    """Of the distinct chunks that were read; None: not counted."""
    processor_idle: float
    """Part of the storm's time in which this machine's processors had nothing to do."""
    cv_series: Sequence[tuple[float, float]] = ()
    """(seconds since the first guest, CV of what hosts sent and received)."""
    traffic: Traffic | None = None
    counters: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Metrics summed over the data planes."""
    control: Mapping[str, Any] | None = None
    """Resources that agents and policy service took."""
    decisions: Sequence[Mapping[str, Any]] = ()
    generations: Sequence[Generation] = ()

    @property
    def booted_s(self) -> list[float]:
        """Return the boot times of the guests that booted, the quickest first."""
        return sorted(one.boot_time_s for one in self.guests if one.boot_time_s is not None)

    @property
    def booted_median_s(self) -> float | None:
        """Return the median of the guests that booted."""
        return statistics.median(self.booted_s) if self.booted_s else None

    @property
    def failed(self) -> int:
        """Return how many guests did not boot."""
        return len(self.guests) - len(self.booted_s)

    @property
    def all_s(self) -> list[float]:
        """Return all boot times, the quickest first; who did not boot took the deadline."""
        return self.booted_s + [self.deadline_s] * self.failed

    @property
    def mean_s(self) -> float:
        """Return the mean over all guests; a lower bound where one did not boot."""
        return statistics.fmean(self.all_s)

    @property
    def trimmed_mean_s(self) -> float:
        """Return the mean without the slowest, :data:`DISCARDED` of 160."""
        count = max(1, len(self.guests) - round(DISCARDED * len(self.guests) / 160))
        return statistics.fmean(self.all_s[:count])

    @property
    def median_s(self) -> float:
        """Return the median."""
        return statistics.median(self.all_s)

    @property
    def p99_s(self) -> float:
        """Return what 99 % of the guests took at most."""
        return self.all_s[min(len(self.all_s) - 1, int(0.99 * len(self.all_s)))]

    @property
    def read_bytes_per_s(self) -> float:
        """Return what all guests read a second, from the first start on."""
        return sum(one.bytes_read for one in self.guests) / max(self.elapsed_s, 1e-9)

    @property
    def throughput_bytes_per_s(self) -> float | None:
        """Return what a guest read and wrote a second, mean over those that ended."""
        rates = [one.served_bytes / one.boot_time_s for one in self.guests if one.boot_time_s]
        return statistics.fmean(rates) if rates else None

    @property
    def total_cv(self) -> float | None:
        """Return the mean CV of the hosts' traffic while guests booted."""
        values = [cv for at, cv in self.cv_series if at > 0]
        return statistics.fmean(values) if values else None

    @property
    def origin_bytes(self) -> int:
        """Return the bytes out of the origin: chunks where they are counted."""
        return self.origin_sent if self.origin_chunk_bytes is None else self.origin_chunk_bytes

    @property
    def remap_misses(self) -> float:
        """Return the chunks that a host had to get because the ring had changed."""
        metric = "acstor_remapped_chunks_total"
        return self.counter(metric, outcome="previous_owner") + self.counter(
            metric, outcome="origin"
        )

    @property
    def least_misses(self) -> float | None:
        """Return the misses that the new weights force, of the chunks that were read."""
        if not self.union_bytes:
            return None
        share = sum(generation.least_moved_share for generation in self.generations)
        return share * self.union_bytes / CHUNK_SIZE

    @property
    def relief_s(self) -> float | None:
        """Return the seconds from the begin of the traffic to the first ring that heeds it."""
        return self.generations[0].at_s if self.generations else None

    def counter(self, name: str, **labels: str) -> float:
        """Return a metric's sum over all series that have these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for series, value in self.counters.items()
            if series.partition("{")[0] == name and all(text in series for text in wanted)
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON types, with the figures of the tables."""
        return dataclasses.asdict(self) | {
            "failed": self.failed,
            "mean_s": self.mean_s,
            "trimmed_mean_s": self.trimmed_mean_s,
            "median_s": self.median_s,
            "p99_s": self.p99_s,
            "total_cv": self.total_cv,
            "read_bytes_per_s": self.read_bytes_per_s,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "StormResult":
        """Return what :meth:`as_json` returned."""
        known = {field.name for field in dataclasses.fields(cls)}
        values = {name: value for name, value in fields.items() if name in known}
        values["guests"] = [GuestResult(**one) for one in values["guests"]]
        values["generations"] = [Generation(**one) for one in values["generations"]]
        values["cv_series"] = [(at, cv) for at, cv in values["cv_series"]]
        if values["traffic"] is not None:
            values["traffic"] = Traffic(**values["traffic"])
        return cls(**values)


def build() -> dict[str, str]:
    """Return which source, and which build of the extension module, was measured."""
    from acstor import _dataplane

    try:
        revision = processes.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], timeout_s=_GIT_TIMEOUT_S
        ).strip()
    except TestbedError:
        revision = "unknown"
    content = pathlib.Path(str(_dataplane.__file__)).read_bytes()
    from acstor.native import digest

    return {"revision": revision, "extension": digest(content).hex()[:12]}
