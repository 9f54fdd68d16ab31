"""Extra traffic as packets: flows of fixed rates between hosts of the testbed.

Runs as a process of its own (``python -m bench.acstor.extra_traffic FILE``), because the packets
of all hosts are sent by one thread: a socket belongs to the network namespace in which it was
made, whatever thread uses it. Which flows there are is drawn by :mod:`sim.traffic`, so a run of
the simulator with the same seed has the same ones.

UDP flows keep their rate, as the paper's do: datagrams of one frame each, up to 44 of them in a
call and cut by the kernel at the receiver only (UDP_SEGMENT), to a socket that nobody reads, which
drops them once they have crossed the links. TCP flows send no faster than their rate and share the
links like any other connection; what arrives is discarded without being copied.

Rates are of frames as the shaper counts them. Interfaces count each call's frames with one header,
which is up to 2.7 % less.
"""

import argparse
import contextlib
import dataclasses
import heapq
import json
import pathlib
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
from pyroute2 import netns

from sim import traffic
from sim.traffic import ExtraFlows
from testbed.exception import TestbedError

UDP_PORT, TCP_PORT = 9, 5009
PAYLOAD = 1472
"""Bytes of a datagram that fills a frame of 1,514 bytes."""
FRAME = 1514
BURST_FRAMES_MAX = 44
BURST_S = 0.1
"""Longest burst of a flow in one call, seconds of its rate, within what one call can hold."""
SEND_BUFFER = 4 << 20
SECONDS_MAX = 3600.0
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_SO_SNDBUFFORCE = 32
_TOLERANCE = 1e-6
_LATE_MAX_S = 0.25  # what a flow is behind by more than that is not made up for


@dataclasses.dataclass(frozen=True)
class Host:
    """Network namespace and address of a host's sockets."""

    namespace: str
    address: str


@dataclasses.dataclass(frozen=True)
class Flow:
    """One flow; hosts by their number."""

    source: int
    target: int
    rate: float
    """Bytes per second."""
    is_tcp: bool = False


@dataclasses.dataclass(frozen=True)
class Plan:
    """Flows that one process sends."""

    hosts: Sequence[Host]
    flows: Sequence[Flow]
    seconds: float

    def save(self, path: pathlib.Path) -> None:
        """Write the plan."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: pathlib.Path) -> "Plan":
        """Read a plan."""
        fields = json.loads(path.read_text())
        return cls(
            [Host(**host) for host in fields["hosts"]],
            [Flow(**flow) for flow in fields["flows"]],
            min(SECONDS_MAX, float(fields["seconds"])),
        )


def draw(
    hosts: int, mean: float, cv: float, link: float, flows_per_host: int, seed: int
) -> ExtraFlows:
    """Return the flows that the simulator's generator ``hosts`` draws.

    :param mean: of what a host sends and receives together, bytes per second.
    :param link: of a host's link in one direction, bytes per second.
    :raises ScenarioError: when no loads have that mean and CV.
    :raises TestbedError: when one of few hosts has more than all others can send it.
    """
    if mean == 0:
        return traffic.none()
    drawn = traffic.by_hosts(mean, cv, link, hosts, flows_per_host, seed)
    found = float(drawn.host_traffic(hosts).mean())
    if abs(found - mean) > _TOLERANCE * mean:
        raise TestbedError(
            f"one of {hosts} hosts has more than half of all traffic, with seed {seed}",
            hint="take more hosts, a lower --cv or another --seed",
        )
    return drawn


def of_busy(hosts: int, busy: int, share: float, link: float) -> ExtraFlows:
    """Return flows that take a share of the links of the first hosts, and little of all others'.

    :param busy: hosts whose links are taken, each by flows to and from all that are not busy.
    :param share: of a busy host's link, each direction.
    :param link: of a host's link in one direction, bytes per second.
    """
    others = np.arange(busy, hosts)
    taken, far = np.repeat(np.arange(busy), len(others)), np.tile(others, busy)
    rate = np.full(2 * len(far), share * link / len(others))
    return ExtraFlows(np.concatenate([taken, far]), np.concatenate([far, taken]), rate)


def as_flows(drawn: ExtraFlows, udp_share: float) -> list[Flow]:
    """Return the flows; of the bytes ``udp_share`` by UDP, the rest by TCP.

    Every n-th of the flows ordered by size is a TCP one, so that the share holds of the bytes too.
    """
    order = np.argsort(drawn.rate, kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    is_udp = np.floor((places + 1) * udp_share) > np.floor(places * udp_share)
    return [
        Flow(int(source), int(target), float(rate), not udp)
        for source, target, rate, udp in zip(
            drawn.source, drawn.target, drawn.rate, is_udp, strict=True
        )
    ]


def burst_frames(rate: float) -> int:
    """Return how many frames a flow sends in one call."""
    return int(min(BURST_FRAMES_MAX, max(1, rate * BURST_S // FRAME)))


class _Sender:
    """One flow's socket and when it sends next."""

    def __init__(self, flow: Flow, target: str) -> None:
        self.flow = flow
        self.frames = burst_frames(flow.rate)
        self.period = self.frames * FRAME / flow.rate
        self.sent = 0
        kind = socket.SOCK_STREAM if flow.is_tcp else socket.SOCK_DGRAM
        self.socket = socket.socket(socket.AF_INET, kind)
        if flow.is_tcp:
            self.socket.settimeout(10.0)
            self.socket.connect((target, TCP_PORT))
        else:
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER)
            self.socket.setsockopt(_SOL_UDP, _UDP_SEGMENT, PAYLOAD)
            self.socket.connect((target, UDP_PORT))
        self.socket.setblocking(False)
        self._content = bytes(PAYLOAD * self.frames)

    def send(self) -> None:
        """Send one burst; what does not fit into the socket is not sent."""
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            count = self.socket.send(self._content)
            self.sent += count * FRAME // PAYLOAD


class _Sinks:
    """Takes what arrives at every host."""

    def __init__(self, plan: Plan) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._has_tcp = any(flow.is_tcp for flow in plan.flows)
        for host in plan.hosts:
            netns.setns(host.namespace)
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            udp.setsockopt(_SOL_UDP, _UDP_GRO, 1)  # else the kernel cuts what is dropped next
            udp.bind((host.address, UDP_PORT))
            self._sockets.append(udp)
            if self._has_tcp:
                server = socket.create_server((host.address, TCP_PORT), backlog=1024)
                server.setblocking(False)
                self._selector.register(server, selectors.EVENT_READ)
                self._sockets.append(server)

    def start(self) -> None:
        """Begin to discard."""
        if self._has_tcp:
            threading.Thread(target=self._run, name="sinks", daemon=True).start()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if key.data is None:
                    accepted, _ = ready.accept()
                    accepted.setblocking(False)
                    self._selector.register(accepted, selectors.EVENT_READ, "connection")
                elif not ready.recv(1 << 20, socket.MSG_TRUNC):
                    self._selector.unregister(ready)
                    ready.close()


def run(plan: Plan, stop: threading.Event) -> dict[str, object]:
    """Send until the time is over or ``stop`` is set; return what was sent.

    Moves this thread between the namespaces.
    """
    sinks = _Sinks(plan)
    sinks.start()
    senders = []
    for flow in plan.flows:
        netns.setns(plan.hosts[flow.source].namespace)
        senders.append(_Sender(flow, plan.hosts[flow.target].address))
    sys.stdout.write("sending\n")
    sys.stdout.flush()
    started = time.monotonic()
    # Spread over their first period: all at once would be one burst.
    due = [
        (started + sender.period * (number + 1) / (len(senders) + 1), number)
        for number, sender in enumerate(senders)
    ]
    heapq.heapify(due)
    late = 0.0
    while due and not stop.is_set():
        at, number = due[0]
        now = time.monotonic()
        if now - started >= plan.seconds:
            break
        if at > now:
            stop.wait(min(at - now, 0.5))
            continue
        senders[number].send()
        late = max(late, now - at)
        following = at + senders[number].period
        heapq.heapreplace(due, (max(following, now - _LATE_MAX_S), number))
    elapsed = time.monotonic() - started
    return {
        "seconds": elapsed,
        "latest_s": late,
        "asked_bytes_per_s": sum(flow.rate for flow in plan.flows),
        "sent_bytes_per_s": sum(sender.sent for sender in senders) / max(elapsed, 1e-9),
        "cpu_s": time.process_time(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Send a plan's flows and print what was sent."""
    parser = argparse.ArgumentParser(prog="bench.acstor.extra_traffic", description=__doc__)
    parser.add_argument("plan", type=pathlib.Path)
    parsed = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    sys.stdout.write(json.dumps(run(Plan.load(parsed.plan), stop)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
