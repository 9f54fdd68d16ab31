"""Samples for the tests of the Ceilometer feed."""

from collections.abc import Sequence
from typing import Any

from acstor.policy.feeds.ceilometer.samples import HOST_IN, HOST_OUT, INSTANCE_IN, MeterSample

BOOT = 1_000_000.0
"""POSIX time at which the monotonic clock of hosts is 0."""


class Clock:
    """POSIX seconds that only the test moves."""

    def __init__(self, now: float = BOOT) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def host_samples(
    read_at: float,
    counters: Sequence[tuple[int, int]],
    moved: tuple[float, float] | None = None,
    /,
    **changes: Any,
) -> list[MeterSample]:
    """Return the samples of one reading.

    :param counters: bytes received and sent, by interface.
    :param moved: None: the agent is not asked.
    :param changes: of the metadata, or ``at``.
    """
    found = []
    for index, pair in enumerate(counters, 2):
        for direction, meter in enumerate((HOST_IN, HOST_OUT)):
            metadata = {
                "host": "h1", "interface": f"eth{index}", "index": index,
                "interfaces": len(counters), "link_bytes_per_s": 125e6, "read_at": read_at,
                "boot_id": "first",
            }  # fmt: skip
            if moved is not None:
                metadata["moved_bytes"] = moved[direction]
            metadata |= {name: value for name, value in changes.items() if name != "at"}
            at = changes.get("at", BOOT + read_at)
            found.append(
                MeterSample(meter, pair[direction], f"h1.eth{index}", at, read_at, "", metadata)
            )
    return found


def instance_sample(
    at: float,
    volume: float,
    *,
    meter: str = INSTANCE_IN,
    nic: str = "tap0",
    instance: str = "i1",
    host: str = "h1",
    steady: float | None = None,
) -> MeterSample:
    """Return a sample of an instance's interface."""
    metadata = {
        "instance_host": host,
        "instance_id": instance,
        "display_name": f"name of {instance}",
    }
    return MeterSample(meter, volume, f"{instance}-{nic}", BOOT + at, steady, "project", metadata)
