"""Cost on the wire of a host's state with a real message broker.

A RabbitMQ and a sender in a network namespace of their own, in which nothing else moves a byte, so
the counters of its loopback interface are theirs.
"""

import pathlib
import random
import secrets
import tempfile
import time

from pyroute2 import IPRoute, netns

from acstor.conf import loading
from acstor.rpc import transport
from acstor.telemetry.host_state_details import SKETCH_HASHES_MAX, ChunkSketch
from acstor.telemetry.host_states import HostState, HostStateSender, SequenceNumbers
from bench.acstor.namespace_calls import in_namespace
from testbed import processes
from testbed.fixtures.broker import broker_in

STATES = 120
SKETCH_EVERY = 6
PAUSE_S = 0.05
TIMEOUT_S = 60.0
_LOOPBACK = 1


def per_state() -> float:
    """Return the bytes that one state moves over an interface, acknowledgements included."""
    name = f"acs-{secrets.token_hex(3)}"
    netns.create(name)
    try:
        return in_namespace(name, _measured)
    finally:
        netns.remove(name)


def _measured() -> float:
    with IPRoute() as netlink:
        netlink.link("set", index=_LOOPBACK, state="up")
    with tempfile.TemporaryDirectory(prefix="acstor-messages-") as directory:
        path = pathlib.Path(directory)
        with broker_in(path / "broker") as broker:
            return _sent(path, broker.url)


def _sent(directory: pathlib.Path, url: str) -> float:
    config = directory / "acstor.conf"
    config.write_text(f"[DEFAULT]\ntransport_url = {url}\n")
    conf = loading.load("bench", ["--config-file", str(config)])
    outcomes: list[str] = []
    sender = HostStateSender(lambda: transport.open_transport(conf), outcomes.append)
    numbers, draw = SequenceNumbers(), random.Random(1)
    sender.start()
    try:
        _send(sender, state(numbers.next(), draw, with_sketch=False), outcomes, 1)
        before = _bytes()
        for number in range(STATES):
            told = state(numbers.next(), draw, with_sketch=number % SKETCH_EVERY == 0)
            _send(sender, told, outcomes, number + 2)
            time.sleep(PAUSE_S)  # acknowledgements belong to their state, as with seconds between
        return (_bytes() - before) / STATES
    finally:
        sender.stop(TIMEOUT_S)


def _send(sender: HostStateSender, told: HostState, outcomes: list[str], count: int) -> None:
    sender.send(told)
    processes.wait_until(
        lambda: outcomes.count("sent") >= count, "a state is sent", timeout_s=TIMEOUT_S
    )


def state(number: int, draw: random.Random, *, with_sketch: bool) -> HostState:
    """Return a state as a busy host tells it."""
    hashes = tuple(sorted(draw.getrandbits(64) for _ in range(SKETCH_HASHES_MAX)))
    return HostState(
        "compute-00001.example.org",
        number,
        "1.0.0",
        is_up=True,
        is_draining=False,
        extra_in=draw.random() * 1e8,
        extra_out=draw.random() * 1e8,
        link_bytes_per_s=1.25e8,
        moved_in=draw.random() * 1e7,
        moved_out=draw.random() * 1e7,
        load=0.123,
        sketch=ChunkSketch(100_000, hashes) if with_sketch else None,
    )


def _bytes() -> int:
    with IPRoute() as netlink:
        (loopback,) = netlink.get_links(_LOOPBACK)
        return int(loopback.get_attr("IFLA_STATS64")["rx_bytes"])
