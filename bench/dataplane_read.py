"""Warm and cold reads through a whole data plane, beside nbdkit and a local file.

  direct      fio, 4 KiB and 64 KiB random with O_DIRECT: every read reaches the data plane.
              Peer: nbdkit's file plugin over its unix socket, fio's NBD engine.
  cached      the same file in the page cache. Peer: a local file, cached.
  qemu-img    qemu-img bench on the file: QEMU's own view, cache=none and cache=writeback.
              Peer: qemu-img bench on nbdkit.
  cold        1 MiB sequential through an empty page cache, read-ahead of 1 MiB, warm chunk store.

Needs root. One command: ``python -m bench.dataplane_read [--json FILE]``.
"""

import functools
import json
import pathlib
import sys
import time

from bench import comparison, served_disk
from bench.comparison import Row, Series
from testbed import processes

SIZE = 256 << 20
FIO_SECONDS = 3
BENCH_READS = {4096: 60_000, 65536: 20_000}
LOADS = ((1, 1), (4, 1), (1, 32))  # jobs, depth


def fio(
    target: list[str], block: int, jobs: int, depth: int, size: int = SIZE, *, direct: bool
) -> float:
    """Random reads per second."""
    command = ["fio", "--name=bench", "--rw=randread", f"--bs={block}", f"--size={size}"]
    command += [f"--numjobs={jobs}", f"--iodepth={depth}", f"--direct={int(direct)}", "--readonly"]
    command += [
        "--randrepeat=0",
        "--time_based",
        f"--runtime={FIO_SECONDS}",
        "--group_reporting",
        "--norandommap",
    ]
    command += ["--output-format=json", "--invalidate=0", *target]
    output = processes.run(command, timeout_s=60)
    # The NBD engine says a line before the JSON starts.
    result = json.loads(output[output.index("{") :])
    return float(result["jobs"][0]["read"]["iops"])


def file_target(path: pathlib.Path, depth: int) -> list[str]:
    return [f"--filename={path}", f"--ioengine={'libaio' if depth > 1 else 'psync'}"]


def qemu_img_bench(source: str, block: int, depth: int, *options: str) -> float:
    """Reads per second that qemu-img bench sees."""
    count = BENCH_READS[block]
    command = ["qemu-img", "bench", "-f", "raw", "-c", str(count), "-s", str(block)]
    output = processes.run([*command, "-d", str(depth), *options, source], timeout_s=120)
    seconds = float(output.split("Run completed in ")[1].split()[0])
    return count / seconds


def direct_rows(served: served_disk.ServedDisk, uri: str, runs: int) -> list[Row]:
    rows = []
    for block in (4096, 65536):
        for jobs, depth in LOADS:
            cases = {
                "acstor": functools.partial(
                    fio, file_target(served.path(), depth), block, jobs, depth, direct=True
                ),
                "nbdkit": functools.partial(
                    fio, ["--ioengine=nbd", f"--uri={uri}"], block, jobs, depth, direct=False
                ),
            }
            values = comparison.interleave(cases, runs)
            bound = 1.5 if (jobs, depth) == (1, 1) else 1.0
            rows.append(
                Row(
                    f"direct {block >> 10} KiB random, {jobs} jobs, depth {depth}",
                    Series("acstor", "/s", values["acstor"]),
                    Series("nbdkit", "/s", values["nbdkit"]),
                    f">= {bound}x",
                    comparison.at_least(bound),
                )
            )
    return rows


def cached_rows(served: served_disk.ServedDisk, runs: int) -> list[Row]:
    for path in (served.path(), served.disk):
        served_disk.read_all(path, direct=False)
    rows = []
    for block in (4096, 65536):
        cases = {
            name: functools.partial(fio, file_target(path, 1), block, 1, 1, direct=False)
            for name, path in (("acstor", served.path()), ("local", served.disk))
        }
        values = comparison.interleave(cases, runs)
        rows.append(
            Row(
                f"page-cached {block >> 10} KiB random, 1 job",
                Series("acstor", "/s", values["acstor"]),
                Series("local file", "/s", values["local"]),
                ">= 0.8x",
                comparison.at_least(0.8),
            )
        )
    return rows


def qemu_rows(served: served_disk.ServedDisk, uri: str, runs: int) -> list[Row]:
    rows = []
    for cache, aio in (("none", "native"), ("writeback", "io_uring")):
        for block in (4096, 65536):
            options = ("-t", cache, "-i", aio)
            disk = str(served.path())
            cases = {
                "acstor": functools.partial(qemu_img_bench, disk, block, 1, *options),
                "nbdkit": functools.partial(qemu_img_bench, uri, block, 1),
            }
            values = comparison.interleave(cases, runs)
            rows.append(
                Row(
                    f"qemu-img bench {block >> 10} KiB, depth 1, cache={cache} aio={aio}",
                    Series("acstor", "/s", values["acstor"]),
                    Series("nbdkit", "/s", values["nbdkit"]),
                )
            )
    return rows


def cold_row(served: served_disk.ServedDisk, runs: int) -> Row:
    def once() -> float:
        served_disk.drop_pages(served.path())
        started = time.monotonic()
        served_disk.read_all(served.path(), direct=False)
        return SIZE / (time.monotonic() - started) / 1e9

    values = comparison.interleave({"acstor": once}, runs)
    return Row(
        "cold 1 MiB sequential, read-ahead 1 MiB",
        Series("acstor", "GB/s", values["acstor"]),
        target=">= 2.5 GB/s",
        is_met=comparison.at_least(2.5),
    )


def main() -> int:
    options = comparison.arguments(__doc__ or "").parse_args()
    overrides = {"dataplane": {"read_ahead_kb": "1024"}}
    with served_disk.serve(SIZE, overrides=overrides) as served:
        served_disk.read_all(served.path())  # fills the chunk store
        directory = served.testbed.run.directory("nbdkit")
        server, uri = served_disk.start_nbdkit(served.disk, directory)
        try:
            rows = direct_rows(served, uri, options.runs)
            rows += qemu_rows(served, uri, options.runs)
        finally:
            server.terminate()
            server.wait()
        rows += cached_rows(served, options.runs)
        rows.append(cold_row(served, options.runs))
    comparison.report("Reads through the data plane", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
