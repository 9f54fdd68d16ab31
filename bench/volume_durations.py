"""Durations that a user of a volume waits for: restart, live migration, recovery, detaching.

Real data planes, their origin a directory on the same disk; the client is QEMU's own block driver
(qemu-io), which reconnects as a guest's QEMU does. Times are of the wall.

  restart     the longest read of a client that reads 4 KiB every 2 ms, while the data plane is
              killed (SIGKILL) or replaced (``acstor host restart-dataplane``)
  hand-over   of a live migration that took 4 s: from the first request at the destination to its
              answer, which is push at the source, release, acquire at the destination, and the read
  recovery    from the start of the data plane after a crash of the host's programs to the volume
              being served again (the page cache outlives such a crash)
  close       of a volume in which everything is dirty: all of it goes to the origin
  open        afterwards, on another host, the log in the origin

Each with nothing dirty and with 1 GiB that the origin does not have: in requests of 1 MiB, and in
random ones of 4 KiB. One command: ``python -m bench.volume_durations [--json FILE]``. Needs root,
fio and qemu-utils.
"""

import contextlib
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from acstor.repository.volumes.durability import Durability, DurabilityClass
from bench import comparison
from bench.comparison import Row, Series
from testbed import processes
from testbed.fixtures import host_volumes
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import Volumes, call, open_volume, state
from testbed.fixtures.hosts import Cloud, Host, cloud_in

MIB = 1 << 20
SIZE = 1 << 30
RESTARTS = 10
HAND_OVERS = 10
CYCLES = 3
PACE_S = 0.002
LONG_S = 300.0
MIGRATION_S = 4.0
"""Seconds that a live migration takes before the guest goes on at the destination: the owner, which
looks every 3 s whether there is something for it, knows of it by then. A shorter one waits for
that."""
NEVER = Durability(DurabilityClass.WRITE_BACK, period_s=86400.0)
"""Nothing is pushed but for what is measured."""
HANDED_OVER = {"nothing dirty": 0, "64 MiB dirty": 64, "256 MiB dirty": 256}
#: What is written before, as arguments of fio; None: nothing.
DIRTY: dict[str, list[str] | None] = {
    "nothing dirty": None,
    "1 GiB dirty, 1 MiB each": ["--rw=write", "--bs=1M", "--iodepth=4"],
    "1 GiB dirty, 4 KiB each": ["--rw=randwrite", "--bs=4k", "--iodepth=32"],
}


class TimedClient:
    """A qemu-io that is asked one request after the other."""

    def __init__(self, opened: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            ["stdbuf", "-oL", "qemu-io", "--image-opts", host_volumes.image_options(opened)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> "TimedClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)

    def ask(self, request: str) -> float:
        """Return the seconds that a request takes.

        :raises SystemExit: when it fails.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        started = time.monotonic()
        self._process.stdin.write(request + "\n")
        said = self._process.stdout.readline()
        elapsed = time.monotonic() - started
        if "bytes at offset" not in said:
            raise SystemExit(f"{request} failed: {said}")
        self._process.stdout.readline()  # rates
        return elapsed


class PacedReader(threading.Thread):
    """Reads 4 KiB anywhere every 2 ms until it is stopped."""

    def __init__(self, client: TimedClient) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self._client = client
        self._is_stopping = threading.Event()
        self._rng = random.Random(1)

    def run(self) -> None:
        while not self._is_stopping.wait(PACE_S):
            offset = self._rng.randrange(SIZE // 4096) * 4096
            self.times.append(self._client.ask(f"read {offset} 4k"))

    def wait_reads(self, count: int) -> None:
        """Wait for so many more."""
        wanted = len(self.times) + count
        wait_for(
            "the client reads",
            lambda: len(self.times) >= wanted or not self.is_alive(),
            host_volumes.RECONNECT_DELAY,
        )
        if not self.is_alive():
            raise SystemExit("a read failed")

    def stop(self) -> None:
        self._is_stopping.set()
        self.join(host_volumes.RECONNECT_DELAY)


def write(opened: dict[str, Any], arguments: list[str] | None) -> None:
    """Write the whole volume once with bytes that nothing compresses, and flush."""
    if arguments is not None:
        command = ["fio", "--name=fill", "--ioengine=nbd", f"--uri={host_volumes.uri(opened)}"]
        command += [f"--size={SIZE}", "--refill_buffers", "--end_fsync=1", *arguments]
        processes.run(command, timeout_s=LONG_S)


def restart(host: Host, how: Callable[[Host], None], reader: PacedReader) -> float:
    """Return the longest read around a restart, seconds."""
    reader.wait_reads(20)
    killed = host.dataplane_pid()
    if killed is None:
        raise SystemExit(host.log())
    first = len(reader.times)
    how(host)
    host.wait_restarted(killed)
    reader.wait_reads(50)
    return max(reader.times[first:])


def planned(host: Host) -> None:
    """Restart as an upgrade does."""
    done = host.command("host", "restart-dataplane")
    if done.returncode != 0:
        raise SystemExit(done.stderr)


def restarts(cloud: Cloud, control: Volumes, runs: int) -> Iterator[Row]:
    """Measure the pause of restarts."""
    host = cloud.add_host(agent=False)
    for what, arguments in DIRTY.items():
        volume = control.create(SIZE, host, durability=NEVER)
        opened = open_volume(host, volume)
        write(opened, arguments)
        with TimedClient(opened) as client:
            reader = PacedReader(client)
            reader.start()
            for name, how in (("killed", Host.kill_dataplane), ("replaced", planned)):
                times = [restart(host, how, reader) for _ in range(max(runs, RESTARTS))]
                yield Row(f"restart, {name}: {what}", Series("pause", "s", times))
            reader.stop()
        call(host, "close", volume, force=True)


def hand_overs(cloud: Cloud, control: Volumes, runs: int) -> Iterator[Row]:
    """Measure the first request at the destination of a live migration."""
    source, destination = cloud.add_host(agent=False), cloud.add_host(agent=False)
    volume = control.create(SIZE, source, durability=NEVER)
    opened = open_volume(source, volume)
    for what, count in HANDED_OVER.items():
        times = []
        for turn in range(max(runs, HAND_OVERS)):
            with TimedClient(opened) as client:
                for piece in range(count):
                    client.ask(f"write -P {turn + 1} {piece * MIB} 1M")
            control.store.begin_standby(volume, destination.name)
            opened = call(destination, "open", volume, role="standby")
            time.sleep(MIGRATION_S)
            with TimedClient(opened) as client:
                times.append(client.ask("read 0 4k"))
            call(source, "close", volume, force=True)
            control.store.disallow_host(volume, source.name)
            source, destination = destination, source
        yield Row(f"hand-over: {what}", Series("pause", "s", times))
    call(source, "close", volume, force=True)


def timed(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def recover(host: Host, volume: str) -> float:
    """Return the seconds from the start of a data plane to the volume being served."""
    host.vanish()

    def come_back() -> None:
        host.start_dataplane()
        wait_for("the volume is served", lambda: state(host, volume) == "serving", LONG_S)

    return timed(come_back)


def cycle(
    control: Volumes, source: Host, destination: Host, arguments: list[str] | None
) -> dict[str, float]:
    """Return the seconds of recovery, close, and open on another host, of one volume."""
    volume = control.create(SIZE, source, durability=NEVER)
    write(open_volume(source, volume), arguments)
    found = {"recovery": recover(source, volume)}
    found["close"] = timed(lambda: call(source, "close", volume, force=False))
    control.move(volume, source, destination)
    found["open"] = timed(lambda: open_volume(destination, volume))
    call(destination, "close", volume, force=True)
    control.store.disallow_host(volume, destination.name)
    control.store.delete(volume)
    return found


def cycles(cloud: Cloud, control: Volumes, runs: int) -> Iterator[Row]:
    """Measure recovery, close, and open on another host."""
    source, destination = cloud.add_host(agent=False), cloud.add_host(agent=False)
    for what, arguments in DIRTY.items():
        found = [cycle(control, source, destination, arguments) for _ in range(min(runs, CYCLES))]
        for name in found[0]:
            yield Row(f"{name}: {what}", Series("time", "s", [each[name] for each in found]))


PARTS = {"restart": restarts, "hand-over": hand_overs, "cycle": cycles}


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--only", choices=PARTS, help="of the parts")
    parser.add_argument(
        "--directory", type=pathlib.Path, default=pathlib.Path("/var/tmp"),
        help="where everything lies: on the disk to measure (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args()
    rows: list[Row] = []
    for name, part in PARTS.items():
        if options.only not in (None, name):
            continue
        with contextlib.ExitStack() as stack:
            base = tempfile.TemporaryDirectory(dir=options.directory, prefix="acd-")
            cloud = stack.enter_context(cloud_in(pathlib.Path(stack.enter_context(base))))
            for row in part(cloud, Volumes(cloud), options.runs):
                print(f"{row.what:48} {row.ours.text()}", file=sys.stderr)
                rows.append(row)
    comparison.report("Durations of volumes", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
