"""I/O of a volume beside RBD on a one-node Ceph, nbdkit and qemu-nbd, all on the same disk.

A real Ceph of Debian's packages (:mod:`testbed.fixtures.ceph`: one OSD, BlueStore on a file, one
copy) with a 512 MiB image, used by fio's rbd engine; ACStor's volumes, nbdkit and qemu-nbd as in
:mod:`bench.volumes`, by fio's nbd engine. Runs take turns.

What is compared is not the same promise: RBD acknowledges when its OSD has the write in its journal
on the disk (``rbd``), or, with librbd's cache, when the client has it (``rbd-cached``, what QEMU
uses with ``cache=writeback``); ACStor's write-back when the local log has it in the page cache, and
``acstor-through`` when the origin, a pool of the same Ceph, has it. On one node neither Ceph nor
ACStor crosses a network. Target: write-through at least as fast as RBD, cached and not.

Needs root, fio, nbdkit, qemu-utils and Debian's Ceph (profile ``bench`` of ``bindep.txt``). One
command: ``python -m bench.volume_rbd [--json FILE]``.
"""

import contextlib
import functools
import json
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence

from bench import comparison, served_disk, volumes
from bench.comparison import Row
from bench.nbd import Figure, Server
from bench.volumes import LOCAL, QCOW2, SECONDS, SIZE, THROUGH, Shape
from testbed import processes
from testbed.fixtures.ceph import CephNode, ceph_node

POOL = "bench"
OSD_BYTES = 16 << 30
IMAGE = "disk"
DIRECT, CACHED = "rbd", "rbd-cached"
RBD = {DIRECT: "false", CACHED: "true"}
READS, WRITES = (LOCAL,), (LOCAL, THROUGH)
SHAPES = {
    "random read 4 KiB, depth 1": Shape("randread", "4k", 1, READS),
    "random read 4 KiB, depth 32": Shape("randread", "4k", 32, READS),
    "random write 4 KiB, depth 1": Shape("randwrite", "4k", 1, WRITES),
    "random write 4 KiB, depth 32": Shape("randwrite", "4k", 32, WRITES),
    "random write 64 KiB, depth 1": Shape("randwrite", "64k", 1, WRITES),
    "random write 64 KiB, depth 32": Shape("randwrite", "64k", 32, WRITES),
    "read 64 KiB, depth 8": Shape("read", "64k", 8, READS),
    "write 64 KiB, depth 8": Shape("write", "64k", 8, WRITES),
    "read 1 MiB, depth 4": Shape("read", "1M", 4, READS),
    "write 1 MiB, depth 4": Shape("write", "1M", 4, WRITES),
    "write 4 KiB, fsync after each": Shape("randwrite", "4k", 1, WRITES, fsync=1),
    "write 64 KiB, fsync after each": Shape("randwrite", "64k", 1, WRITES, fsync=1),
}
RBD_TARGET = 1.0
CALL_S = 30


class RbdDisk:
    """An image of a cluster, with or without librbd's cache in the client."""

    def __init__(self, node: CephNode, name: str) -> None:
        self.name = name
        self._node = node
        # The cache is a matter of the client's configuration.
        self._configuration = node.directory / f"{name}.conf"
        text = node.configuration.read_text()
        cache = f"\n[client]\nrbd cache = {RBD[name]}\nrbd cache policy = writeback\n"
        self._configuration.write_text(text + cache)
        node.run("rbd", "create", f"{POOL}/{name}", f"--size={SIZE >> 20}")

    def measure(self, shape: Shape, seconds: float) -> Figure:
        """Load it for some seconds; the processor time is that of the OSD."""
        before = served_disk.cpu_seconds(self._node.osd_pid)
        job = self._fio(shape, "--time_based", f"--runtime={round(seconds * 1000)}ms")
        used = served_disk.cpu_seconds(self._node.osd_pid) - before
        figures = job["read" if shape.is_read else "write"]
        return Figure(float(figures["iops"]), used * 1e6 / max(1, int(figures["total_ios"])))

    def fill(self) -> None:
        """Write everything once."""
        self._fio(Shape("write", "1M", 4, ()))

    def _fio(self, shape: Shape, *options: str) -> Mapping[str, Mapping[str, float]]:
        command = ["fio", "--name=bench", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}"]
        command += [f"--rbdname={self.name}", f"--rw={shape.rw}", f"--bs={shape.block}"]
        command += [f"--iodepth={shape.depth}", f"--size={SIZE}", "--randrepeat=1"]
        command += [f"--fsync={shape.fsync}", "--output-format=json", *options]
        environment = {"CEPH_CONF": str(self._configuration)}
        output = processes.run(command, timeout_s=120.0, env=environment)
        job: Mapping[str, Mapping[str, float]]
        job = json.loads(output[output.index("{") :])["jobs"][0]
        return job


def measured(
    servers: Mapping[str, Server],
    disks: Sequence[RbdDisk],
    shape: Shape,
    runs: int,
    seconds: float,
) -> dict[str, list[Figure]]:
    """Measure all, in turns."""
    figures: dict[str, list[Figure]] = {name: [] for name in (*shape.ours, "nbdkit", "qemu-nbd")}
    figures |= {disk.name: [] for disk in disks}
    for _ in range(runs):
        for name in (*shape.ours, "nbdkit", "qemu-nbd"):
            volumes.settle(servers[LOCAL].pid)
            figures[name].append(volumes.measure(servers[name], shape, seconds))
        for disk in disks:
            volumes.settle(servers[LOCAL].pid)
            figures[disk.name].append(disk.measure(shape, seconds))
    return figures


def rows_of(what: str, shape: Shape, figures: Mapping[str, Sequence[Figure]]) -> list[Row]:
    """Return the figures of a shape beside RBD with and without cache, and the better server."""

    rates = functools.partial(volumes.rates_of, figures)
    times = functools.partial(volumes.times_of, figures)
    best = max(("nbdkit", "qemu-nbd"), key=lambda name: rates(name).median)
    rows = []
    for ours in shape.ours:
        is_aimed = ours == THROUGH
        target = f">= {RBD_TARGET:g}x" if is_aimed else ""
        met = comparison.at_least(RBD_TARGET) if is_aimed else None
        rows += [
            Row(f"{what}: {ours}", rates(ours), rates(peer), target, met)
            for peer in (DIRECT, CACHED)
        ]
        rows.append(Row(f"{what}: {ours}", rates(ours), rates(best)))
        rows.append(Row(f"{what}: {ours}: server's time", times(ours), times(DIRECT)))
    return rows


def main() -> int:
    options = volumes.arguments(__doc__ or "", SECONDS).parse_args()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        base = tempfile.TemporaryDirectory(dir=options.directory, prefix="acr-")
        directory = pathlib.Path(stack.enter_context(base))
        node = stack.enter_context(ceph_node(directory / "ceph", OSD_BYTES))
        node.make_pool(POOL)
        node.run("rbd", "pool", "init", POOL)
        disks = [RbdDisk(node, name) for name in RBD]
        for disk in disks:
            disk.fill()
        _, servers = stack.enter_context(
            volumes.running_volumes(directory, node.origin_url(POOL, timeout=CALL_S))
        )
        servers |= stack.enter_context(volumes.running_peers(directory))
        servers.pop(QCOW2)
        for what, shape in SHAPES.items():
            if options.only and options.only not in what:
                continue
            figures = measured(servers, disks, shape, options.runs, options.seconds)
            volumes.print_medians(what, figures)
            rows += rows_of(what, shape, figures)
        title = f"Volumes and RBD of Ceph {node.version()} on one node"
    comparison.report(title, rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
