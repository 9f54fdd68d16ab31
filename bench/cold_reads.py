"""Random reads of a chunk store larger than memory, beside its slot file read directly.

  cold      fio, 4 KiB random with O_DIRECT, depth 1 and 32, of a disk that is in the chunk store
            and whose data plane may have a fraction of it in memory (a memory cgroup).
            Peers: the slot file itself, read by the same fio job; nbdkit's file plugin on the slot
            file, in the same cgroup, which verifies nothing.
  LOOKUP    how long names wait beside the reads of depth 32: a look-up of a name that is not there.

Needs root and a memory cgroup. One command: ``python -m bench.cold_reads [--json FILE]``.
"""

import contextlib
import functools
import os
import pathlib
import statistics
import sys
import threading
import time
from collections.abc import Iterator

from bench import comparison, dataplane_read, served_disk
from bench.comparison import Row, Series

SIZE = 2 << 30
MEMORY = 600 << 20
BLOCK = 4096
DEPTHS = (1, 32)
LOOKUP_PAUSE_S = 0.002
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def limit_memory(group: pathlib.Path, limit_bytes: int) -> None:
    """Make a memory cgroup, of version 2 or 1."""
    group.mkdir()
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (group / name).exists():
            (group / name).write_text(str(limit_bytes))
            return
    group.rmdir()
    raise SystemExit(f"{group} has no memory limit: switch the memory controller on")


@contextlib.contextmanager
def little_memory(pid: int, limit_bytes: int) -> Iterator[pathlib.Path]:
    """Bound the memory of a process, its page cache included; yield the file for others' ids."""
    parent = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    group = parent / f"acstor-bench-{os.getpid()}"
    limit_memory(group, limit_bytes)
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield group / "cgroup.procs"
    finally:
        (parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def slot_file(served: served_disk.ServedDisk) -> pathlib.Path:
    return served.hosts[0].directory / "state" / "store" / "slots"


def look_up(directory: pathlib.Path, until: threading.Event) -> list[float]:
    """Look up names that are not there, each another one; return how long each took, seconds."""
    times = []
    number = 0
    while not until.wait(LOOKUP_PAUSE_S):
        number += 1
        started = time.perf_counter()
        with contextlib.suppress(FileNotFoundError):
            os.stat(directory / f"absent-{number}")
        times.append(time.perf_counter() - started)
    return times


class LookUps:
    """Look-ups beside the reads; the quantiles of each run, milliseconds."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self.p50: list[float] = []
        self.p99: list[float] = []

    def beside(self, read: functools.partial[float]) -> float:
        """Read with look-ups beside; return what the read does."""
        over = threading.Event()
        times: list[float] = []
        thread = threading.Thread(target=lambda: times.extend(look_up(self._directory, over)))
        thread.start()
        try:
            return read()
        finally:
            over.set()
            thread.join()
            percentiles = statistics.quantiles(times, n=100)
            self.p50.append(percentiles[49] * 1000)
            self.p99.append(percentiles[98] * 1000)


def rows(served: served_disk.ServedDisk, nbd_uri: str, runs: int) -> list[Row]:
    def read(path: pathlib.Path, depth: int) -> functools.partial[float]:
        target = dataplane_read.file_target(path, depth)
        return functools.partial(dataplane_read.fio, target, BLOCK, 1, depth, SIZE, direct=True)

    look_ups = LookUps(served.path().parent)
    found = []
    for depth in DEPTHS:
        ours = read(served.path(), depth)
        cases = {
            "acstor": functools.partial(look_ups.beside, ours) if depth > 1 else ours,
            "slots": read(slot_file(served), depth),
            "nbdkit": functools.partial(
                dataplane_read.fio,
                ["--ioengine=nbd", f"--uri={nbd_uri}"],
                BLOCK,
                1,
                depth,
                SIZE,
                direct=False,
            ),
        }
        values = comparison.interleave(cases, runs)
        found.append(
            Row(
                f"cold 4 KiB random, depth {depth}",
                Series("acstor", "/s", values["acstor"]),
                Series("slot file", "/s", values["slots"]),
                *((">= 0.8x", comparison.at_least(0.8)) if depth > 1 else ()),
            )
        )
        found.append(
            Row(
                f"cold 4 KiB random, depth {depth}",
                Series("acstor", "/s", values["acstor"]),
                Series("nbdkit", "/s", values["nbdkit"]),
            )
        )
    found.append(Row("LOOKUP beside it, p50", Series("acstor", "ms", look_ups.p50)))
    found.append(
        Row(
            "LOOKUP beside it, p99",
            Series("acstor", "ms", look_ups.p99),
            target="<= 1 ms",
            is_met=comparison.at_most(1.0),
        )
    )
    return found


def main() -> int:
    options = comparison.arguments(__doc__ or "").parse_args()
    with (
        served_disk.serve(SIZE) as served,
        little_memory(served.dataplane_pid(), MEMORY) as processes,
    ):
        served_disk.read_all(served.path())  # fills the chunk store
        directory = served.testbed.run.directory("nbdkit")
        server, uri = served_disk.start_nbdkit(slot_file(served), directory)
        try:
            processes.write_text(str(server.pid))
            found = rows(served, uri, options.runs)
        finally:
            server.terminate()
            server.wait()
        for outcome in ("read", "part", "lost", "late", "skipped", "failed"):
            count = served.metric("acstor_store_reads_total", outcome=outcome)
            print(f"reads of the store's disk, {outcome}: {count:.0f}")
    comparison.report("Reads of a chunk store larger than memory", found, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
