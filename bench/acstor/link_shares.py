"""Measurement of ``traffic.left_share``: the share of a link full of UDP that is left to chunks.

Groups of hosts as the evaluation has them: one host exchanges extra traffic with five others
(:mod:`bench.acstor.extra_traffic`, so much of its link sent and as much received), and obtains
chunks from the same five, or serves them. A connection asks for the next 64 KiB when it has the
last, as a data plane does for a guest that reads one chunk after the other. All groups are
measured at once; their links are their own.
"""

import contextlib
import dataclasses
import itertools
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.acstor import extra_traffic
from bench.acstor.extra_traffic import Flow, Host, Plan
from bench.acstor.images import CHUNK_SIZE
from bench.acstor.namespace_calls import in_namespace
from bench.acstor.settings import RATE, ROOT
from testbed import processes
from testbed.exception import TestbedError
from testbed.network import Namespace
from testbed.rates import LinkRate
from testbed.testbed import Testbed, TestbedSettings

PARTNERS = 5
LOADS = (0.9, 0.95, 1.0, 1.1)
"""UDP each way, as shares of a link's rate."""
CONNECTIONS = (1, 4, 16)
CONGESTION_CONTROLS = ("cubic", "bbr")
WARM_UP_S = 2.0
SECONDS = 6.0
READY_TIMEOUT_S = 20.0
STALL_TIMEOUT_S = 60.0
FETCHES, SERVES = "fetches", "serves"
_REQUEST = 48


@dataclasses.dataclass(frozen=True)
class Share:
    """One measurement."""

    congestion_control: str
    direction: str
    """Direction of the host with the full link: it fetches chunks, or serves them."""
    connections: int
    load: float
    turn: int
    share: float
    """Of the link's rate, bytes of chunks that arrived."""
    fetch_p50_s: float | None
    """Median time of a chunk; None: none arrived whole."""


class _Counter:
    """Counter of the bytes that arrive over the connections of one group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._seconds: list[float] = []

    def add(self, count: int) -> None:
        with self._lock:
            self._bytes += count

    def add_chunk(self, seconds: float) -> None:
        with self._lock:
            self._seconds.append(seconds)

    def take(self) -> tuple[int, list[float]]:
        """Return bytes and times of chunks since the last call."""
        with self._lock:
            found = self._bytes, self._seconds
            self._bytes, self._seconds = 0, []
        return found


def connected(
    client: Namespace, server: Namespace, congestion_control: str
) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection between two hosts, the client's first."""

    def choose(one: socket.socket) -> None:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.settimeout(READY_TIMEOUT_S)

    def connect() -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        choose(one)
        one.connect(listener.getsockname())
        return one

    listener = in_namespace(
        server.namespace, lambda: socket.create_server((server.address, 0), backlog=4)
    )
    with listener:
        choose(listener)
        asking = in_namespace(client.namespace, connect)
        serving, _ = listener.accept()
    for end in (asking, serving):
        end.settimeout(STALL_TIMEOUT_S)
    return asking, serving


class Connections:
    """Connections over which chunks are served and fetched, until they are closed."""

    def __init__(self, congestion_control: str) -> None:
        self._congestion_control = congestion_control
        self._closing = contextlib.ExitStack()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def fetch(self, client: Namespace, server: Namespace, counter: _Counter) -> None:
        """Begin to fetch one chunk after the other over one more connection."""
        asking = self.open(client, server)
        self._run(lambda: self._fetch(asking, counter))

    def open(self, client: Namespace, server: Namespace) -> socket.socket:
        """Return the client's end of one more connection; who asks there gets chunks."""
        asking, serving = connected(client, server, self._congestion_control)
        for end in (asking, serving):
            self._closing.callback(end.close)
            self._closing.callback(_shut_down, end)
        self._run(lambda: self._serve(serving))
        return asking

    def close(self) -> None:
        """End all connections."""
        self._stop.set()
        self._closing.close()
        for thread in self._threads:
            thread.join(READY_TIMEOUT_S)

    def _run(self, action: Callable[[], None]) -> None:
        def quietly() -> None:
            # An end that was closed under it, or that stalled: what arrived before counts.
            with contextlib.suppress(OSError):
                action()

        thread = threading.Thread(target=quietly, name="connection", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _serve(self, end: socket.socket) -> None:
        content = bytes(CHUNK_SIZE)
        while not self._stop.is_set() and _receive(end, _REQUEST):
            end.sendall(content)

    def _fetch(self, end: socket.socket, counter: _Counter) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            if not ask(end, counter.add):
                return
            counter.add_chunk(time.monotonic() - began)


def ask(end: socket.socket, on_bytes: Callable[[int], None] = lambda count: None) -> bool:
    """Fetch a chunk; return False where the other end was closed before it was there."""
    end.sendall(bytes(_REQUEST))
    return _receive(end, CHUNK_SIZE, on_bytes)


def _shut_down(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _receive(
    end: socket.socket, count: int, on_bytes: Callable[[int], None] = lambda count: None
) -> bool:
    """Receive so many bytes; return False where the other end was closed before."""
    left = count
    while left > 0:
        part = len(end.recv(min(left, CHUNK_SIZE)))
        if part == 0:
            return False
        on_bytes(part)
        left -= part
    return True


def available(wanted: Sequence[str] = CONGESTION_CONTROLS) -> tuple[str, ...]:
    """Return those congestion controls that this kernel has."""
    found = []
    for name in wanted:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe,
        ):
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            found.append(name)
    return tuple(found)


def flows(groups: int, load: float, link: float) -> list[Flow]:
    """Return UDP that takes ``load`` of the links of each group's first host, both ways.

    :param link: bytes per second.
    """
    size, rate = PARTNERS + 1, load * link / PARTNERS
    found = []
    for first in range(0, groups * size, size):
        for partner in range(first + 1, first + size):
            found += [Flow(first, partner, rate), Flow(partner, first, rate)]
    return found


def measure(
    rate: LinkRate = RATE,
    turns: int = 3,
    seconds: float = SECONDS,
    loads: Sequence[float] = LOADS,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> list[Share]:
    """Measure every load, congestion control, direction and number of connections.

    :param rate: of every link.
    :raises TestbedError: when the hosts cannot be made, or traffic does not start.
    """
    controls = available()
    if not controls:
        raise TestbedError(f"this kernel has none of {', '.join(CONGESTION_CONTROLS)}")
    kinds = list(itertools.product((FETCHES, SERVES), CONNECTIONS))
    rounds = list(itertools.product(range(turns), loads, controls))
    found: list[Share] = []
    settings = TestbedSettings(len(kinds) * (PARTNERS + 1), rate, rate)
    with Testbed.create(settings) as testbed:
        for number, (turn, load, control) in enumerate(rounds):
            on_done(number, len(rounds))
            with extra(testbed, flows(len(kinds), load, rate.bytes_per_s), f"{number}"):
                for (direction, connections), (share, median) in _round(
                    testbed.hosts, kinds, control, rate, seconds
                ).items():
                    found.append(Share(control, direction, connections, load, turn, share, median))
    return found


def _round(
    hosts: Sequence[Namespace],
    kinds: Sequence[tuple[str, int]],
    control: str,
    rate: LinkRate,
    seconds: float,
) -> dict[tuple[str, int], tuple[float, float | None]]:
    """Return share and median time of a chunk by direction and number of connections."""
    size = PARTNERS + 1
    counters = {kind: _Counter() for kind in kinds}
    open_ = Connections(control)
    try:
        for group, (direction, connections) in enumerate(kinds):
            full, *partners = hosts[group * size : (group + 1) * size]
            for number in range(connections):
                partner = partners[number % PARTNERS]
                ends = (full, partner) if direction == FETCHES else (partner, full)
                open_.fetch(*ends, counters[direction, connections])
        time.sleep(WARM_UP_S)
        for counter in counters.values():
            counter.take()
        began = time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - began
        taken = {kind: counter.take() for kind, counter in counters.items()}
    finally:
        open_.close()
    return {
        kind: (count / elapsed / rate.bytes_per_s, statistics.median(times) if times else None)
        for kind, (count, times) in taken.items()
    }


@contextlib.contextmanager
def extra(testbed: Testbed, wanted: Sequence[Flow], name: str) -> Iterator[None]:
    """Send flows between the hosts of a testbed while the context lasts."""
    path = testbed.run.directory("traffic") / f"{name}.json"
    Plan(
        [Host(host.namespace, host.address) for host in testbed.hosts],
        wanted,
        extra_traffic.SECONDS_MAX,
    ).save(path)
    sending = testbed.table.spawn(
        f"traffic-{name}",
        [sys.executable, "-m", "bench.acstor.extra_traffic", str(path)],
        env={"PYTHONPATH": str(ROOT)},
    )
    try:
        processes.wait_until(
            lambda: b"sending" in sending.log_path.read_bytes(),
            "extra traffic is sent",
            timeout_s=READY_TIMEOUT_S,
            processes=[sending],
        )
        yield
    finally:
        testbed.table.stop(sending)


def medians(found: Sequence[Share]) -> Mapping[tuple[str, str, int, float], tuple[float, ...]]:
    """Return (median, least, greatest share, median of the medians of a chunk's time in s).

    By congestion control, direction, connections and load. A time is NaN where no chunk arrived.
    """
    groups: dict[tuple[str, str, int, float], list[Share]] = {}
    for one in found:
        key = (one.congestion_control, one.direction, one.connections, one.load)
        groups.setdefault(key, []).append(one)
    result = {}
    for key, ones in groups.items():
        shares = [one.share for one in ones]
        times = [one.fetch_p50_s for one in ones if one.fetch_p50_s is not None]
        result[key] = (
            statistics.median(shares), min(shares), max(shares),
            statistics.median(times) if times else float("nan"),
        )  # fmt: skip
    return result


def table(found: Sequence[Share]) -> list[list[str]]:
    """Return a table, header first: medians of the turns, a column per load."""
    loads = sorted({one.load for one in found})
    rows = [["TCP", "the host", "connections", *(f"at {load:.0%}" for load in loads),
             *(f"ms at {load:.0%}" for load in loads)]]  # fmt: skip
    by_key = medians(found)
    for control, direction, connections in sorted({key[:3] for key in by_key}):
        cells = [control, direction, str(connections)]
        values = [by_key[control, direction, connections, load] for load in loads]
        cells += [f"{value[0]:.3f} ({value[1]:.3f}-{value[2]:.3f})" for value in values]
        cells += [f"{value[3] * 1e3:.0f}" for value in values]
        rows.append(cells)
    return rows
