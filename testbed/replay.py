"""Replay a boot trace against a disk: the same reads in the same order, every byte checked.

Runs as a process of its own (``python -m testbed.replay``), one per host, so that dozens of
hosts can be exercised where dozens of guests would not fit. A replay does one read at a time,
where a guest may have several under way.
"""

import argparse
import dataclasses
import json
import mmap
import os
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

from acstor.exception import AcstorError
from testbed import boot_trace
from testbed.boot_trace import BootTrace
from testbed.exception import ContentMismatchError, TestbedError

_SLEEP_MIN_S = 50e-6  # shorter than that, sleeping takes longer than asked for


@dataclasses.dataclass(frozen=True)
class ReplayResult:
    """Result of a replay."""

    read_count: int
    bytes_read: int
    elapsed_s: float
    waited_s: float  #: sum of the times that reads took
    latency_p50_us: float
    latency_p99_us: float
    latency_max_us: float


def replay(
    trace: BootTrace, disk: pathlib.Path, *, think_scale: float = 1.0, direct: bool = True
) -> ReplayResult:
    """Do the reads of a trace.

    :param think_scale: factor on the think times; 0: one read right after the other.
    :param direct: open with O_DIRECT, past the host's page cache, so that each read reaches the
        server behind the disk.
    :raises ContentMismatchError: at the first read that returns other bytes than were recorded.
    :raises TestbedError: when a read fails or ends early.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
    descriptor = os.open(disk, flags)
    # O_DIRECT wants memory that is aligned, which anonymous mappings are.
    buffer = mmap.mmap(-1, max(read.length for read in trace.reads))

    def read(offset: int, length: int) -> memoryview:
        view = memoryview(buffer)[:length]
        _read(descriptor, view, offset, disk)
        return view

    try:
        return replay_by(read, trace, str(disk), think_scale=think_scale)
    finally:
        os.close(descriptor)


def replay_by(
    read: Callable[[int, int], bytes | memoryview],
    trace: BootTrace,
    name: str,
    *,
    think_scale: float = 1.0,
) -> ReplayResult:
    """Do the reads of a trace by a function of offset and length, which says so if it cannot.

    :param name: of the disk, in messages.
    :param think_scale: as of :func:`replay`.
    :raises ContentMismatchError: at the first read that returns other bytes than were recorded.
    """
    latencies = []
    started = ended = time.perf_counter()
    for wanted in trace.reads:
        pause = ended + wanted.think_us * 1e-6 * think_scale - time.perf_counter()
        if pause > _SLEEP_MIN_S:
            time.sleep(pause)
        began = time.perf_counter()
        content = read(wanted.offset, wanted.length)
        ended = time.perf_counter()
        latencies.append(ended - began)
        if boot_trace.content_digest(content) != wanted.digest:
            raise ContentMismatchError(
                f"{name}: other bytes than recorded in {wanted.length} bytes at {wanted.offset}"
            )
    return _result(trace, latencies, time.perf_counter() - started)


def _read(descriptor: int, buffer: memoryview, offset: int, disk: pathlib.Path) -> None:
    try:
        count = os.preadv(descriptor, [buffer], offset)
    except OSError as error:
        raise TestbedError(
            f"{disk}: reading {len(buffer)} bytes at {offset}: {error.strerror}"
        ) from error
    if count != len(buffer):
        raise TestbedError(f"{disk}: {count} of {len(buffer)} bytes at {offset}")


def _result(trace: BootTrace, latencies: list[float], elapsed: float) -> ReplayResult:
    ordered = sorted(latencies)

    def percentile(share: float) -> float:
        return 1e6 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return ReplayResult(
        read_count=len(latencies),
        bytes_read=trace.bytes_read,
        elapsed_s=elapsed,
        waited_s=sum(latencies),
        latency_p50_us=percentile(0.5),
        latency_p99_us=percentile(0.99),
        latency_max_us=1e6 * ordered[-1],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay one trace and print the result as JSON."""
    parser = argparse.ArgumentParser(prog="testbed.replay", description=__doc__)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("disk", type=pathlib.Path)
    parser.add_argument("--think-scale", type=float, default=1.0)
    parser.add_argument("--buffered", action="store_true", help="read through the page cache")
    parsed = parser.parse_args(arguments)
    try:
        result = replay(
            boot_trace.load(parsed.trace),
            parsed.disk,
            think_scale=parsed.think_scale,
            direct=not parsed.buffered,
        )
    except AcstorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    sys.stdout.write(json.dumps(dataclasses.asdict(result)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
