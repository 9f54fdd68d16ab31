"""Processor time per GiB served, warm and from a peer; memory at a million chunks.

  warm        direct 1 MiB reads out of the chunk store: user and system time of the data plane.
              Peer: nbdkit's file plugin, the same reads.
  from a peer the reading host owns nothing, keeps nothing: time of both data planes.
  memory      anonymous memory of a data plane before, with a million chunks in the store, and
              after a restart with them. In chunks of 4 KiB, so that a million fit on the disk: the
              index is by chunks, whatever their size.

Needs root. One command: ``python -m bench.cpu_memory [--chunks N] [--json FILE]``.
"""

import shutil
import sys

from bench import comparison, served_disk
from bench.comparison import Row, Series
from testbed import processes
from testbed.run_directory import DEFAULT_ROOT

SIZE = 512 << 20
GIB = 1 << 30
MEMORY_CHUNK = 4096
FILL_PASSES_MAX = 4
PASSES = 4  # over the disk, so that ticks of 10 ms do not matter


def per_gib(pids: list[int], target: list[str]) -> float:
    """Processor seconds of processes per GiB that fio reads."""
    before = sum(map(served_disk.cpu_seconds, pids))
    command = ["fio", "--name=cpu", "--rw=read", "--bs=1M", f"--size={SIZE}", "--readonly"]
    command += [f"--loops={PASSES}", "--invalidate=0", *target]
    processes.run(command, timeout_s=120)
    return (sum(map(served_disk.cpu_seconds, pids)) - before) * GIB / (SIZE * PASSES)


def warm_row(runs: int) -> Row:
    with served_disk.serve(SIZE) as served:
        served_disk.read_all(served.path())
        server, uri = served_disk.start_nbdkit(served.disk, served.testbed.run.directory("nbdkit"))
        file_target = [f"--filename={served.path()}", "--ioengine=psync", "--direct=1"]
        pid = served.dataplane_pid()
        try:
            values = comparison.interleave(
                {
                    "acstor": lambda: per_gib([pid], file_target),
                    "nbdkit": lambda: per_gib([server.pid], ["--ioengine=nbd", f"--uri={uri}"]),
                },
                runs,
            )
        finally:
            server.terminate()
            server.wait()
    return Row(
        "processor time, warm, 1 MiB direct",
        Series("acstor", "s/GiB", values["acstor"]),
        Series("nbdkit", "s/GiB", values["nbdkit"]),
    )


def peer_rows(runs: int) -> list[Row]:
    overrides = {"readpath": {"keep": "never"}}
    with served_disk.serve(SIZE, host_count=2, owners=(1,), overrides=overrides) as served:
        served_disk.read_all(served.path(1))
        target = [f"--filename={served.path(0)}", "--ioengine=psync", "--direct=1"]
        reader, owner = served.dataplane_pid(0), served.dataplane_pid(1)
        both, before_origin = [], served.metric("acstor_origin_bytes_total", 1)
        for _ in range(runs):
            both.append(per_gib([reader, owner], target))
        fetched = served.metric("acstor_peer_fetch_bytes_total", 0)
        if fetched < 0.9 * SIZE * PASSES * runs:
            raise SystemExit(f"only {fetched / 1e6:.0f} MB came from the peer")
        if served.metric("acstor_origin_bytes_total", 1) > before_origin:
            raise SystemExit("the peer read the origin: its chunk store was not warm")
    return [Row("processor time, from a peer (both data planes)", Series("acstor", "s/GiB", both))]


def memory_rows(chunk_count: int) -> list[Row]:
    """Measured once: it does not vary from run to run."""
    size = chunk_count * MEMORY_CHUNK
    free = shutil.disk_usage(DEFAULT_ROOT).free
    if free < 4 * size + (2 << 30):
        raise SystemExit(f"{chunk_count} chunks need {4 * size >> 30} GiB of disk; see --chunks")
    with served_disk.serve(size, chunk_size=MEMORY_CHUNK) as served:
        rows = [_memory_row(served, "before the first read")]
        for _ in range(FILL_PASSES_MAX):
            served_disk.read_all(served.path(), block="4M")
            if _held(served) >= 0.98 * chunk_count:
                break
        rows.append(_memory_row(served, "after reading them all"))
        served.restart(empty=False)
        rows.append(_memory_row(served, "after a restart"))
    return rows


def _held(served: served_disk.ServedDisk) -> float:
    return served.metric("acstor_store_used_bytes") / MEMORY_CHUNK


def _memory_row(served: served_disk.ServedDisk, when: str) -> Row:
    resident = served_disk.resident_bytes(served.dataplane_pid()) / (1 << 20)
    what = f"anonymous memory {when}, {_held(served):,.0f} chunks held"
    return Row(what, Series("acstor", "MiB", [resident]))


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument(
        "--chunks", type=int, default=1_000_000, metavar="N",
        help="held when memory is measured; a million take 16 GB of disk (%(default)s)",
    )  # fmt: skip
    options = parser.parse_args()
    rows = [warm_row(options.runs), *peer_rows(options.runs), *memory_rows(options.chunks)]
    comparison.report("Processor time and memory of the data plane", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
