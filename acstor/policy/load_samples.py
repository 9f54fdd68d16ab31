"""The newest samples of all hosts, from whatever feed: what collections are made of.

Thread-safe. Feeds note samples as they come; late, doubled, absurd ones are dropped or clamped, and
counted. Hosts' clocks are not trusted: an order is kept by sequence numbers where a feed has them,
and a time stamp only serves to tell an old sample from a new one of the same source.

Once told what overload is (:meth:`LoadSamples.watch`), they count the samples in a row that show
it. So the trigger goes by what hosts measured one time after the other, not by which of it fell
between two collections, and who waits for it is told at once.
"""

import collections
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from acstor.policy.collection import DEFAULT_LINK, Collection, HostLoad
from acstor.policy.similarity import Sketch

DIRECT = "direct"
CEILOMETER = "ceilometer"
SOURCES = (DIRECT, CEILOMETER)
"""The first has precedence while it is fresh."""
HOSTS_MAX = 16_384
ABSURD_FACTOR = 100.0
"""Times the link beyond which a sample is a fault; up to that it is clamped to the link."""
FUTURE_MAX = 300.0
"""Seconds that a time stamp may be ahead of this machine's clock."""
FASTEST_LINK = 1e12
"""Bytes per second beyond which a link speed is a fault."""
CARRY = 3
"""Intervals for which a silent host keeps its last load; then its weight is frozen."""
SAMPLES_MAX = 64
"""Samples of a host between two collections that are remembered."""
FORGET = 360
"""Intervals after which a silent host is forgotten."""
ROW_SLACK = 0.3
"""Part of an interval by which samples may come too close to each other to count as full ones:
hosts measure a little more often than once an interval, and messages are not equally fast."""


@dataclass(frozen=True)
class Sample:
    """Load of one host as a feed tells it; rates in bytes per second, None: not known."""

    host: str
    source: str
    at: float
    """POSIX time at which it was measured, seconds, by the clock of whoever did."""
    extra_in: float | None = None
    extra_out: float | None = None
    moved_in: float | None = None
    moved_out: float | None = None
    link: float | None = None
    load: float | None = None
    is_up: bool = True
    is_draining: bool = False
    sequence: int | None = None
    """Grows with each sample of this host and source; None: the time stamp does."""


@dataclass
class _Entry:
    """Knowledge about one host from one source."""

    sample: Sample
    noted_at: float  # by the clock of this process
    unseen: list[Sample] = dataclasses.field(default_factory=list)
    """Samples since the last collection, oldest first."""
    row: int = 0
    """Samples in a row that showed overload."""
    row_from: float = 0.0
    """Time at which the sample before the row was noted: since then the load that the row shows."""


@dataclass
class _Host:
    entries: dict[str, _Entry] = dataclasses.field(default_factory=dict)
    link: float | None = None
    moved: tuple[float, float] = (0.0, 0.0)
    last: HostLoad | None = None
    collected_at: float | None = None
    """Time at which a collection last found a new sample of it, by the clock of this process."""
    sketch: Sketch | None = None


@dataclass(frozen=True)
class _Watch:
    """Arguments of :meth:`LoadSamples.watch`."""

    is_overloaded: Callable[[HostLoad], bool]
    successive: int
    on_sustained: Callable[[], None]


class LoadSamples:
    """Notes samples and makes collections of them.

    :param interval: seconds between two collections.
    :param clock: monotonic seconds.
    :param posix_clock: seconds since the epoch, to tell time stamps of the future.
    """

    def __init__(
        self,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
        posix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._posix_clock = posix_clock
        self._lock = threading.Lock()  # of the two below
        self._hosts: dict[str, _Host] = {}
        self._watch: _Watch | None = None
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        """By (source, what became of it): ``taken``, ``clamped``, ``old``, ``future``,
        ``absurd``, ``full``."""

    def watch(
        self,
        is_overloaded: Callable[[HostLoad], bool],
        successive: int,
        on_sustained: Callable[[], None] = lambda: None,
    ) -> None:
        """From now on count samples in a row that show overload, for :attr:`HostLoad.streak`.

        A row is as long as the whole intervals that it covers, and has no more of them than
        samples: those that come sooner lengthen it by less, a rare one by no more than one.

        :param on_sustained: called, by whoever notes a sample, when a row has become ``successive``
            long.
        """
        with self._lock:
            self._watch = _Watch(is_overloaded, successive, on_sustained)

    def note(self, sample: Sample) -> str:
        """Note a sample; return what became of it (see :attr:`counts`)."""
        on_sustained: Callable[[], None] | None = None
        with self._lock:
            former = self._streak_of(sample)
            outcome = self._note(sample)
            self.counts[sample.source, outcome] += 1
            if self._watch is not None and former < self._watch.successive <= self._streak_of(
                sample
            ):
                on_sustained = self._watch.on_sustained
        if on_sustained is not None:
            on_sustained()
        return outcome

    def count(self, source: str, outcome: str) -> None:
        """Count what a feed dropped itself."""
        with self._lock:
            self.counts[source, outcome] += 1

    def note_sketch(self, host: str, sketch: Sketch) -> None:
        """Note which chunks a known host holds."""
        with self._lock:
            if host in self._hosts:
                self._hosts[host].sketch = sketch

    def sketches(self) -> dict[str, Sketch]:
        """Return what is known of which chunks hosts hold."""
        with self._lock:
            return {name: host.sketch for name, host in self._hosts.items() if host.sketch}

    def ages(self) -> Mapping[str, float]:
        """Return by source the seconds since its last sample of any host."""
        now = self._clock()
        with self._lock:
            newest: dict[str, float] = {}
            for host in self._hosts.values():
                for source, entry in host.entries.items():
                    newest[source] = max(entry.noted_at, newest.get(source, entry.noted_at))
        return {source: now - noted for source, noted in newest.items()}

    def collect(self, at: float) -> Collection:
        """Return how busy the hosts are: the mean of the samples since the last collection.

        While a row of overload goes on, of those that are in it. A host without a new sample keeps
        its load for :data:`CARRY` intervals; after that, or when it is down or drains, it is
        missing. May be called as often as one likes: silence is measured by the clock.

        :param at: POSIX time, seconds.
        """
        loads: dict[str, HostLoad] = {}
        missing: dict[str, str] = {}
        with self._lock:
            for name in sorted(self._hosts):
                host = self._hosts[name]
                entry = self._chosen(host)
                unseen, entry.unseen = entry.unseen, []
                age = self._age(host, entry, is_new=bool(unseen))
                if age > FORGET:
                    del self._hosts[name]
                elif age > CARRY:
                    missing[name] = "silent"
                elif entry.sample.is_draining:
                    missing[name] = "draining"
                elif not entry.sample.is_up:
                    missing[name] = "down"
                else:
                    in_row = unseen[-entry.row :] if entry.row else unseen
                    load = _load_of(host, in_row) if unseen else host.last
                    if load is None:
                        missing[name] = "silent"  # nothing is measured yet
                    else:
                        host.last, host.moved = load, (load.moved_in, load.moved_out)
                        streak = None if self._watch is None else self._streak(entry)
                        loads[name] = dataclasses.replace(load, age=age, streak=streak)
        return Collection(at, loads, missing)

    def _age(self, host: _Host, entry: _Entry, *, is_new: bool) -> int:
        """Return the intervals for which a host has been silent, 0 where there is a new sample."""
        now = self._clock()
        if is_new or host.collected_at is None:
            host.collected_at = now
            return 0
        quiet = now - max(host.collected_at, entry.noted_at)
        return max(1, math.floor(quiet / self._interval + ROW_SLACK))

    def _streak(self, entry: _Entry) -> int:
        """Return how long the row of overload of a host is, in intervals."""
        if not entry.row:
            return 0
        covered = (entry.noted_at - entry.row_from) / self._interval
        return max(1, min(entry.row, math.floor(covered + ROW_SLACK)))

    def _streak_of(self, sample: Sample) -> int:
        """Return the same of the host and source of a sample, as it is now."""
        host = self._hosts.get(sample.host) if self._watch is not None else None
        entry = host.entries.get(sample.source) if host is not None else None
        return self._streak(entry) if entry is not None else 0

    def _chosen(self, host: _Host) -> _Entry:
        """Return what to go by: the direct feed while it is fresh, else the newest."""
        fresh = self._clock() - 3 * self._interval
        direct = host.entries.get(DIRECT)
        if direct is not None and direct.noted_at >= fresh:
            return direct
        return max(host.entries.values(), key=lambda entry: entry.noted_at)

    def _note(self, sample: Sample) -> str:
        # Where there are sequence numbers the time stamp does not matter, but it must be one.
        latest = math.inf if sample.sequence is not None else self._posix_clock() + FUTURE_MAX
        if not math.isfinite(sample.at) or sample.at > latest:
            return "future"
        host = self._hosts.get(sample.host)
        if host is None and len(self._hosts) >= HOSTS_MAX:
            return "full"
        former = host.entries.get(sample.source) if host else None
        if former is not None and self._is_old(sample, former):
            return "old"
        if not _is_sane(sample):
            return "absurd"
        link = sample.link or (host.link if host else None) or DEFAULT_LINK
        if any(rate > ABSURD_FACTOR * link for rate in _rates(sample)):
            return "absurd"
        host = self._hosts.setdefault(sample.host, _Host())
        host.link = sample.link or host.link
        clamped = _clamped(sample, link)
        unseen = former.unseen if former else []
        entry = _Entry(clamped, self._clock(), [*unseen[1 - SAMPLES_MAX :], clamped])
        if self._watch is not None and _shows_overload(self._watch, host, clamped):
            self._lengthen_row(entry, former)
        host.entries[sample.source] = entry
        return "taken" if clamped == sample else "clamped"

    def _lengthen_row(self, entry: _Entry, former: _Entry | None) -> None:
        # A gap ends a row: what was between is not known.
        latest = entry.noted_at - (CARRY + 1) * self._interval
        if former is not None and former.row and former.noted_at >= latest:
            entry.row, entry.row_from = former.row + 1, former.row_from
        else:
            before = former.noted_at if former is not None else -math.inf
            entry.row, entry.row_from = 1, max(before, entry.noted_at - self._interval)

    def _is_old(self, sample: Sample, former: _Entry) -> bool:
        if self._clock() - former.noted_at > CARRY * self._interval:
            return False  # a clock that was put back is heard again
        if sample.sequence is not None and former.sample.sequence is not None:
            return sample.sequence <= former.sample.sequence
        return sample.at <= former.sample.at


def _shows_overload(watch: _Watch, host: _Host, sample: Sample) -> bool:
    is_told = sample.extra_in is not None or sample.extra_out is not None
    if not is_told or sample.is_draining or not sample.is_up:
        return False
    load = _load_of(host, [sample])
    return load is not None and watch.is_overloaded(load)


def _load_of(host: _Host, samples: Sequence[Sample]) -> HostLoad | None:
    """Return the mean of some samples of a host.

    Not the newest of those since the last collection: an idle one between two busy ones must be
    seen, or load that comes and goes faster than collections do would look like one that lasts.
    """
    extra_in, extra_out = _mean(samples, "extra_in"), _mean(samples, "extra_out")
    if extra_in is None and extra_out is None:
        return host.last
    moved_in, moved_out = _mean(samples, "moved_in"), _mean(samples, "moved_out")
    is_moved_known = moved_in is not None or moved_out is not None
    moved = (moved_in or 0.0, moved_out or 0.0) if is_moved_known else host.moved
    return HostLoad(
        extra_in or 0.0, extra_out or 0.0, *moved, host.link or DEFAULT_LINK, samples[-1].load
    )


def _mean(samples: Sequence[Sample], name: str) -> float | None:
    known = [value for sample in samples if (value := getattr(sample, name)) is not None]
    return math.fsum(known) / len(known) if known else None


def _rates(sample: Sample) -> list[float]:
    rates = (sample.extra_in, sample.extra_out, sample.moved_in, sample.moved_out)
    return [rate for rate in rates if rate is not None]


def _is_sane(sample: Sample) -> bool:
    link, load = sample.link, sample.load
    return (
        all(math.isfinite(rate) and rate >= 0 for rate in _rates(sample))
        and (link is None or (math.isfinite(link) and 0 <= link <= FASTEST_LINK))
        and (load is None or (math.isfinite(load) and 0 <= load <= 1))
    )


def _clamped(sample: Sample, link: float) -> Sample:
    """Return the sample with no rate above the link's speed: counters and clocks jitter."""
    changes = {
        name: link
        for name in ("extra_in", "extra_out", "moved_in", "moved_out")
        if (getattr(sample, name) or 0.0) > link
    }
    return dataclasses.replace(sample, **changes) if changes else sample  # type: ignore[arg-type]
