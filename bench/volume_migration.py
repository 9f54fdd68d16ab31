"""The pause of a guest whose volume follows it to another host, over an origin of 1 Gbit/s.

Real data planes; the origin is a directory behind HTTP, every byte to and from it passes one link.
The guest at the source is QEMU's own block driver (qemu-io), which writes 64 KiB every 4 ms. It has
written gigabytes before that were never pushed. Then, as in a live migration:

  open      the destination opens the volume and reads the first sector, as QEMU does at its start;
            its owner answers that
  copy      the guest writes on at the source, for as long as its memory would be copied
  move      it stops there, and writes at the destination

``source`` is the guest's longest request until it moved, ``move`` its first at the destination, and
``open`` the read of the first sector, for which no guest waits: from the request to its answer, in
time of the wall. A run of the code before and one of now, in turns, are a pair: ``PYTHONPATH`` says
which code is measured.

One command: ``python -m bench.volume_migration [--json FILE]``. Needs root, fio and qemu-utils.
"""

import contextlib
import os
import pathlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from acstor.origin import base
from acstor.origin.opening import open_origin
from acstor.repository.volumes.durability import Durability, DurabilityClass
from bench import comparison
from bench.comparison import Row, Series
from bench.volume_durations import MIB, TimedClient
from testbed import processes
from testbed.fixtures import host_volumes
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import Volumes, call, open_volume, state
from testbed.fixtures.hosts import Cloud, Host, cloud_in
from testbed.origin_server import OriginServer

LINK_BYTES_PER_S = 1e9 / 8
SIZE = 6 << 30
GUEST_BYTES = 256 * MIB
"""Bytes at the beginning of the guest's disk that it writes to."""
BLOCK = 64 << 10
PACE_S = 0.004
COPY_S = 10.0
LONG_S = 600.0
RUNS = 3
DIRTY_MIB = 4096
NEVER = Durability(DurabilityClass.WRITE_BACK, period_s=86400.0)
"""Nothing is pushed but for the migration."""


class LinkedOriginServer(OriginServer):
    """Serves an origin behind a link that carries one byte after the other."""

    def __init__(self, origin: base.Origin) -> None:
        super().__init__(("127.0.0.1", 0), origin)
        self._lock = threading.Lock()
        self._free_at = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def note_answer(self, command: str, path: str, received: int, sent: int) -> None:
        """Have the answer wait until the link has carried the request."""
        size = received if command == "HEAD" else received + sent
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / LINK_BYTES_PER_S
            until = self._free_at
        time.sleep(max(0.0, until - time.monotonic()))


class PacedWriter(threading.Thread):
    """A guest: writes a block anywhere in its part of the disk every few milliseconds."""

    def __init__(self, client: TimedClient, pattern: pathlib.Path) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self._client = client
        self._pattern = pattern
        self._is_stopping = threading.Event()
        self._rng = random.Random(1)

    def run(self) -> None:
        while not self._is_stopping.wait(PACE_S):
            offset = self._rng.randrange(GUEST_BYTES // BLOCK) * BLOCK
            taken = self._client.ask(f"write -s {self._pattern} {offset} {BLOCK}")
            self.longest = max(self.longest, taken)

    def stop(self) -> None:
        self._is_stopping.set()
        self.join(LONG_S)
        if self.is_alive():
            raise SystemExit("a write of the guest is not answered")


def fill(opened: dict[str, object], dirty_mib: int) -> None:
    """Write behind the guest's part what nothing compresses."""
    if dirty_mib:
        command = ["fio", "--name=fill", "--ioengine=nbd", f"--uri={host_volumes.uri(opened)}"]
        command += [f"--offset={GUEST_BYTES}", f"--size={dirty_mib}m", "--rw=write", "--bs=1m"]
        processes.run([*command, "--iodepth=4", "--refill_buffers"], timeout_s=LONG_S)


def migrate(
    control: Volumes, source: Host, destination: Host, dirty_mib: int, pattern: pathlib.Path
) -> tuple[float, float, float]:
    """Return the guest's longest request at the source, its first at the destination, and how long
    the destination waited for its first sector; seconds."""
    volume = control.create(SIZE, source, durability=NEVER)
    opened = open_volume(source, volume)
    fill(opened, dirty_mib)
    with TimedClient(opened) as client:
        writer = PacedWriter(client, pattern)
        writer.start()
        control.store.begin_standby(volume, destination.name)
        standby = call(destination, "open", volume, role="standby")
        with TimedClient(standby) as qemu:
            opening = qemu.ask("read 0 512")
            is_back = lambda: state(source, volume) == "serving"  # noqa: E731
            wait_for("the guest goes on at the source", is_back, LONG_S)
            time.sleep(COPY_S)
            writer.stop()
            move = qemu.ask(f"write -s {pattern} 0 {BLOCK}")
    call(source, "close", volume, force=True)
    control.store.disallow_host(volume, source.name)
    call(destination, "close", volume, force=True)
    control.store.disallow_host(volume, destination.name)
    control.store.delete(volume)
    return writer.longest, move, opening


def migrations(cloud: Cloud, dirty_mib: int, runs: int) -> Iterator[Row]:
    """Migrate a volume some times, each time a new one."""
    control = Volumes(cloud)
    server = LinkedOriginServer(open_origin(f"posix://{cloud.origin}", 30))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pattern = cloud.path / "pattern"
    pattern.write_bytes(os.urandom(BLOCK))
    source, destination = (
        cloud.add_host(agent=False, origin={"url": server.url}) for _ in range(2)
    )
    found = []
    for _ in range(runs):
        found.append(migrate(control, source, destination, dirty_mib, pattern))
        source, destination = destination, source
    server.shutdown()
    server.server_close()
    for what, values in zip(("source", "move", "open"), zip(*found, strict=True), strict=True):
        yield Row(f"{what}: {dirty_mib} MiB dirty", Series("pause", "s", values))


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument(
        "--directory", type=pathlib.Path, default=pathlib.Path("/var/tmp"),
        help="where everything lies: on the disk to measure (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--dirty", type=int, default=DIRTY_MIB,
        help="MiB that were never pushed (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        base_path = tempfile.TemporaryDirectory(dir=options.directory, prefix="acm-")
        cloud = stack.enter_context(cloud_in(pathlib.Path(stack.enter_context(base_path))))
        for row in migrations(cloud, options.dirty, min(options.runs, RUNS)):
            print(f"{row.what:48} {row.ours.text()}", file=sys.stderr)
            rows.append(row)
    comparison.report("Live migration of a volume", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
