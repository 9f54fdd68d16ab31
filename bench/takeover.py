"""The pause of a data plane that is killed under a reader: SIGKILL, planned replacement.

A reader reads at random with O_DIRECT and compares every byte; the longest read around each kill
is the pause that a guest would see. Any error or wrong byte ends the benchmark.

Needs root. One command: ``python -m bench.takeover [--runs N] [--json FILE]``.
"""

import os
import random
import signal
import sys
import threading
import time

from bench import comparison, served_disk
from bench.comparison import Row, Series
from testbed import processes

SIZE = 64 << 20
BLOCK = 64 << 10
SETTLE_READS = 2000


class Reader(threading.Thread):
    """Reads and compares until it is stopped; remembers the longest read."""

    def __init__(self, path: str, content: bytes) -> None:
        super().__init__(name="reader", daemon=True)
        self._path, self._content = path, content
        self._random = random.Random(7)
        self.is_stopped = threading.Event()
        self.read_count = 0
        self.longest_s = 0.0
        self.failure: str | None = None

    def run(self) -> None:
        # Buffered descriptors would be answered by the page cache; mmap gives aligned memory.
        import mmap

        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        buffer = mmap.mmap(-1, BLOCK)
        try:
            while not self.is_stopped.is_set():
                offset = self._random.randrange(SIZE // BLOCK) * BLOCK
                started = time.perf_counter()
                count = os.preadv(descriptor, [buffer], offset)
                self.longest_s = max(self.longest_s, time.perf_counter() - started)
                if count != BLOCK or buffer[:] != self._content[offset : offset + BLOCK]:
                    self.failure = f"wrong bytes at {offset}"
                    return
                self.read_count += 1
        except OSError as error:
            self.failure = f"{error}"
        finally:
            os.close(descriptor)

    def wait_for_reads(self, count: int) -> None:
        """Wait until so many more reads are done."""
        wanted = self.read_count + count
        processes.wait_until(
            lambda: self.read_count >= wanted or self.failure is not None,
            f"{count} more reads are done",
            timeout_s=60,
        )
        if self.failure:
            raise SystemExit(f"a read failed: {self.failure}")


def pause(served: served_disk.ServedDisk, reader: Reader, number: signal.Signals) -> float:
    """Longest read around the end of the data plane, ms."""
    reader.wait_for_reads(SETTLE_READS)
    before = served.dataplane_pid()
    reader.longest_s = 0.0
    os.kill(before, number)
    processes.wait_until(
        lambda: (served.hosts[0].status() or {}).get("pid") not in (None, before),
        "the next data plane answers",
        timeout_s=60,
    )
    reader.wait_for_reads(SETTLE_READS)
    return reader.longest_s * 1e3


def main() -> int:
    options = comparison.arguments(__doc__ or "").parse_args()
    with served_disk.serve(SIZE) as served:
        served_disk.read_all(served.path())
        reader = Reader(str(served.path()), served.disk.read_bytes())
        reader.start()
        try:
            values = comparison.interleave(
                {
                    "killed": lambda: pause(served, reader, signal.SIGKILL),
                    "replaced": lambda: pause(served, reader, signal.SIGTERM),
                },
                options.runs,
            )
        finally:
            reader.is_stopped.set()
            reader.join(30)
    rows = [
        Row(
            "data plane killed (SIGKILL): longest read",
            Series("acstor", "ms", values["killed"]),
            target="< 1000 ms",
            is_met=comparison.at_most(1000),
        ),
        Row(
            "data plane replaced (SIGTERM): longest read",
            Series("acstor", "ms", values["replaced"]),
            target="< 1000 ms",
            is_met=comparison.at_most(1000),
        ),
    ]
    comparison.report("Take-over of the FUSE descriptor", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
