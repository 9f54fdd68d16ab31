"""Measurements of a run of the demo, as values that the report and the JSON are made of.

Version and meaning of the fields: :data:`REPORT_VERSION`, ``doc/source/contributor/testbed.rst``.
"""

import dataclasses
import os
import pathlib
import platform
import statistics

from testbed.approaches.base import TierBytes
from testbed.network import LinkBytes

REPORT_FORMAT = "acstor-testbed-report"
REPORT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class GuestResult:
    """One guest."""

    guest: str
    host: str
    state: str
    boot_time_s: float | None  #: request to login prompt
    overlay_time_s: float | None  #: part of it that making the overlay took
    failure: str | None = None


@dataclasses.dataclass(frozen=True)
class Sample:
    """Counters at one moment of the boots."""

    time_s: float  #: since the request
    origin_sent: int  #: bytes over the origin's link since the request
    peers_sent: int  #: bytes over all hosts' links, without what went to the origin
    at_login: int  #: guests that show their login prompt


@dataclasses.dataclass(frozen=True)
class ApproachResult:
    """One approach."""

    name: str
    title: str
    explanation: str
    guests: list[GuestResult]
    tiers: dict[str, TierBytes]  #: by host
    links: dict[str, LinkBytes]  #: by member, from the request to the last login prompt
    samples: list[Sample]
    failure: str | None = None
    #: Bytes of chunks that left the origin, as the data planes count them; None: not counted.
    origin_chunk_bytes: int | None = None
    #: Bytes of the distinct chunks that the guests read; None: not counted.
    union_bytes: int | None = None
    #: The same of what reached the data planes: the hosts' kernels read ahead. None: not counted.
    read_ahead_union_bytes: int | None = None
    #: Bytes that the guests read, all reads counted; None: not counted.
    guest_read_bytes: int | None = None

    @property
    def boot_times_s(self) -> list[float]:
        """Return the boot times of the guests that booted."""
        return [guest.boot_time_s for guest in self.guests if guest.boot_time_s is not None]

    @property
    def boot_time_median_s(self) -> float | None:
        """Return the median boot time."""
        return statistics.median(self.boot_times_s) if self.boot_times_s else None

    @property
    def is_complete(self) -> bool:
        """Return whether every guest booted and read what the image holds."""
        return (
            self.failure is None
            and bool(self.guests)
            and not any(guest.failure for guest in self.guests)
        )

    @property
    def tier_total(self) -> TierBytes:
        """Return the sum over all hosts."""
        return sum(self.tiers.values(), TierBytes())

    @property
    def origin_ratio(self) -> float | None:
        """Return the bytes out of the origin over those of the distinct chunks that were read.

        Chunks where they are counted, else what the origin's link carried.
        """
        if not self.union_bytes:
            return None
        out = self.origin_sent if self.origin_chunk_bytes is None else self.origin_chunk_bytes
        return out / self.union_bytes

    @property
    def origin_sent(self) -> int:
        """Return the bytes that left the origin over its link."""
        return self.links["origin"].sent if "origin" in self.links else 0


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Under what the figures were taken."""

    host_count: int
    guests_per_host: int
    origin_rate: str
    host_rate: str
    accelerator: str
    guest_memory_mib: int
    disk_size_bytes: int
    machine: dict[str, str | int | float]


@dataclasses.dataclass(frozen=True)
class DemoResult:
    """Measurements of one run of the demo."""

    conditions: Conditions
    approaches: list[ApproachResult]
    preparation: dict[str, float]  #: seconds, by what was done
    format: str = REPORT_FORMAT
    version: int = REPORT_VERSION

    @property
    def is_complete(self) -> bool:
        """Return whether every guest of every approach booted."""
        return all(approach.is_complete for approach in self.approaches)

    def as_json(self) -> dict[str, object]:
        """Return the value of the JSON document."""
        document = dataclasses.asdict(self)
        for result, value in zip(self.approaches, document["approaches"], strict=True):
            value["boot_time_median_s"] = result.boot_time_median_s
            value["origin_sent"] = result.origin_sent
            value["origin_ratio"] = result.origin_ratio
        return document


def machine() -> dict[str, str | int | float]:
    """Return what the machine is, and how busy it was."""
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cpu_count": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
    }
