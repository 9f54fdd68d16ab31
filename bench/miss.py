"""Misses: what a read costs that no cache answers, with the origin in the page cache.

A disk is read once from its start to its end, and once at random, each time with an empty chunk
store; every read goes to the origin's directory, which is in memory. Calls of the origin per MiB,
p50 and p99 of the reads. Peer: the same reads through nbdkit's cache filter, empty too.

Needs root. One command: ``python -m bench.miss [--json FILE]``.
"""

import dataclasses
import json
import pathlib
import shutil
import sys

from bench import comparison, served_disk
from bench.comparison import Row, Series
from testbed import processes

SIZE = 128 << 20
LOADS = {"sequential 1 MiB": ("read", "1M"), "random 64 KiB": ("randread", "64k")}


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over the disk."""

    p50_us: float
    p99_us: float
    mb_per_s: float
    calls_per_mib: float


def fio_pass(target: list[str], pattern: str, block: str) -> Pass:
    """Read every byte of the disk once."""
    command = ["fio", "--name=miss", f"--rw={pattern}", f"--bs={block}", f"--size={SIZE}"]
    command += ["--readonly", "--invalidate=0", "--output-format=json", "--iodepth=1", *target]
    output = processes.run(command, timeout_s=120)
    job = json.loads(output[output.index("{") :])["jobs"][0]["read"]
    percentiles = job["clat_ns"]["percentile"]
    return Pass(
        p50_us=percentiles["50.000000"] / 1e3,
        p99_us=percentiles["99.000000"] / 1e3,
        mb_per_s=job["bw_bytes"] / 1e6,
        calls_per_mib=0.0,
    )


def acstor_pass(served: served_disk.ServedDisk, pattern: str, block: str) -> Pass:
    served.restart(empty=True)
    before = served.metric("acstor_origin_calls_total")
    target = [f"--filename={served.path()}", "--ioengine=psync", "--direct=1"]
    result = fio_pass(target, pattern, block)
    calls = served.metric("acstor_origin_calls_total") - before
    return dataclasses.replace(result, calls_per_mib=calls / (SIZE >> 20))


def nbdkit_pass(disk: pathlib.Path, directory: pathlib.Path, pattern: str, block: str) -> Pass:
    shutil.rmtree(directory)
    directory.mkdir()
    server, uri = served_disk.start_nbdkit(
        disk, directory, ["cache"], ["cache-on-read=true", "cache-min-block-size=64k"]
    )
    try:
        return fio_pass(["--ioengine=nbd", f"--uri={uri}"], pattern, block)
    finally:
        server.terminate()
        server.wait()


def main() -> int:
    options = comparison.arguments(__doc__ or "").parse_args()
    rows = []
    with served_disk.serve(SIZE) as served:
        served_disk.read_all(served.disk, direct=False)
        directory = served.testbed.run.directory("nbdkit")
        for name, (pattern, block) in LOADS.items():
            ours, peer = [], []
            for _ in range(options.runs):
                ours.append(acstor_pass(served, pattern, block))
                peer.append(nbdkit_pass(served.disk, directory, pattern, block))
            rows += rows_of(name, ours, peer)
    comparison.report("Misses, origin in the page cache", rows, options.json)
    return 0


def rows_of(name: str, ours: list[Pass], peer: list[Pass]) -> list[Row]:
    rows = [
        Row(
            f"{name}: origin calls per MiB",
            Series("acstor", "", [one.calls_per_mib for one in ours]),
        )
    ]
    for field, unit in (("p50_us", "us"), ("p99_us", "us"), ("mb_per_s", "MB/s")):
        rows.append(
            Row(
                f"{name}: {field.split('_')[0] if unit == 'us' else 'throughput'}",
                Series("acstor", unit, [getattr(one, field) for one in ours]),
                Series("nbdkit cache", unit, [getattr(one, field) for one in peer]),
            )
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
