"""The guests of a storm: replays of boots, all of them children of one process.

Runs as a process of its own (``python -m bench.acstor.guests FILE``). It reads the traces once and
forks a child per guest, which costs a millisecond where a process of its own would cost a
processor a tenth of a second, 160 times. Each line that it prints is one guest's result. A guest
that is not done at the deadline is killed and prints nothing.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from acstor.exception import AcstorError
from testbed import boot_trace
from testbed.boot_trace import BootTrace
from testbed.replay import ReplayResult, replay

FAILURE_LENGTH_MAX = 300


@dataclasses.dataclass(frozen=True)
class Guest:
    """One guest."""

    name: str
    host: str
    trace: str
    disk: str
    start_s: float
    """After the storm's start."""
    served_bytes: int = 0
    """Bytes that it reads and writes, on its host's own disk as well; 0: what it reads."""


@dataclasses.dataclass(frozen=True)
class GuestResult:
    """Result of one guest: its boot, its reads, or its failure."""

    guest: str
    host: str
    boot_time_s: float | None
    waited_s: float | None = None
    latency_p50_us: float | None = None
    latency_p99_us: float | None = None
    bytes_read: int = 0
    failure: str | None = None
    served_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Crowd:
    """All guests of a storm."""

    guests: Sequence[Guest]
    think_scale: float
    deadline_s: float
    """After the storm's start."""

    def save(self, path: pathlib.Path) -> None:
        """Write it."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: pathlib.Path) -> "Crowd":
        """Read what :meth:`save` wrote."""
        fields = json.loads(path.read_text())
        guests = [Guest(**guest) for guest in fields["guests"]]
        return cls(guests, float(fields["think_scale"]), float(fields["deadline_s"]))


def completed(guests: Iterable[Guest], found: Iterable[GuestResult]) -> list[GuestResult]:
    """Return a result for every guest: those that said nothing did not boot."""
    by_name = {result.guest: result for result in found}
    return [
        by_name.get(
            guest.name, GuestResult(guest.name, guest.host, None, failure="not done in time")
        )
        for guest in guests
    ]


def run(crowd: Crowd) -> Iterator[str]:
    """Start all guests; yield a line for each that ended, as it comes."""
    traces = {name: boot_trace.load(pathlib.Path(name)) for name in {g.trace for g in crowd.guests}}
    reading, writing = os.pipe()
    started = time.monotonic()
    children = []
    for guest in crowd.guests:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                _child(guest, traces[guest.trace], crowd, started, writing)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(writing)
    with open(reading, encoding="utf-8") as lines:
        yield from lines
    for child in children:
        os.waitpid(child, 0)


def _child(guest: Guest, trace: BootTrace, crowd: Crowd, started: float, writing: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, crowd.deadline_s)  # ends this process
    time.sleep(max(0.0, started + guest.start_s - time.monotonic()))
    try:
        found = replay(trace, pathlib.Path(guest.disk), think_scale=crowd.think_scale)
        result = _result(guest, found)
    except (AcstorError, OSError) as error:
        failure = " ".join(str(error).split())[:FAILURE_LENGTH_MAX]
        result = GuestResult(guest.name, guest.host, None, failure=failure)
    # Shorter than PIPE_BUF, so lines of several children do not mix.
    os.write(writing, json.dumps(dataclasses.asdict(result)).encode() + b"\n")


def _result(guest: Guest, found: ReplayResult) -> GuestResult:
    return GuestResult(
        guest.name,
        guest.host,
        found.elapsed_s,
        found.waited_s,
        found.latency_p50_us,
        found.latency_p99_us,
        found.bytes_read,
        served_bytes=guest.served_bytes or found.bytes_read,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a crowd and print a line per guest."""
    parser = argparse.ArgumentParser(prog="bench.acstor.guests", description=__doc__)
    parser.add_argument("crowd", type=pathlib.Path)
    parsed = parser.parse_args(arguments)
    for line in run(Crowd.load(parsed.crowd)):
        sys.stdout.write(line)
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
