"""Reads of an origin in Ceph, beside librados, librbd and clones of RBD, on the same one-node Ceph.

A real Ceph of Debian's packages (:mod:`testbed.fixtures.ceph`: one OSD, BlueStore on a file, one
copy). Runs take turns; each reads what no cache of a host has. No network is crossed.

  miss        64 KiB at random of an image that nobody has read, through the mount, one after the
              other, without prefetch and compression. Peer: ``rados_read`` of as many bytes at the
              same offsets of objects of 4 MiB, from Python as well, in turn with ours. With
              ``--python`` the same also of a host whose data plane has no native reader.
  sequential  an image from its start to its end, 1 MiB with O_DIRECT. Peers: ``rbd export`` of the
              same bytes, and QEMU's own client of librbd, one request after the other.
  storm       the recorded boot on several hosts at once, without think times, every byte checked.
              Peer: a clone of the image for each, read through librbd, as stock Nova's
              ``images_type = rbd`` has it. Time until the last has ended; bytes out of the OSD.

Needs root, Debian's Ceph and QEMU's driver of RBD (profile ``bench`` of ``bindep.txt``). One
command: ``python -m bench.rados_reads [--hosts N] [--python] [--json FILE]``.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import mmap
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acstor.origin.rados import binding
from bench import comparison, served_disk
from bench.acstor import images
from bench.comparison import Row, Series, at_least, at_most
from testbed import boot_trace, processes
from testbed.fixtures.ceph import CephNode, ceph_node
from testbed.fixtures.hosts import Cloud, Host, cloud_in
from testbed.run_directory import DEFAULT_ROOT

POOL = "bench"
OSD_BYTES = 16 << 30
CALL_S = 30
CHUNK = 64 << 10
OBJECT = 4 << 20
MISS_BYTES = 32 << 20
DISK_BYTES = 256 << 20
HOSTS = 4
STORE = "2GiB"
TRACE = pathlib.Path(__file__).parent / "traces" / "debian-12-boot.jsonl"
MISS_MAX = 1.3
STORM_BYTES_MAX = 0.2
TIMEOUT_S = 600.0


@dataclasses.dataclass(frozen=True)
class Cluster:
    """One-node Ceph with a pool of objects, refs and RBD images."""

    node: CephNode
    directory: pathlib.Path

    def url(self, namespace: str) -> str:
        """Return an origin of ACStor in it."""
        return self.node.origin_url(POOL, namespace=namespace, timeout=CALL_S)

    @contextlib.contextmanager
    def pool(self) -> Iterator[Any]:
        """A bare context of librados."""
        rados = binding.load()
        configuration = {"rados_osd_op_timeout": str(CALL_S)}
        cluster = rados.Rados(conffile=str(self.node.configuration), conf=configuration)
        cluster.connect(timeout=CALL_S)
        try:
            with cluster.open_ioctx(POOL) as pool:
                yield pool
        finally:
            cluster.shutdown()

    def bytes_out(self) -> int:
        """Bytes that the OSD has sent to clients since its start."""
        counters = json.loads(self.node.run("ceph", "tell", "osd.0", "perf", "dump"))
        return int(counters["osd"]["op_out_bytes"])


def random_disk(directory: pathlib.Path, name: str, size: int, seed: int) -> pathlib.Path:
    """Write a file of bytes that nothing compresses, which no other seed has."""
    path, source = directory / name, random.Random(seed)
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(source.randbytes(1 << 20))
    return path


class Misses:
    """Random reads of single chunks."""

    def __init__(self, cluster: Cluster, cloud: Cloud, pool: Any, name: str) -> None:
        self._directory = cluster.directory
        self._cloud = cloud
        self._pool = pool
        self._name = name
        self._count = 0

    def measure(self) -> tuple[list[float], list[float]]:
        """Return the microseconds of each read, of ours and of librados."""
        self._count += 1
        disk = random_disk(self._directory, self._object(), MISS_BYTES, self._count)
        for number in range(MISS_BYTES // OBJECT):
            with disk.open("rb") as file:
                file.seek(number * OBJECT)
                self._pool.write_full(self._object(number), file.read(OBJECT))
        image_id = self._cloud.register_file(disk)
        self._cloud.wait_ready(image_id)
        offsets = [index * CHUNK for index in range(MISS_BYTES // CHUNK)]
        random.Random(self._count).shuffle(offsets)
        ours, theirs = [], []
        with direct(self._cloud.hosts[0].file(image_id)) as read:
            for offset in offsets:  # in turn: another load of the machine is one for both
                theirs.append(self._microseconds(self._read_object, offset))
                ours.append(self._microseconds(lambda offset: read(offset, CHUNK), offset))
        disk.unlink()
        return ours, theirs

    def _object(self, *number: int) -> str:
        return "-".join(map(str, (self._name, self._count, *number)))

    def _read_object(self, offset: int) -> None:
        number, place = divmod(offset, OBJECT)
        content = self._pool.read(self._object(number), CHUNK, place)
        if len(content) != CHUNK:
            raise SystemExit(f"librados gave {len(content)} bytes at {offset}")

    @staticmethod
    def _microseconds(read: Callable[[int], object], offset: int) -> float:
        began = time.perf_counter()
        read(offset)
        return (time.perf_counter() - began) * 1e6


@contextlib.contextmanager
def direct(path: pathlib.Path) -> Iterator[Callable[[int, int], memoryview]]:
    """Give a function that reads ``length`` bytes at ``offset`` past the page cache."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 1 << 20)  # O_DIRECT wants memory that is aligned

    def read(offset: int, length: int) -> memoryview:
        view = memoryview(buffer)[:length]
        if os.preadv(descriptor, [view], offset) != length:
            raise SystemExit(f"{path}: a short read at {offset}")
        return view

    try:
        yield read
    finally:
        os.close(descriptor)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def miss_rows(cluster: Cluster, runs: int, *, with_python: bool) -> list[Row]:
    sections: dict[str, Sequence[str]] = {"miss": ()}
    if with_python:
        sections["miss-python"] = (sys.executable, "-m", "bench.python_reads_dataplane")
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(cluster.pool())
        misses = [
            Misses(
                cluster,
                stack.enter_context(cloud_of(cluster, one, 1, command, prefetch_max=0)),
                pool,
                one,
            )
            for one, command in sections.items()
        ]
        found = [[one.measure() for one in misses] for _ in range(runs)]
    rows = []
    for number, section in enumerate(sections):
        for name, share in (("p50", 0.50), ("p99", 0.99)):
            ours = [percentile(run[number][0], share) for run in found]
            theirs = [percentile(run[number][1], share) for run in found]
            series = Series("acstor", "us", ours), Series("librados", "us", theirs)
            rows.append(Row(f"{section}: {name}", *series, f"<= {MISS_MAX}x", at_most(MISS_MAX)))
    return rows


@contextlib.contextmanager
def cloud_of(
    cluster: Cluster, section: str, hosts: int, command: Sequence[str] = (), **readpath: object
) -> Iterator[Cloud]:
    """Run hosts over a repository of the section's own in the cluster.

    :param command: of their data planes; none: the installed one.
    """
    directory = cluster.directory / section
    directory.mkdir()
    with cloud_in(directory, cluster.url(section)) as cloud:
        if command:
            cloud.dataplane_command = command
        for _ in range(hosts):
            cloud.add_host(store={"capacity": STORE}, readpath=readpath)
        yield cloud


def sequential_rows(cluster: Cluster, runs: int) -> list[Row]:
    node = cluster.node
    with cloud_of(cluster, "sequential", 1) as cloud:
        ours: list[float] = []
        export: list[float] = []
        qemu: list[float] = []
        for number in range(runs):
            disk = random_disk(cluster.directory, "disk.raw", DISK_BYTES, 1000 + number)
            name = f"{POOL}/sequential-{number}"
            node.run("rbd", "import", str(disk), name, timeout_s=TIMEOUT_S)
            image_id = cloud.register_file(disk)
            cloud.wait_ready(image_id)
            ours.append(mb_per_s(functools.partial(read_through, cloud.hosts[0], image_id)))
            export.append(mb_per_s(functools.partial(export_of, node, name)))
            qemu.append(mb_per_s(functools.partial(qemu_reads, node, name)))
            disk.unlink()
    series = Series("acstor", "MB/s", ours)
    target = (">= 1x", at_least(1.0))
    return [
        Row("sequential: 1 MiB", series, Series("rbd export", "MB/s", export), *target),
        Row("sequential: 1 MiB", series, Series("qemu-img bench", "MB/s", qemu), *target),
    ]


def mb_per_s(read: Callable[[], object]) -> float:
    began = time.perf_counter()
    read()
    return DISK_BYTES / 1e6 / (time.perf_counter() - began)


def read_through(host: Host, image_id: str) -> None:
    served_disk.read_all(host.file(image_id))


def export_of(node: CephNode, name: str) -> None:
    """Export an image to nowhere; to a file that exists, as /dev/null does, ``rbd`` refuses."""
    command = ["rbd", "--conf", str(node.configuration), "--no-progress", "export", name, "-"]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)


def qemu_reads(node: CephNode, name: str) -> None:
    count = str(DISK_BYTES >> 20)
    target = f"rbd:{name}:conf={node.configuration}"
    command = ["qemu-img", "bench", "-f", "raw", "-U", "-c", count, "-d", "1", "-s", "1M", target]
    processes.run(command, timeout_s=TIMEOUT_S)


@dataclasses.dataclass(frozen=True)
class Storm:
    """Outcome of one storm."""

    seconds: float
    bytes_out: int


def storm_of(cluster: Cluster, commands: Sequence[Sequence[str]]) -> Storm:
    """Run a replay for each host at once; each has checked all that it read."""
    before, began = cluster.bytes_out(), time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    codes = [one.wait(TIMEOUT_S) for one in running]
    seconds = time.perf_counter() - began
    if any(codes):
        raise SystemExit(f"replays ended with {codes}")
    return Storm(seconds, cluster.bytes_out() - before)


def storm_rows(cluster: Cluster, runs: int, hosts: int) -> list[Row]:
    trace = boot_trace.load(TRACE)
    disk = images.recorded_disk(trace, DEFAULT_ROOT)
    made = images.make(cluster.directory, trace, runs, disk)
    path, name = made.image.directory / "disk.raw", f"{POOL}/golden"
    node = cluster.node
    node.run("rbd", "import", str(path), name, timeout_s=TIMEOUT_S)
    node.run("rbd", "snap", "create", f"{name}@snap")
    node.run("rbd", "snap", "protect", f"{name}@snap")
    ours, theirs = [], []
    with cloud_of(cluster, "storm", hosts) as cloud:
        image_id = cloud.register_file(path)
        cloud.wait_ready(image_id)
        files = [str(host.file(image_id)) for host in cloud.hosts]
        for number, reads in enumerate(made.traces):
            ours.append(storm_of(cluster, [mount_replay(reads, file) for file in files]))
            clones = [f"{POOL}/clone-{number}-{index}" for index in range(hosts)]
            for clone in clones:
                node.run("rbd", "clone", f"{name}@snap", clone)
            theirs.append(storm_of(cluster, [clone_replay(node, reads, one) for one in clones]))
    return [
        Row(
            f"storm of {hosts}: until the last has ended",
            Series("acstor", "s", [one.seconds for one in ours]),
            Series("RBD clones", "s", [one.seconds for one in theirs]),
            "<= 1x",
            at_most(1.0),
        ),
        Row(
            f"storm of {hosts}: bytes out of the OSD",
            Series("acstor", "MB", [one.bytes_out / 1e6 for one in ours]),
            Series("RBD clones", "MB", [one.bytes_out / 1e6 for one in theirs]),
            f"<= {STORM_BYTES_MAX}x",
            at_most(STORM_BYTES_MAX),
        ),
    ]


def mount_replay(trace: pathlib.Path, disk: str) -> list[str]:
    return [sys.executable, "-m", "testbed.replay", str(trace), disk, "--think-scale", "0"]


def clone_replay(node: CephNode, trace: pathlib.Path, clone: str) -> list[str]:
    program = [sys.executable, "-m", "bench.rbd_replay"]
    return [*program, str(node.configuration), str(trace), clone]


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--hosts", type=int, default=HOSTS, help="(default: %(default)s)")
    parser.add_argument("--only", help="sections whose name contains this")
    parser.add_argument("--python", action="store_true", help="misses through Python, too")
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("/var/tmp"))
    options: argparse.Namespace = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="acr-") as base:
        directory = pathlib.Path(base)
        with ceph_node(directory / "ceph", OSD_BYTES) as node:
            node.make_pool(POOL)
            node.run("rbd", "pool", "init", POOL)
            cluster = Cluster(node, directory)
            sections: dict[str, Callable[[], list[Row]]] = {
                "miss": lambda: miss_rows(cluster, options.runs, with_python=options.python),
                "sequential": lambda: sequential_rows(cluster, options.runs),
                "storm": lambda: storm_rows(cluster, options.runs, options.hosts),
            }
            for name, measure in sections.items():
                if not options.only or options.only in name:
                    rows += measure()
            title = f"Reads of an origin in Ceph {node.version()} on one node"
    comparison.report(title, rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
