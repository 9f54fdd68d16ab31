"""Replays desktops' requests on volumes of a real data plane and counts what the origin gets.

Time is scaled: a second of the trace takes 1/scale of one, and so does the write-back period. What
follows from the order of requests and from the number of seconds between them remains: which
writes are in the same push, what was read before, which requests are in the same second. What would
not remain is excluded: a second of the trace ends when all its requests are answered, however long
that takes, so that a slow machine does not spread a peak (it makes pushes more frequent, which
counts against us); and each desktop has ``depth`` requests in flight, so that no more writes share
a log object because answers take longer in scaled time. The data plane's looks at the records are
by the clock, not by the load: they are counted apart and weighted with scale and load.

Checked with period 6 at scales of 90 and 30: totals differ by at most 0.3 points (write-through
69.7 and 69.4 %, write-back 11.1 and 11.2 %, differential 42.1 and 42.0 %), peaks not at all but for
write-back's, which is one or two pushes in the same second (4.0 and 2.2 %).
"""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Sequence

from acstor.drivers.brick.nbd_connection import NbdConnection
from acstor.origin.opening import open_origin
from acstor.volumes.durability import Durability, DurabilityClass, Region
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
from tests.fixtures import host_volumes
from tests.fixtures.hosts import Cloud, Host, cloud_in

_MIB = 1 << 20
_TIMEOUT_S = 60.0
_FOLD_BYTES = 256 * _MIB  # default of [volumes] fold_bytes


@dataclasses.dataclass(frozen=True)
class Setting:
    """How traces are replayed."""

    scale: float  #: seconds of the trace in one
    load: float  #: share of the published requests that the trace has
    depth: int  #: requests of one desktop in flight

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
    """What reached the origin in each second of a period."""

    requests: Sequence[float]
    operations: Sequence[float]
    looks: float = 0.0  #: of all requests, those that ask whether a record has changed
    stretch: float = 1.0  #: time that the replay took, of what it should take

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
    counts: dict[int, Count], seconds: int, setting: Setting, stretch: float = 1.0
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
        fold_bytes = max(_MIB, int(_FOLD_BYTES * setting.load))
        volumes = {"origin_deadline": 30, "fold_bytes": f"{fold_bytes}B"}
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
            stretch = self._pace(trace, pool, desktops)
        for volume in volumes:
            host_volumes.call(self._host, "close", volume, force=True)
        return outcome_of(self._server.take(), trace.period.seconds, self._setting, stretch)

    def _create(self, policy: str) -> str:
        return self._control.create(
            DISK_SIZE,
            self._host,
            image_id=self._image,
            durability=self._setting.durability(policy),
        )

    @contextlib.contextmanager
    def _desktop(self, volume: str) -> Iterator[list[NbdConnection]]:
        """Connections of one desktop, one for each request in flight."""
        opened = host_volumes.open_volume(self._host, volume)
        with contextlib.ExitStack() as stack:
            connections = []
            for _ in range(self._setting.depth):
                connection = NbdConnection(opened["socket"], opened["export"], _TIMEOUT_S)
                stack.callback(connection.close)
                connections.append(connection)
            yield connections

    def _pace(
        self,
        trace: Trace,
        pool: concurrent.futures.Executor,
        desktops: Sequence[list[NbdConnection]],
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
        for second in range(-WARM_UP_S, trace.period.seconds):
            if second == 0:
                begun = time.monotonic()
            self._server.second = second if second >= 0 else None
            self._play(by_second.get(second, []), pool, desktops)
            # What is late stays late: to catch up would put two seconds into one.
            end = max(end + step, time.monotonic())
            time.sleep(max(0.0, end - time.monotonic()))
        self._server.second = None
        return (time.monotonic() - begun) / (trace.period.seconds * step)

    def _play(
        self,
        requests: Sequence[Request],
        pool: concurrent.futures.Executor,
        desktops: Sequence[list[NbdConnection]],
    ) -> None:
        """Send requests, those of a connection one after the other, and wait for the answers."""
        shares: dict[int, list[Request]] = {}
        for request in requests:
            shares.setdefault(request.desktop, []).append(request)
        depth = self._setting.depth
        futures = [
            pool.submit(self._send, connection, own[index::depth])
            for desktop, own in shares.items()
            for index, connection in enumerate(desktops[desktop])
            if own[index::depth]
        ]
        for future in futures:
            future.result()

    def _send(self, connection: NbdConnection, requests: Sequence[Request]) -> None:
        buffer = bytearray(CHUNK)
        for request in requests:
            if request.is_write:
                # Nothing of it compresses: less would travel of a real desktop's.
                connection.write(request.offset, memoryview(os.urandom(request.length)))
            else:
                connection.read_into(request.offset, memoryview(buffer)[: request.length])


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


def traces(periods: Sequence[capo_periods.Period], load: float) -> tuple[list[Trace], int]:
    """Make the traces of periods on one image; return them and the image's number of chunks."""
    image = capo_workload.ImageChunks()
    made = [capo_workload.make(period, image, load=load, seed=1) for period in periods]
    return made, image.count
