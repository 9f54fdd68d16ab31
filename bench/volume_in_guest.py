"""I/O of a volume as a guest sees it: fio in a real guest, beside local files and other servers.

One guest has all disks at once, attached as libvirt does for Nova (virtio-blk, no host cache,
trim); fio runs in it on one after the other, in turns. Every disk is 512 MiB, written once, on the
same file system of the host.

  acstor          write-back, its period longer than the benchmark: the local log alone
  acstor-pushing  write-back every second, folding by default
  nbdkit          file plugin on a raw file
  qemu-nbd        ``--cache=writeback`` on a raw file
  raw, qcow2      local files, without any server: QEMU's direct I/O (aio=native)

Targets: at least 0.8 times the better of nbdkit and qemu-nbd, fsync'd writes at least as fast as
qcow2. Under emulation (``tcg``; what is used is printed) the guest's processor is the limit of
small requests and makes all alike: what QEMU used of a processor says how much. What a server costs
shows :mod:`bench.volumes`, without a guest.

Needs root, QEMU, nbdkit and what builds the guest (mmdebstrap, cargo). One command:
``python -m bench.volume_in_guest [--json FILE]``.
"""

import contextlib
import dataclasses
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from bench import comparison, nbd, served_disk, volumes
from bench.comparison import Row, Series
from bench.nbd import Server
from bench.volumes import LOCAL, PUSHING, QCOW2, SIZE, Shape
from testbed import accelerator, processes
from testbed.fixtures import host_volumes
from testbed.fixtures.host_volumes import Volumes
from testbed.fixtures.hosts import cloud_in
from testbed.guest.exerciser import build_exerciser
from testbed.guest.exerciser_machine import (
    ExerciserMachine,
    GuestDisk,
    file_disk,
    nbd_disk,
)
from testbed.run_directory import DEFAULT_ROOT

GUESTS = DEFAULT_ROOT / "guests"
SECONDS = 2
SERVERS = ("nbdkit", "qemu-nbd")
RAW = "raw"
PEERS = (*SERVERS, RAW, QCOW2)
BOTH = (LOCAL, PUSHING)
SHAPES = {
    "random read 4 KiB, depth 1": Shape("randread", "4k", 1, (LOCAL,), target=0.8),
    "random read 4 KiB, depth 32": Shape("randread", "4k", 32, (LOCAL,), target=0.8),
    "random write 4 KiB, depth 1": Shape("randwrite", "4k", 1, (LOCAL,), target=0.8),
    "random write 4 KiB, depth 32": Shape("randwrite", "4k", 32, BOTH, target=0.8),
    "read 64 KiB, depth 8": Shape("read", "64k", 8, (LOCAL,), target=0.8),
    "write 64 KiB, depth 8": Shape("write", "64k", 8, (LOCAL,), target=0.8),
    "read 1 MiB, depth 4": Shape("read", "1M", 4, (LOCAL,), target=0.8),
    "write 1 MiB, depth 4": Shape("write", "1M", 4, BOTH, target=0.8),
    "write 4 KiB, fsync after each": Shape("randwrite", "4k", 1, BOTH, fsync=1, target=1.0),
    "write 4 KiB, fsync after 8": Shape("randwrite", "4k", 1, (LOCAL,), fsync=8, target=1.0),
}


@dataclasses.dataclass(frozen=True)
class GuestFigure:
    """Result of one run of fio in the guest."""

    per_second: float
    qemu_share: float  #: of one processor, that QEMU used meanwhile


@contextlib.contextmanager
def volume_disks(directory: pathlib.Path) -> Iterator[tuple[int, dict[str, GuestDisk]]]:
    """Serve the volumes; give the data plane's process id and the disks, each written once."""
    with cloud_in(directory / "cloud") as cloud:
        host = cloud.add_host(agent=False)
        control = Volumes(cloud)
        pid = host.dataplane_pid()
        if pid is None:
            raise SystemExit(f"the data plane has ended: {host.log()}")
        disks = {}
        for name in BOTH:
            volume = control.create(SIZE, host, durability=volumes.WRITABLE[name])
            opened = host_volumes.open_volume(host, volume)
            volumes.fill(Server(host_volumes.uri(opened), pid), "write")
            disks[name] = nbd_disk(name, opened["socket"], opened["export"])
        yield pid, disks


@contextlib.contextmanager
def peer_disks(directory: pathlib.Path) -> Iterator[dict[str, GuestDisk]]:
    """Serve the peers; each has a file of its own, without holes."""
    content = directory / f"{RAW}.img"
    served_disk.write_random(content, SIZE)
    qcow2 = directory / "local.qcow2"
    processes.run(
        ["qemu-img", "convert", "-S", "0", "-O", "qcow2", str(content), str(qcow2)], timeout_s=120
    )
    commands = volumes.peers(directory)
    with contextlib.ExitStack() as stack:
        disks = {}
        for name in SERVERS:
            server = stack.enter_context(nbd.served(name, commands[name], directory))
            volumes.fill(server, "write")
            disks[name] = nbd_disk(name, str(directory / f"{name}.sock"), "disk")
        yield {**disks, RAW: file_disk(RAW, content), QCOW2: file_disk(QCOW2, qcow2, "qcow2")}


def measure(machine: ExerciserMachine, disk: str, shape: Shape, seconds: int) -> GuestFigure:
    """Run fio in the guest on one of its disks."""
    command = (
        f"fio --name=bench --filename=$(disk {disk}) --direct=1 --ioengine=libaio --rw={shape.rw} "
        f"--bs={shape.block} --iodepth={shape.depth} --fsync={shape.fsync} --randrepeat=1 "
        f"--time_based --runtime={seconds} --output-format=json"
    )
    used, started = served_disk.cpu_seconds(machine.pid), time.monotonic()
    output = machine.console.run(command)
    elapsed = time.monotonic() - started
    share = (served_disk.cpu_seconds(machine.pid) - used) / elapsed
    job = json.loads(output[output.index("{") :])["jobs"][0]
    return GuestFigure(float(job["read" if shape.is_read else "write"]["iops"]), share)


def measured(
    machine: ExerciserMachine, pid: int, shape: Shape, runs: int, seconds: int
) -> dict[str, list[GuestFigure]]:
    """Measure all disks, in turns."""
    figures: dict[str, list[GuestFigure]] = {name: [] for name in (*shape.ours, *PEERS)}
    for _ in range(runs):
        for name, values in figures.items():
            volumes.settle(pid)
            values.append(measure(machine, name, shape, seconds))
    return figures


def rows_of(what: str, shape: Shape, figures: Mapping[str, Sequence[GuestFigure]]) -> list[Row]:
    """Return the figures of a shape beside the better server and beside both local files."""

    def rates(name: str) -> Series:
        return Series(name, "/s", [figure.per_second for figure in figures[name]])

    def shares(name: str) -> Series:
        return Series(name, "of a CPU", [max(each.qemu_share, 0.01) for each in figures[name]])

    best = max(SERVERS, key=lambda name: rates(name).median)
    judge = QCOW2 if shape.fsync else best
    rows = []
    for ours in shape.ours:
        for peer in (best, RAW, QCOW2):
            target, met = "", None
            if peer == judge and shape.target is not None:
                target, met = f">= {shape.target:g}x", comparison.at_least(shape.target)
            rows.append(Row(f"{what}: {ours}", rates(ours), rates(peer), target, met))
        rows.append(Row(f"{what}: {ours}: QEMU's processor", shares(ours), shares(best)))
    return rows


def main() -> int:
    options = volumes.arguments(__doc__ or "", SECONDS).parse_args()
    image = build_exerciser(GUESTS)
    chosen = accelerator.choose(image.kernel, GUESTS)
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        base = tempfile.TemporaryDirectory(dir=options.directory, prefix="acg-")
        directory = pathlib.Path(stack.enter_context(base))
        (directory / "cloud").mkdir()
        pid, ours = stack.enter_context(volume_disks(directory))
        disks = [*ours.values(), *stack.enter_context(peer_disks(directory)).values()]
        machine = ExerciserMachine(image, chosen, directory / "guest", disks)
        stack.enter_context(machine)
        for what, shape in SHAPES.items():
            if options.only and options.only not in what:
                continue
            figures = measured(machine, pid, shape, options.runs, options.seconds)
            volumes.print_medians(what, figures)
            rows += rows_of(what, shape, figures)
    title = f"Volumes in a guest ({chosen.name}, one processor)"
    comparison.report(title, rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
