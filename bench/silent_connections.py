"""A reader of chunks beside 10,000 connections to the peer port that say nothing.

Latency of 64 KiB at one connection and depth 1 (p50, p99) and throughput of 4 connections at depth
16, by ``peer_bench`` of ``crates/peer`` with TLS over the loopback interface: alone, and while a
process keeps the silent connections up, from 250 addresses, making those that the server closed
again after five seconds. Each run makes the reader's connections anew, among the silent ones. How
many of those the server closed, and how many it had at most, is printed beside.

Needs cargo, and 11,000 descriptors for a process. One command:
``python -m bench.silent_connections [--json FILE]``.
"""

import heapq
import json
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from acstor.testbed import processes
from bench import comparison, peer_link
from bench.comparison import Row, Series

COUNT = 10_000
SOURCES = 250
REOPEN_AFTER_S = 5.0
SECONDS = 5
HELD_TIMEOUT_S = 120.0
SHAPES = peer_link.SHAPES


class SilentConnections:
    """Connections to a server that are made again when it closes them.

    :param address: of the server.
    :param count: connections.
    """

    def __init__(self, address: tuple[str, int], count: int) -> None:
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._due = [(0.0, number) for number in range(count)]
        self.opened = 0
        self.closed = 0

    def step(self) -> None:
        """Make what is due, and see what was closed."""
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            self._open(heapq.heappop(self._due)[1])
        for key, _ in self._selector.select(0.05):
            self._close(key)

    def _open(self, number: int) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.bind((f"127.0.2.{1 + number % SOURCES}", 0))
        connection.connect_ex(self._address)
        self._selector.register(connection, selectors.EVENT_READ, number)
        self.opened += 1

    def _close(self, key: selectors.SelectorKey) -> None:
        # It says nothing to who says nothing: readable is closed.
        self._selector.unregister(key.fileobj)
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
        self.closed += 1
        heapq.heappush(self._due, (time.monotonic() + REOPEN_AFTER_S, key.data))


def hold(host: str, port: int, count: int) -> None:
    """Keep connections up until the standard input ends; then print what became of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    silent = SilentConnections((host, port), count)
    stop = selectors.DefaultSelector()
    stop.register(sys.stdin, selectors.EVENT_READ)
    is_told = False
    while not stop.select(0):
        silent.step()
        if silent.opened >= count and not is_told:
            print("held", flush=True)
            is_told = True
    print(json.dumps({"opened": silent.opened, "closed": silent.closed}), flush=True)


class Server:
    """``peer_bench server`` with TLS on a free port."""

    def __init__(self, program: str, certificates: str) -> None:
        self.options = ["--mode", "tls", "--certificates", certificates]
        self._program = program
        self._process = subprocess.Popen(
            [program, "server", "--address", "127.0.0.1:0", *self.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def measure(self, shape: tuple[int, int]) -> dict[str, Any]:
        """Return what a client of so many connections and such a depth sees."""
        connections, depth = shape
        command = [self._program, "client", "--address", self.address, *self.options]
        command += ["--seconds", str(SECONDS), "--connections", str(connections)]
        result: dict[str, Any] = json.loads(processes.run([*command, "--depth", str(depth)]))
        return result

    def stop(self) -> None:
        """End it."""
        self._process.communicate(timeout=20)


def attacked(server: Server, shape: tuple[int, int]) -> dict[str, Any]:
    """Measure beside the silent connections."""
    host, _, port = server.address.rpartition(":")
    attacker = subprocess.Popen(
        [sys.executable, "-m", "bench.silent_connections", "hold", host, port, str(COUNT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert attacker.stdout is not None
    try:
        if attacker.stdout.readline().strip() != "held":
            raise SystemExit("the silent connections could not be made")
        result = server.measure(shape)
    finally:
        told, _ = attacker.communicate(timeout=HELD_TIMEOUT_S)
    print(f"silent connections: {told.strip()}")
    return result


def rows_of(name: str, alone: list[dict[str, Any]], beside: list[dict[str, Any]]) -> list[Row]:
    fields = [("p50_us", "us"), ("p99_us", "us"), ("throughput_mb_s", "MB/s")]
    return [
        Row(
            f"{name}: {field.split('_')[0]}",
            Series(f"beside {COUNT} silent", unit, [one[field] for one in beside]),
            Series("alone", unit, [one[field] for one in alone]),
        )
        for field, unit in fields
    ]


def main() -> int:
    options = comparison.arguments(__doc__ or "").parse_args()
    program = str(peer_link.build())
    rows = []
    with tempfile.TemporaryDirectory() as certificates:
        processes.run([program, "certificates", certificates, "127.0.0.1", "bench"])
        for name, shape in SHAPES.items():
            server = Server(program, certificates)
            try:
                runs = [
                    (server.measure(shape), attacked(server, shape)) for _ in range(options.runs)
                ]
            finally:
                server.stop()
            rows += rows_of(name, [one for one, _ in runs], [one for _, one in runs])
    title = f"A 64 KiB chunk from a peer beside {COUNT} silent connections"
    comparison.report(title, rows, options.json)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["hold"]:
        hold(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        sys.exit(0)
    sys.exit(main())
