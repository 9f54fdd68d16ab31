"""Extra traffic of hosts, from the samples of their network interfaces that Ceilometer polled.

A host's pollsters read all of its interfaces at once and make two samples of each, which come one
by one, in any order, again, or not at all. They are put together, and from what is whole the same
meter as the agent's (:class:`acstor.telemetry.traffic.TrafficMeter`) computes rates: the two feeds
can differ only by when the counters were read.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from acstor.policy.feeds.ceilometer.lag import LagWatch
from acstor.policy.feeds.ceilometer.samples import MeterSample, number_of, text_of
from acstor.policy.load_samples import CEILOMETER, HOSTS_MAX, Sample
from acstor.telemetry.traffic import InterfaceCounters, MovedBytes, TrafficMeter

GAP_MAX = 900.0
"""Seconds between two readings beyond which their mean says nothing of now."""
INTERFACES_MAX = 64
_HOST = re.compile(r"[a-z0-9][a-z0-9_.-]{0,254}")


@dataclass
class _Counters:
    name: str
    link: float | None
    received: float | None = None
    sent: float | None = None


@dataclass
class _Pending:
    """A reading of which some samples have come."""

    boot: str
    read_at: float
    interfaces: int
    counters: dict[int, _Counters] = field(default_factory=dict)
    moved_in: float | None = None
    moved_out: float | None = None
    is_moved_asked: bool = False

    @property
    def is_whole(self) -> bool:
        return len(self.counters) == self.interfaces and all(
            each.received is not None and each.sent is not None for each in self.counters.values()
        )


@dataclass
class _Host:
    boot: str
    meter: TrafficMeter = field(default_factory=TrafficMeter)
    read_at: float = float("-inf")
    """The newest whole reading."""
    sampled_at: float | None = None
    """The newest that rates were computed from."""
    pending: _Pending | None = None


class HostReadings:
    """Puts the samples of hosts' interfaces together. Not thread-safe.

    :param clock: POSIX seconds.
    :param steady_clock: monotonic seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lags = LagWatch(clock, steady_clock)
        self._hosts: dict[str, _Host] = {}
        self._wholes = 0

    def note(self, sample: MeterSample) -> Sample | str:
        """Note a sample; return what a reading says that it made whole, or what became of it.

        ``part``: of a reading that is not whole yet; ``first``: there is nothing to compare it
        with; ``late``, ``future`` (by its time stamp), ``old`` (it came before), ``full``;
        ``malformed``; ``incomplete``: a reading that never became whole was dropped;
        ``moved-unknown``: the data plane's share is not known.
        """
        metadata = sample.metadata
        name, boot = text_of(metadata, "host"), text_of(metadata, "boot_id")
        read_at, index = number_of(metadata, "read_at"), number_of(metadata, "index")
        count = number_of(metadata, "interfaces")
        if _HOST.fullmatch(name) is None or read_at is None or index is None or count is None:
            return "malformed"
        if not 1 <= count <= INTERFACES_MAX:
            return "malformed"
        problem = self._lags.problem(name, sample.at)
        if problem is not None:
            return problem
        host = self._hosts.get(name)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                return "full"
            host = self._hosts[name] = _Host(boot)
        if boot != host.boot:  # it was started again: its monotonic clock began anew
            host = self._hosts[name] = _Host(boot)
        if read_at <= host.read_at:
            return "old"
        return self._note_part(name, host, sample, _Pending(boot, read_at, int(count)), int(index))

    def _note_part(
        self, name: str, host: _Host, sample: MeterSample, begun: _Pending, index: int
    ) -> Sample | str:
        outcome = "part"
        if host.pending is None or begun.read_at > host.pending.read_at:
            if host.pending is not None:
                outcome = "incomplete"
            host.pending = begun
        elif begun.read_at < host.pending.read_at:
            return "old"
        pending, metadata = host.pending, sample.metadata
        if index not in pending.counters and len(pending.counters) >= pending.interfaces:
            return "malformed"
        counters = pending.counters.setdefault(
            index,
            _Counters(text_of(metadata, "interface"), number_of(metadata, "link_bytes_per_s")),
        )
        pending.is_moved_asked |= "moved_bytes" in metadata
        if sample.is_incoming:
            counters.received, pending.moved_in = sample.volume, number_of(metadata, "moved_bytes")
        else:
            counters.sent, pending.moved_out = sample.volume, number_of(metadata, "moved_bytes")
        return self._note_whole(name, host, pending) if pending.is_whole else outcome

    def _note_whole(self, name: str, host: _Host, pending: _Pending) -> Sample | str:
        host.pending, host.read_at = None, pending.read_at
        moved: MovedBytes | None = None
        if pending.moved_in is not None and pending.moved_out is not None:
            moved = MovedBytes(pending.moved_in, pending.moved_out)
        elif pending.is_moved_asked:
            return "moved-unknown"  # what ACStor moves is not to be taken for extra traffic
        is_first = host.sampled_at is None or pending.read_at - host.sampled_at > GAP_MAX
        if is_first:
            host.meter = TrafficMeter()
        host.sampled_at = pending.read_at
        found = host.meter.sample(
            pending.read_at,
            [
                InterfaceCounters(
                    each.name, index, int(each.received or 0), int(each.sent or 0), each.link
                )
                for index, each in pending.counters.items()
            ],
            moved,
        )
        if is_first:
            return "first"
        self._wholes += 1
        return Sample(
            name,
            CEILOMETER,
            self._clock(),
            found.extra_in,
            found.extra_out,
            found.moved_in,
            found.moved_out,
            found.link_bytes_per_s,
            sequence=self._wholes,  # readings are in order here, whatever the clocks say
        )
