"""Reads through FUSE against nbdkit: ``python bench/fuse_reads.py [--runs 5] [--json FILE]``.

Serves one disk of unique chunks out of a warm chunk store by the data plane's FUSE front end, and
the same bytes by nbdkit's file plugin over its unix socket, and reads both with fio in turns:
direct random reads (each reaches the server) of 4 and 64 KiB, at one job, four jobs and depth 32;
then the same file page-cached beside a local file, and a cold sequential scan with the read-ahead
set. Medians with their spread, ratios against the peer of the same run. Needs root.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

from acstor.conf import types

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 120


@dataclasses.dataclass(frozen=True)
class Load:
    """One way of reading at random."""

    block_size: str
    jobs: int
    depth: int

    @property
    def name(self) -> str:
        shape = f"depth {self.depth}" if self.depth > 1 else f"{self.jobs} jobs"
        return f"{self.block_size} {shape}"


LOADS = [
    Load(size, jobs, depth) for size in ("4k", "64k") for jobs, depth in [(1, 1), (4, 1), (1, 32)]
]


@dataclasses.dataclass(frozen=True)
class Served:
    """A running server."""

    process: subprocess.Popen[bytes]
    target: Sequence[str]

    def cpu_seconds(self) -> float:
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def build(target_dir: pathlib.Path) -> pathlib.Path:
    """Build the server and return its path."""
    command = ["cargo", "build", "--release", "-p", "acstor-fuse", "--example", "fuse_serve"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target_dir)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return target_dir / "release" / "examples" / "fuse_serve"


def fio(target: Sequence[str], *options: str) -> dict[str, float]:
    """Read a target and return reads/s, MiB/s and latencies (us)."""
    command = ["fio", "--name=read", "--readonly", "--group_reporting", "--output-format=json"]
    done = subprocess.run(
        [*command, *target, *options], check=True, capture_output=True, timeout=TIMEOUT
    )
    # Its NBD engine talks before the JSON.
    read = json.loads(done.stdout[done.stdout.index(b"{") :])["jobs"][0]["read"]
    percentiles = read["clat_ns"].get("percentile", {})
    return {
        "iops": read["iops"],
        "mib_s": read["bw_bytes"] / (1 << 20),
        "bytes": read["io_bytes"],
        "p50_us": percentiles.get("50.000000", 0) / 1000,
        "p99_us": percentiles.get("99.000000", 0) / 1000,
    }


def random_reads(target: Sequence[str], load: Load, seconds: int, *extra: str) -> dict[str, float]:
    return fio(
        target,
        "--rw=randread",
        f"--bs={load.block_size}",
        f"--numjobs={load.jobs}",
        f"--iodepth={load.depth}",
        "--time_based",
        f"--runtime={seconds}",
        *extra,
    )


@contextlib.contextmanager
def fuse(program: pathlib.Path, folder: pathlib.Path, size: int) -> Iterator[Served]:
    mount_point = folder / "mnt"
    mount_point.mkdir()
    command = [str(program), "--own", "--mount", str(mount_point), "--size", str(size)]
    process = subprocess.Popen(
        [*command, "--store", str(folder / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            raise SystemExit("the FUSE server did not start; it needs root and /dev/fuse")
        (file,) = mount_point.iterdir()
        yield Served(process, [f"--filename={file}"])
    finally:
        process.stdin.close()
        process.wait(TIMEOUT)


@contextlib.contextmanager
def nbdkit(image: pathlib.Path, folder: pathlib.Path) -> Iterator[Served]:
    socket = folder / "nbd"
    process = subprocess.Popen(["nbdkit", "-f", "-r", "-U", socket, "file", image])
    try:
        deadline = time.monotonic() + TIMEOUT
        while not socket.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        uri = f"nbd+unix:///?socket={socket}"
        yield Served(process, ["--ioengine=nbd", f"--uri={uri}"])
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def direct(load: Load) -> list[str]:
    return ["--direct=1", "--ioengine=libaio" if load.depth > 1 else "--ioengine=psync"]


class Results:
    """Values of each measurement, by its name and unit."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        return statistics.median(self.values[name])

    def row(self, name: str, peer: str) -> str:
        values, others = sorted(self.values[name]), sorted(self.values[peer])
        ratio = statistics.median(values) / statistics.median(others)
        return (
            f"{name:<42}{statistics.median(values):>10.0f}  ({values[0]:.0f}-{values[-1]:.0f})"
            f"{statistics.median(others):>12.0f}  ({others[0]:.0f}-{others[-1]:.0f}){ratio:>8.2f}x"
        )


def measure_direct(results: Results, ours: Served, peer: Served, seconds: int) -> None:
    for load in LOADS:
        before = ours.cpu_seconds()
        read = random_reads(ours.target, load, seconds, *direct(load))
        used = ours.cpu_seconds() - before
        results.add(f"direct {load.name}, reads/s", read["iops"])
        results.add(f"direct {load.name}, p50 us", read["p50_us"])
        results.add(f"direct {load.name}, p99 us", read["p99_us"])
        results.add(f"direct {load.name}, CPU s/GiB", used * (1 << 30) / read["bytes"])
        other = random_reads(peer.target, load, seconds)
        results.add(f"nbdkit {load.name}, reads/s", other["iops"])


def measure_cached(results: Results, ours: Served, image: pathlib.Path, seconds: int) -> None:
    sequential = ["--rw=read", "--bs=1m", "--ioengine=psync"]
    # fio drops the file's pages before it starts, so this is cold.
    results.add("cold scan 1 MiB, MiB/s", fio(ours.target, *sequential)["mib_s"])
    local = [f"--filename={image}"]
    fio(local, *sequential)
    keep = ["--ioengine=psync", "--invalidate=0"]
    for load in (Load("4k", 1, 1), Load("64k", 1, 1)):
        for name, target in (("cached", ours.target), ("local", local)):
            read = random_reads(target, load, seconds, *keep)
            results.add(f"{name} {load.name}, reads/s", read["iops"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="per measurement")
    parser.add_argument("--size", type=types.ByteSize(64 << 20), default=512 << 20)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--target-dir", type=pathlib.Path, default=ROOT / "target")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    program = build(arguments.target_dir)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fuse-reads-", dir=arguments.folder))
    results = Results()
    try:
        with fuse(program, folder, arguments.size) as ours:
            image = folder / "image"
            shutil.copyfile(ours.target[0].removeprefix("--filename="), image)
            with nbdkit(image, folder) as peer:
                for _ in range(arguments.runs):
                    measure_direct(results, ours, peer, arguments.seconds)
                    measure_cached(results, ours, image, arguments.seconds)
    finally:
        shutil.rmtree(folder)
    print(f"{'':<42}{'ACStor':>10}{'peer':>24}{'ratio':>22}")
    for load in LOADS:
        print(results.row(f"direct {load.name}, reads/s", f"nbdkit {load.name}, reads/s"))
    for size in ("4k", "64k"):
        print(results.row(f"cached {size} 1 jobs, reads/s", f"local {size} 1 jobs, reads/s"))
    for name in sorted(results.values):
        if not name.endswith("reads/s"):
            print(f"{name:<42}{results.median(name):>10.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results.values, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
