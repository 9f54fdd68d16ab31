"""Boot guests on all hosts at once and watch them until each shows its login prompt."""

import dataclasses
import os
import time
from collections.abc import Callable

from testbed import guest_reads
from testbed.accelerator import Accelerator
from testbed.approaches.base import Approach
from testbed.guest import machine
from testbed.guest.machine import GuestMachine, GuestRequest, GuestState
from testbed.measurement import ApproachResult, GuestResult, Sample
from testbed.network import LinkBytes

POLL_INTERVAL_S = 0.02
SAMPLE_INTERVAL_S = 0.5
#: Longest wait: one guest alone takes some 20 s under TCG, and they share the processors.
BOOT_TIMEOUT_S = 180.0
BOOT_TIMEOUT_PER_GUEST_S = 60.0


@dataclasses.dataclass(frozen=True)
class StormSettings:
    """Settings of the guests' boots."""

    accelerator: Accelerator
    guests_per_host: int = 1
    check_content: bool = False
    memory_mib: int = machine.MEMORY_MIB


@dataclasses.dataclass
class Storm:
    """Guests that boot at the same time, and what is seen of them."""

    guests: list[GuestMachine]
    hosts: list[str]
    links_before: dict[str, LinkBytes]
    started_at: float
    samples: list[Sample] = dataclasses.field(default_factory=list)
    links: dict[str, LinkBytes] = dataclasses.field(default_factory=dict)

    @property
    def at_login(self) -> int:
        """Return the number of guests that show their login prompt."""
        return sum(guest.state in (GuestState.LOGIN, GuestState.CHECKED) for guest in self.guests)

    def read_union_bytes(self) -> int:
        """Return the bytes of the distinct chunks that the guests read."""
        logs = [guest.read_log for guest in self.guests]
        return guest_reads.union_bytes(logs, self.guests[0].request.image.disk)

    def read_bytes(self) -> int:
        """Return the bytes that the guests read, each read of each guest counted."""
        return sum(
            length for guest in self.guests for _, length in guest_reads.reads(guest.read_log)
        )

    def results(self) -> list[GuestResult]:
        """Return what the report says about each guest."""
        return [
            GuestResult(
                guest=guest.request.name,
                host=host,
                state=guest.state.value,
                boot_time_s=guest.boot_time_s,
                overlay_time_s=guest.overlay_time_s,
                failure=guest.failure,
            )
            for guest, host in zip(self.guests, self.hosts, strict=True)
        ]


def run_storm(approach: Approach, settings: StormSettings, watch: Callable[[Storm], None]) -> Storm:
    """Boot the guests and return when all are settled; they are stopped in any case.

    :param watch: called at every sample and at the end.
    """
    testbed = approach.testbed
    storm = Storm([], [], testbed.network.counters(), time.monotonic())
    try:
        for index in range(settings.guests_per_host):
            for host in testbed.hosts:
                name = host.name if settings.guests_per_host == 1 else f"{host.name}-{index}"
                request = GuestRequest(
                    name=name,
                    image=approach.image,
                    disk=approach.disk(host),
                    accelerator=settings.accelerator,
                    namespace=host,
                    directory=testbed.run.directory(approach.name, "guests", name),
                    check_content=settings.check_content,
                    memory_mib=settings.memory_mib,
                )
                storm.guests.append(GuestMachine(request, testbed.table))
                storm.hosts.append(host.name)
        _watch_until_settled(approach, storm, watch)
    finally:
        for guest in storm.guests:
            guest.stop()
    return storm


def _watch_until_settled(approach: Approach, storm: Storm, watch: Callable[[Storm], None]) -> None:
    rounds = len(storm.guests) / (os.cpu_count() or 1)
    deadline = storm.started_at + BOOT_TIMEOUT_S + BOOT_TIMEOUT_PER_GUEST_S * rounds
    next_sample = storm.started_at
    while True:
        for guest in storm.guests:
            guest.poll()
        now = time.monotonic()
        is_over = all(guest.is_settled for guest in storm.guests)
        if now >= next_sample or is_over:
            next_sample = now + SAMPLE_INTERVAL_S
            _sample(approach, storm, now)
            watch(storm)
        if is_over:
            return
        if now > deadline:
            for guest in storm.guests:
                guest.give_up(f"no login prompt within {now - storm.started_at:.0f} s")
            return
        time.sleep(POLL_INTERVAL_S)


def _sample(approach: Approach, storm: Storm, now: float) -> None:
    counters = approach.testbed.network.counters()
    storm.links = {name: counters[name] - storm.links_before[name] for name in counters}
    origin = storm.links["origin"]
    hosts_sent = sum(link.sent for name, link in storm.links.items() if name != "origin")
    storm.samples.append(
        Sample(
            time_s=now - storm.started_at,
            origin_sent=origin.sent,
            peers_sent=max(0, hosts_sent - origin.received),
            at_login=storm.at_login,
        )
    )


def result(approach: Approach, storm: Storm | None, failure: str | None = None) -> ApproachResult:
    """Return what the report says about an approach; call it when its servers have ended.

    :param storm: None: the approach did not even start.
    """
    return ApproachResult(
        name=approach.name,
        title=approach.title,
        explanation=approach.explanation,
        guests=[] if storm is None else storm.results(),
        tiers={} if storm is None else approach.tiers(),
        links={} if storm is None else storm.links,
        samples=[] if storm is None else storm.samples,
        failure=failure,
        origin_chunk_bytes=approach.origin_chunk_bytes,
        read_ahead_union_bytes=approach.union_bytes,
        union_bytes=None if storm is None else storm.read_union_bytes(),
        guest_read_bytes=None if storm is None else storm.read_bytes(),
    )
