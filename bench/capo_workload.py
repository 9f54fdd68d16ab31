"""Requests of virtual desktops with the statistics that Capo publishes of its trace.

The trace itself is not public; :mod:`bench.capo_periods` has what the paper says of it. Every
statistic there is one of the workload here, and a test of it. What the paper does not say, and what
is assumed instead:

* Sizes of requests: only the ratio follows (Table 1 has the writes' share of requests and of
  bytes). Writes are of 4 and 16 KiB, 8 KiB in the mean; reads of 4 and 64 KiB, aligned.
* The arrivals: only the mean and the busiest second are given (Table 3, no cache). A rate that
  all desktops share varies log-normally from second to second (correlation 0.7), for reads and for
  writes; the spreads are such that the ratio of peak and mean is the published one. How many of
  the busiest second are writes is not given. What is: the peak that Capo's filer saw with
  write-through, when only writes came to it and reads of what the desktop did not have before
  (the totals with write-through are that sum in periods 1, 2 and 4). The workload has it: Capo's
  own write-through has Capo's peaks on it.
* Places of reads that nobody made before: each is in a chunk of its own, which is the worst case.
* Where writes go: shares of classes as :data:`~bench.capo_periods.CLASS_SHARES`; every class has
  the same rewrites and sizes.
* Distances of rewrites: log-uniform between the times of which Figure 5 is cited. Content older
  than ten minutes at the start is not on the disk; rewriting it is as writing a new place.
* Flushes: the trace has none.
* When a desktop was pushed last before a period: at any time of the ten minutes before, each
  desktop at another. What it wrote since then is in the trace, with negative times, so that it is
  waiting for the next push when the period begins (section 5.4.1).

A workload is thinned: ``load`` of the published requests are made, by desktops as many as are
active, each with ``load`` of its requests. Shares and ratios remain, absolute numbers do not.
"""

import bisect
import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Sequence

from acstor.repository.volumes.durability import DurabilityClass
from bench import capo_periods
from bench.capo_periods import Period

DESKTOPS = 20
"""Sixteen are active in the second period; the others have little to do."""
CHUNK = 64 << 10
BLOCK = 4 << 10
WARM_UP_S = int(capo_periods.WRITE_BACK_PERIOD_S)
"""Warm-up before each period, seconds: one period of write-back."""
ACTIVE_SHARE = {True: 0.85, False: 0.15}
"""Shares of the requests: of the active desktops, and of the rest."""
DISK_SIZE = 4 << 30
REGIONS = {
    DurabilityClass.WRITE_BACK: (0, 1 << 30),
    DurabilityClass.NONE: (1 << 30, 2 << 30),
    DurabilityClass.WRITE_THROUGH: (2 << 30, 4 << 30),
}
"""Places of Table 2's paths on each disk, first byte and end. The image is at the beginning of the
first one, whose second half is written."""
IMAGE_BYTES_MAX = 512 << 20
WRITE_SIZES = (4 << 10, 16 << 10)
WRITE_SIZE_MEAN = 8 << 10
READ_SIZES = (4 << 10, 64 << 10)
_SHORTEST_S = 0.2
_OWN_WRITES_READ = 0.25
_CORRELATION = 0.7
_LOOKED_AT_MAX = 200
_ROUNDS = 12
_HALVINGS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One request of a desktop."""

    time_s: float  #: since the period's start; negative in the warm-up
    desktop: int
    is_write: bool
    offset: int
    length: int


@dataclasses.dataclass(frozen=True)
class Trace:
    """The requests of one period, in the order of time, and what desktops had read before."""

    period: Period
    requests: Sequence[Request]
    read_before: Sequence[tuple[int, int]]  #: desktop and chunk of the image


def rewrite_bands() -> list[tuple[float, float, float]]:
    """Return (shortest, longest, share): distances of rewrites that give Figure 5.

    A write is superfluous when it is overwritten within the same window of T seconds; windows lie
    anywhere, so a distance d < T counts with probability 1 - d / T.
    """
    bands: list[tuple[float, float, float]] = []
    shortest = _SHORTEST_S
    for window, share in capo_periods.REWRITTEN:
        before = sum(part * _within(low, high, window) for low, high, part in bands)
        bands.append((shortest, window, (share - before) / _within(shortest, window, window)))
        shortest = window
    return bands


def _within(low: float, high: float, window: float) -> float:
    """Return the mean of 1 - d / window over distances d, log-uniform from low to high."""
    return 1 - (high - low) / (window * math.log(high / low))


def rates(period: Period, rng: random.Random) -> tuple[list[float], list[float]]:
    """Return reads and writes for each second of a period, at the published load."""
    writes_mean = period.total * period.writes / period.seconds
    reads_mean = period.total / period.seconds - writes_mean
    noise = _noise(period.seconds, rng), _noise(period.seconds, rng)
    missed = 1 - period.own_reads
    reads = [reads_mean] * period.seconds
    writes = [writes_mean] * period.seconds
    for _ in range(_ROUNDS):  # each depends on the other
        writes = _fitted(noise[0], writes_mean, (1.0, missed), reads, period.peak_through)
        reads = _fitted(noise[1], reads_mean, (1.0, 1.0), writes, period.peak)
    return reads, writes


def _fitted(
    noise: Sequence[float],
    mean: float,
    weights: tuple[float, float],
    others: Sequence[float],
    peak: float,
) -> list[float]:
    """Return a rate with such a spread that its weighted sum with another has a certain peak."""

    def peak_of(spread: float) -> float:
        own, other = weights
        values = zip(_shaped(noise, mean, spread), others, strict=True)
        return max(own * value + other * beside for value, beside in values)

    return _shaped(noise, mean, _solve(peak_of, peak))


def _shaped(noise: Sequence[float], mean: float, spread: float) -> list[float]:
    values = [math.exp(spread * value) for value in noise]
    scale = mean * len(values) / sum(values)
    return [value * scale for value in values]


def _noise(count: int, rng: random.Random) -> list[float]:
    value = rng.gauss(0, 1)
    values = []
    for _ in range(count):
        values.append(value)
        value = _CORRELATION * value + math.sqrt(1 - _CORRELATION**2) * rng.gauss(0, 1)
    return values


def _solve(peak_of: Callable[[float], float], wanted: float) -> float:
    """Return the spread with a certain peak, by bisection."""
    low, high = 0.0, 8.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if peak_of(middle) < wanted else (low, middle)
    return low


def counts(values: Sequence[float], load: float) -> list[int]:
    """Thin a rate to whole requests per second: the sum is kept, and each second but for one."""
    whole, total, done = [], 0.0, 0
    for value in values:
        total += value * load
        whole.append(round(total) - done)
        done += whole[-1]
    return whole


def desktop_shares(period: Period) -> list[float]:
    """Return which share of the requests each desktop makes (Table 1, "% of VMs")."""
    active = round(period.active * capo_periods.DESKTOPS_TRACED)
    share = {True: ACTIVE_SHARE[True] / active, False: ACTIVE_SHARE[False] / (DESKTOPS - active)}
    return [share[index < active] for index in range(DESKTOPS)]


def read_size_mean(period: Period) -> float:
    """Return the mean size of reads, bytes, from the two write shares of Table 1."""
    requests = period.writes / (1 - period.writes)
    return WRITE_SIZE_MEAN * requests * (1 - period.written) / period.written


class ImageChunks:
    """Hands out chunks of the image: to each period those that nobody has read before."""

    def __init__(self) -> None:
        self.count = 0

    def take(self) -> int:
        """Return a chunk that nobody has read."""
        self.count += 1
        if self.count * CHUNK > IMAGE_BYTES_MAX:
            raise ValueError("the image is too small for such a load: choose a smaller one")
        return self.count - 1


class DesktopDisk:
    """Disk of one desktop: its writes, their times, and the place of the next.

    :param start_s: time at which the trace begins.
    """

    def __init__(self, rng: random.Random, start_s: float) -> None:
        self._rng, self._start = rng, start_s
        self._bands = rewrite_bands()
        self._owed = [0] * len(self._bands)
        self._times: list[float] = []  # of the writes, rising
        self._writes: list[tuple[int, int]] = []  # offset and length of each
        self._newest: dict[int, int] = {}  # by offset, index of its last write
        self._next = {kind: first for kind, (first, _) in REGIONS.items()}
        self._next[DurabilityClass.WRITE_BACK] = IMAGE_BYTES_MAX

    def write(self, now: float) -> tuple[int, int]:
        """Return offset and length of a write, and remember it."""
        place = self._rewritten(now) or self._new()
        self._newest[place[0]] = len(self._times)
        self._times.append(now)
        self._writes.append(place)
        return place

    def read(self) -> tuple[int, int] | None:
        """Return a place that was written, if any was."""
        return self._rng.choice(self._writes) if self._writes else None

    def _new(self) -> tuple[int, int]:
        kinds, shares = zip(*capo_periods.CLASS_SHARES.items(), strict=True)
        kind = self._rng.choices(kinds, shares)[0]
        length = pick(self._rng, WRITE_SIZES, WRITE_SIZE_MEAN)
        offset = self._next[kind]
        if offset + length > REGIONS[kind][1]:
            raise ValueError("a region is too small for such a load: choose a smaller one")
        self._next[kind] += length
        return offset, length

    def _rewritten(self, now: float) -> tuple[int, int] | None:
        """Return a place to be written again, or None.

        Where a band has no place of its distances at this moment, the next write that finds one
        takes it: the shares are those of the bytes in the end.
        """
        draw = self._rng.random()
        for index, (low, high, share) in enumerate(self._bands):
            # What was written before the trace begins is as a new place.
            if 0 <= draw < share and now - _log_uniform(self._rng, low, high) >= self._start:
                self._owed[index] += 1
            draw -= share
        for index, (low, high, _) in enumerate(self._bands):
            if self._owed[index] < 1:
                continue
            place = self._find(now, low, high)
            if place is not None:
                self._owed[index] -= 1
                return place
        return None

    def _find(self, now: float, low: float, high: float) -> tuple[int, int] | None:
        """Return a place whose last write is as long ago as a distance between the two."""
        first = bisect.bisect_left(self._times, now - high)
        last = bisect.bisect_right(self._times, now - low)
        if first == last:
            return None
        distance = _log_uniform(self._rng, low, high)
        start = min(max(bisect.bisect_left(self._times, now - distance), first), last - 1)
        for step in range(last - first):
            for index in {start - step, start + step}:
                if first <= index < last and self._newest[self._writes[index][0]] == index:
                    return self._writes[index]
            if step > _LOOKED_AT_MAX:
                break
        return None


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return low * math.pow(high / low, rng.random())


def pick(rng: random.Random, sizes: tuple[int, int], mean: float) -> int:
    """Return one of two sizes, with that mean in the end."""
    return sizes[rng.random() < (mean - sizes[0]) / (sizes[1] - sizes[0])]


class Readers:
    """Chunks of the image that each desktop has read, in the shares of "Dup. reads" (Table 1)."""

    def __init__(self, period: Period, image: ImageChunks, rng: random.Random) -> None:
        self._period, self._image, self._rng = period, image, rng
        self._own: list[list[int]] = [[image.take()] for _ in range(DESKTOPS)]
        self._has = [set(own) for own in self._own]
        self._pool = [own[0] for own in self._own]  # what any desktop has read
        self.read_before = [(desktop, own[0]) for desktop, own in enumerate(self._own)]

    def chunk(self, desktop: int, draw: float) -> int:
        """Return the chunk of the next read of a desktop; ``draw`` from 0 to 1 says whose."""
        if draw < self._period.own_reads:
            return self._rng.choice(self._own[desktop])
        chunk = self._shared(desktop) if draw < self._period.shared_reads else self._image.take()
        self._note(desktop, chunk)
        return chunk

    def _shared(self, desktop: int) -> int:
        for _ in range(8):
            chunk = self._rng.choice(self._pool)
            if chunk not in self._has[desktop]:
                return chunk
        # Another desktop has read it, before the period.
        chunk = self._image.take()
        other = (desktop + 1) % DESKTOPS
        self.read_before.append((other, chunk))
        self._note(other, chunk)
        return chunk

    def _note(self, desktop: int, chunk: int) -> None:
        self._own[desktop].append(chunk)
        self._has[desktop].add(chunk)
        self._pool.append(chunk)


def make(period: Period, image: ImageChunks, *, load: float, seed: int) -> Trace:
    """Make the trace of a period.

    :param image: of all periods that one data plane replays.
    :param load: share of the published requests.
    """
    rng = random.Random(f"{seed} {period.number}")
    pushed = [-WARM_UP_S * (index + 0.5) / DESKTOPS for index in range(DESKTOPS)]
    rng.shuffle(pushed)
    disks = [DesktopDisk(rng, start) for start in pushed]
    readers = Readers(period, image, rng)
    shares, indexes = desktop_shares(period), range(DESKTOPS)
    requests = []
    for time_s, is_write in _arrivals(period, load, rng):
        desktop = rng.choices(indexes, shares)[0]
        if time_s < pushed[desktop]:
            continue
        if is_write:
            offset, length = disks[desktop].write(time_s)
        else:
            offset, length = _read(period, desktop, disks[desktop], readers, rng)
        requests.append(Request(time_s, desktop, is_write, offset, length))
    return Trace(period, requests, readers.read_before)


def _read(
    period: Period, desktop: int, disk: DesktopDisk, readers: Readers, rng: random.Random
) -> tuple[int, int]:
    length = pick(rng, READ_SIZES, read_size_mean(period))
    draw = rng.random()
    if draw < period.own_reads * _OWN_WRITES_READ:
        # Part of what it had before it has written itself.
        written = disk.read()
        if written is not None:
            return written[0] // CHUNK * CHUNK, length
    chunk = readers.chunk(desktop, draw)
    return chunk * CHUNK + rng.randrange((CHUNK - length) // BLOCK + 1) * BLOCK, length


def _arrivals(period: Period, load: float, rng: random.Random) -> Iterator[tuple[float, bool]]:
    """Yield time and whether it is a write, in the order of time."""
    reads, writes = rates(period, rng)
    mean = sum(writes) / len(writes)
    before = counts([mean] * WARM_UP_S, load)
    for second, count in enumerate(before, start=-WARM_UP_S):
        yield from ((time, True) for time in sorted(second + rng.random() for _ in range(count)))
    for second, (read, write) in enumerate(
        zip(counts(reads, load), counts(writes, load), strict=True)
    ):
        arrivals = [(second + rng.random(), index < write) for index in range(read + write)]
        yield from sorted(arrivals)
