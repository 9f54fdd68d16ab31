"""Connections that say nothing, all the time as many: ``silent_crowd.py HOST PORT COUNT REOPEN_S``.

Each has an address of 127.0.0.0/8 of its own, so that no limit of an address and no range of ports
bounds them. One that the server closes, or refuses, is made again after REOPEN_S seconds. Ends with
its standard input, and prints then what became of them.
"""

import collections
import dataclasses
import json
import os
import pathlib
import resource
import select
import socket
import subprocess
import sys
import threading
import time

from testbed import processes

SAMPLE_S = 0.5
FIRST_ADDRESS = 0x7F400000  # 127.64.0.0
START_TIMEOUT_S = 120.0
_EVENTS_MAX = 4096
_BURST = 1024
"""Connections that are made between two looks at what was closed."""


class Crowd:
    """The connections.

    :param address: of the server.
    """

    def __init__(self, address: tuple[str, int], count: int, reopen_s: float) -> None:
        self._address = address
        self._count = count
        self._reopen_s = reopen_s
        self._events = select.epoll()
        self._sockets: dict[int, tuple[socket.socket, int]] = {}
        self._due = collections.deque((0.0, number) for number in range(count))
        self.opened = 0
        self.closed = 0
        self.refused = 0

    @property
    def is_complete(self) -> bool:
        """True if each was made once."""
        return self.opened >= self._count

    def step(self) -> None:
        """Make what is due, and see what was closed."""
        now = time.monotonic()
        for _ in range(_BURST):
            if not self._due or self._due[0][0] > now:
                break
            self._open(self._due.popleft()[1])
        for descriptor, _ in self._events.poll(0 if self._due else 0.05, _EVENTS_MAX):
            self._close(descriptor, now)

    def _open(self, number: int) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.bind((socket.inet_ntoa((FIRST_ADDRESS + number).to_bytes(4, "big")), 0))
        connection.connect_ex(self._address)
        self._sockets[connection.fileno()] = connection, number
        self._events.register(connection, select.EPOLLIN | select.EPOLLRDHUP)
        self.opened += 1

    def _close(self, descriptor: int, now: float) -> None:
        # The server says nothing to who says nothing: an event is an end.
        connection, number = self._sockets.pop(descriptor)
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.refused += 1
        connection.close()
        self.closed += 1
        self._due.append((now + self._reopen_s, number))


def hold(host: str, port: int, count: int, reopen_s: float) -> None:
    """Keep the connections up until the standard input ends."""
    raise_descriptors()
    crowd = Crowd((host, port), count, reopen_s)
    began = time.monotonic()
    stop = select.poll()
    stop.register(sys.stdin, select.POLLIN | select.POLLHUP)
    is_told = False
    while not stop.poll(0):
        crowd.step()
        if crowd.is_complete and not is_told:
            is_told = True
            print("held", flush=True)
    seconds = time.monotonic() - began
    told = {"opened": crowd.opened, "closed": crowd.closed, "errors": crowd.refused}
    print(json.dumps(told | {"seconds": seconds}), flush=True)


def raise_descriptors() -> None:
    """Let this process, and what it starts, open as many files as the machine allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@dataclasses.dataclass(frozen=True)
class Sample:
    """Counts of connections at one moment."""

    established: int
    """By the kernel, at the server's end: accepted by the server or not yet."""
    server_sockets: int
    """Sockets that the server has open."""
    crowd_sockets: int
    """Sockets of the crowd: connected, being connected, or closed and not seen yet."""


class Counter:
    """Counts the connections of a server and of its crowd now and then until it is stopped."""

    def __init__(self, port: int, server_pid: int, crowd_pid: int) -> None:
        self._port = port
        self._pids = server_pid, crowd_pid
        self._stop = threading.Event()
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> list[Sample]:
        """Return what was counted."""
        self._stop.set()
        self._thread.join()
        return self.samples

    def _run(self) -> None:
        query = ["ss", "-Htn", "state", "established", f"sport = :{self._port}"]
        while not self._stop.wait(SAMPLE_S):
            established = len(processes.run(query).splitlines())
            self.samples.append(Sample(established, *map(_sockets, self._pids)))


def _sockets(pid: int) -> int:
    """Return how many sockets a process has open."""
    count = 0
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(entry).startswith("socket:")
        except OSError:
            continue  # closed meanwhile
    return count


class Attack:
    """A crowd in a process of its own, from the first connection of each on.

    :param counted_pid: the process whose connections are counted.
    """

    def __init__(self, host: str, port: int, count: int, reopen_s: float, counted_pid: int) -> None:
        command = [sys.executable, "-m", "bench.silent_crowd", host]
        self._process = subprocess.Popen(
            [*command, str(port), str(count), str(reopen_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._count = count
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "held":
            raise SystemExit("the silent connections could not be made")
        self._counter = Counter(port, counted_pid, self._process.pid)

    def stop(self) -> dict[str, float]:
        """End it and return how many there were."""
        samples = self._counter.stop()
        told, _ = self._process.communicate(timeout=START_TIMEOUT_S)
        found = json.loads(told.splitlines()[-1])
        return {
            "attempted_at_a_time": self._count,
            "opened_per_s": found["opened"] / found["seconds"],
            "closed": found["closed"],
            "errors": found["errors"],
            **_spread("established", [sample.established for sample in samples]),
            **_spread("server_sockets", [sample.server_sockets for sample in samples]),
            **_spread("crowd_sockets", [sample.crowd_sockets for sample in samples]),
        }


def _spread(name: str, values: list[int]) -> dict[str, float]:
    if not values:
        return {}
    middle = sorted(values)[len(values) // 2]
    return {f"{name}_min": min(values), f"{name}_p50": middle, f"{name}_max": max(values)}


if __name__ == "__main__":
    hold(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
