"""Replays desktops' requests on volumes of a real data plane and counts what the origin gets.

Time is scaled: a second of the trace takes 1/scale of one, and so do the write-back period and the
time over which folds are spread. What follows from the order of requests and from the number of
seconds between them remains: which writes are in the same push, what was read before, which
requests are in the same second. A second of the trace ends when all its requests are answered,
however long that takes, so that a slow machine does not spread a peak (it makes pushes more
frequent, which counts against us).

Within its second each request is sent when the trace has it, as Capo's replayer did, whether those
before are answered or not, at most ``depth`` of a desktop at a time. Two writes of a disk that
write through share a log object when the second one comes while the first is on its way, so it
matters how often they overlap: thinned by ``load`` and sped up by ``scale``, a desktop sends
``scale * load`` times as often as in the trace. At a product of 1 they overlap as they would with
an origin that takes as long as the one here; below 1, less often. :class:`Outcome` has how long
writes took. With a depth of 1 no two of them share anything.

A volume is folded after some thousand writes that go through, which few have in a thinned period.
Those of a volume therefore begin anywhere between two folds, and there are as many folds for each
write as in the long run. The data plane's looks at the records are by the clock, not by the load:
they are counted apart and weighted with scale and load.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import queue
import random
import statistics
import threading
import time
import uuid
from collections.abc import Iterator, Sequence

from acstor import native
from acstor.nbd_connection import NbdConnection
from acstor.origin.opening import open_origin
from acstor.repository.volumes.durability import Durability, DurabilityClass, Region
from bench import capo_periods, capo_workload, served_disk
from bench.capo_origin import Count, CountingOriginServer
from bench.capo_workload import (
    CHUNK,
    DESKTOPS,
    DISK_SIZE,
    REGIONS,
    WARM_UP_S,
    Request,
    Trace,
)
from testbed.fixtures import host_volumes
from testbed.fixtures.hosts import Cloud, Host, cloud_in

_MIB = 1 << 20
_TIMEOUT_S = 60.0
_FOLD_BYTES = 256 * _MIB  # default of [volumes] fold_bytes
_FOLD_OBJECTS = 2048  # of fold_objects
_FOLD_SPREAD_S = 60.0  # of fold_spread
_PREFILL = DISK_SIZE - (256 << 20)
"""Offset from which disks are written before a period, which has nothing there, bytes."""

Connections = queue.LifoQueue[NbdConnection]
"""Connections of one desktop that carry no request."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """Settings of a replay."""

    scale: float  #: seconds of the trace in one
    load: float  #: share of the published requests that the trace has
    depth: int  #: most requests of one desktop in flight
    window: int = 0  #: only so many minutes around the busiest second are replayed; 0: all

    @property
    def fold_bytes(self) -> int:
        """As much less as there is less load, but never less than so many small writes have."""
        least = _FOLD_OBJECTS * capo_workload.WRITE_SIZE_MEAN
        return max(least, int(_FOLD_BYTES * self.load))

    def durability(self, policy: str) -> Durability:
        """Return what volumes are created with."""
        period_s = capo_periods.WRITE_BACK_PERIOD_S / self.scale
        if policy == "write-through":
            return Durability(DurabilityClass.WRITE_THROUGH)
        if policy == "write-back":
            return Durability(DurabilityClass.WRITE_BACK, period_s)
        regions = [
            Region(kind, first, last)
            for kind, (first, last) in REGIONS.items()
            if kind is not DurabilityClass.WRITE_THROUGH
        ]
        return Durability(DurabilityClass.WRITE_THROUGH, period_s, regions=tuple(regions))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Load of the origin in each second of a period."""

    requests: Sequence[float]
    operations: Sequence[float]
    looks: float = 0.0  #: of all requests, those that ask whether a record has changed
    stretch: float = 1.0  #: time that the replay took, of what it should take
    write_ms: float = 0.0  #: median time of a write of the period, milliseconds

    @property
    def peak(self) -> float:
        return max(self.requests)

    @property
    def total(self) -> float:
        return sum(self.requests)


def without_cache(trace: Trace) -> Outcome:
    """Count as Capo's filer would see it: each request of a desktop is one there.

    None is longer than OPERATION_BYTES; the published numbers, which the trace follows, are those
    at the filer, after what the hosts coalesced.
    """
    counts = [0.0] * trace.period.seconds
    for request in trace.requests:
        if request.time_s >= 0:
            counts[int(request.time_s)] += 1
    return Outcome(counts, counts)


def outcome_of(
    counts: dict[int, Count],
    seconds: int,
    setting: Setting,
    stretch: float = 1.0,
    write_ms: float = 0.0,
) -> Outcome:
    """Make an outcome of what was counted: looks are spread evenly, at their true share."""
    looks = sum(count.looks for count in counts.values()) / stretch * setting.scale * setting.load
    each = looks / seconds
    found = [counts.get(second, Count()) for second in range(seconds)]
    return Outcome(
        [count.requests + each for count in found],
        [count.operations + each for count in found],
        looks,
        stretch,
        write_ms,
    )


class Replay:
    """A data plane, its origin, and the desktops' volumes on it.

    :param chunk_count: of the image that the disks are made from.
    """

    def __init__(
        self, cloud: Cloud, server: CountingOriginServer, setting: Setting, chunk_count: int
    ) -> None:
        self._server, self._setting = server, setting
        self._control = host_volumes.Volumes(cloud)
        self._write_times: list[float] = []
        volumes = {
            "origin_deadline": 30,
            "fold_bytes": f"{setting.fold_bytes}B",
            "fold_objects": _FOLD_OBJECTS,
            "fold_spread": _FOLD_SPREAD_S / setting.scale,
        }
        self._host: Host = cloud.add_host(
            agent=False, origin={"url": server.url}, volumes=volumes, store={"capacity": "1GiB"}
        )
        disk = cloud.path / "disk.raw"
        served_disk.write_random(disk, -(-chunk_count * CHUNK // _MIB) * _MIB)
        self._image = cloud.register_file(disk)

    def run(self, trace: Trace, policy: str) -> Outcome:
        """Replay a period on fresh volumes."""
        volumes = [self._create(policy) for _ in range(DESKTOPS)]
        with contextlib.ExitStack() as stack:
            workers = DESKTOPS * self._setting.depth
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(workers))
            desktops = [stack.enter_context(self._desktop(volume)) for volume in volumes]
            read_before = [
                Request(-math.inf, desktop, False, chunk * CHUNK, CHUNK)
                for desktop, chunk in trace.read_before
            ]
            self._play(read_before, pool, desktops)
            if policy != "write-back":
                self._prefill(trace, pool, desktops, volumes)
            # What is pending when the period begins is nothing where all writes go through.
            warm_up_s = 0 if policy == "write-through" else WARM_UP_S
            stretch = self._pace(trace, pool, desktops, warm_up_s)
        for volume in volumes:
            host_volumes.call(self._host, "close", volume, force=True)
        counts, seconds = self._server.take(), trace.period.seconds
        write_ms = 1000 * statistics.median(self._write_times)
        return outcome_of(counts, seconds, self._setting, stretch, write_ms)

    def _create(self, policy: str) -> str:
        return self._control.create(
            DISK_SIZE,
            self._host,
            image_id=self._image,
            durability=self._setting.durability(policy),
        )

    @contextlib.contextmanager
    def _desktop(self, volume: str) -> Iterator[Connections]:
        """Connections of one desktop, one for each request in flight."""
        opened = host_volumes.open_volume(self._host, volume)
        with contextlib.ExitStack() as stack:
            connections: Connections = queue.LifoQueue()
            for _ in range(self._setting.depth):
                connection = NbdConnection(opened["socket"], opened["export"], _TIMEOUT_S)
                stack.callback(connection.close)
                connections.put(connection)
            yield connections

    def _prefill(
        self,
        trace: Trace,
        pool: concurrent.futures.Executor,
        desktops: Sequence[Connections],
        volumes: Sequence[str],
    ) -> None:
        """Bring each volume somewhere between two folds, where it matters: near to the next."""
        rng = random.Random(f"{trace.period.number} folds")
        to_come = collections.Counter(
            request.desktop for request in trace.requests if request.is_write
        )

        def fill(desktop: int, count: int) -> None:
            size = capo_workload.WRITE_SIZE_MEAN
            for index in range(count):
                self._send(
                    desktops[desktop], Request(0.0, desktop, True, _PREFILL + index * size, size)
                )

        filling = []
        for desktop, volume in enumerate(volumes):
            threshold = fold_threshold(volume)
            count = rng.randrange(threshold)
            if count + to_come[desktop] >= threshold:
                filling.append(pool.submit(fill, desktop, count))
        for future in filling:
            future.result()

    def _pace(
        self,
        trace: Trace,
        pool: concurrent.futures.Executor,
        desktops: Sequence[Connections],
        warm_up_s: int,
    ) -> float:
        """Play the trace, second by second; return how much longer it took than it should.

        Nothing is counted before the period begins.
        """
        by_second = {
            second: list(requests)
            for second, requests in itertools.groupby(
                trace.requests, lambda request: math.floor(request.time_s)
            )
        }
        step = 1 / self._setting.scale
        begun = end = time.monotonic()
        for second in range(-warm_up_s, trace.period.seconds):
            if second == 0:
                begun = time.monotonic()
                self._write_times.clear()
            self._server.second = second if second >= 0 else None
            self._play(by_second.get(second, []), pool, desktops, step)
            # What is late stays late: to catch up would put two seconds into one.
            end = max(end + step, time.monotonic())
            time.sleep(max(0.0, end - time.monotonic()))
        self._server.second = None
        return (time.monotonic() - begun) / (trace.period.seconds * step)

    def _play(
        self,
        requests: Sequence[Request],
        pool: concurrent.futures.Executor,
        desktops: Sequence[Connections],
        step: float = 0.0,
    ) -> None:
        """Send the requests of a second, each at its time in it, and wait for the answers.

        :param step: how long that second takes; 0: all at once.
        """
        begun = time.monotonic()
        futures = []
        for request in requests:
            if step:
                due = begun + (request.time_s - math.floor(request.time_s)) * step
                time.sleep(max(0.0, due - time.monotonic()))
            futures.append(pool.submit(self._send, desktops[request.desktop], request))
        for future in futures:
            future.result()

    def _send(self, connections: Connections, request: Request) -> None:
        connection = connections.get()
        begun = time.monotonic()
        if request.is_write:
            # Nothing of it compresses: less would travel of a real desktop's.
            connection.write(request.offset, memoryview(os.urandom(request.length)))
            self._write_times.append(time.monotonic() - begun)
        else:
            connection.read_into(request.offset, memoryview(bytearray(request.length)))
        connections.put(connection)


def fold_threshold(volume: str) -> int:
    """Return from how many log objects on a volume is folded (crates/overlay, cadence.rs)."""
    digest = native.digest(uuid.UUID(volume).bytes)
    share = 1 - 0.25 * int.from_bytes(digest[:2], "little") / 65535
    return int(_FOLD_OBJECTS * share)


@contextlib.contextmanager
def replay_in(directory: pathlib.Path, setting: Setting, chunk_count: int) -> Iterator[Replay]:
    """Start a data plane and its origin in an empty directory; all of it ends with the block."""
    with cloud_in(directory) as cloud:
        server = CountingOriginServer(open_origin(f"posix://{cloud.origin}", 5))
        thread = threading.Thread(target=server.serve_forever, name="origin", daemon=True)
        thread.start()
        try:
            yield Replay(cloud, server, setting, chunk_count)
            cloud.stop()
        finally:
            server.shutdown()
            server.server_close()


def traces(
    periods: Sequence[capo_periods.Period], load: float, window: int = 0
) -> tuple[list[Trace], int]:
    """Make the traces of periods on one image; return them and the image's number of chunks.

    :param window: as in :class:`Setting`.
    """
    image = capo_workload.ImageChunks()
    made = [capo_workload.make(period, image, load=load, seed=1) for period in periods]
    return [windowed(trace, window) if window else trace for trace in made], image.count


def windowed(trace: Trace, window: int) -> Trace:
    """Return the minutes around the busiest second as a period; what was before is its warm-up.

    What desktops read before the window they have read before.
    """
    counts = without_cache(trace).requests
    seconds = 60 * window
    begin = max(0, min(counts.index(max(counts)) - seconds // 2, len(counts) - seconds))
    shifted = [
        dataclasses.replace(request, time_s=request.time_s - begin)
        for request in trace.requests
        if request.time_s - begin < seconds
    ]
    kept = [
        one for one in shifted if one.time_s >= -WARM_UP_S and (one.time_s >= 0 or one.is_write)
    ]
    read = {
        (one.desktop, one.offset // CHUNK)
        for one in shifted
        if one.time_s < 0 and not one.is_write and one.offset < capo_workload.IMAGE_BYTES_MAX
    }
    period = dataclasses.replace(trace.period, minutes=window)
    return Trace(period, kept, [*trace.read_before, *sorted(read)])
