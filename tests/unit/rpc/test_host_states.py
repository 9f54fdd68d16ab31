"""The message that tells how a host is, and the thread that sends it."""

import contextlib
import functools
import json
import pathlib
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from acstor import exception
from acstor.backoff import BackOff
from acstor.rpc import transport
from acstor.scheduler.host_table import HostTable
from acstor.scheduler.listener import Listener
from acstor.telemetry import host_states
from acstor.telemetry.host_state_details import (
    PEERS_MAX,
    SKETCH_HASHES_MAX,
    ChunkSketch,
    PeerLatency,
)
from acstor.telemetry.host_states import HostState, HostStateSender, SequenceNumbers, most_covered
from testbed.fixtures.conditions import wait_for

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "host-state-v1.json"
FULL_GOLDEN = GOLDEN.with_name("host-state-v1-full.json")
IMAGE = "0b5f3c1e-7a52-4f7e-9d35-6f0d0c1c7a01"


def message(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text())
    found.update(changes)
    return found


def image_name(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def test_host_state_version_requires_update() -> None:
    assert host_states.HOST_STATE_VERSION == 1
    golden = json.loads(GOLDEN.read_text())
    state = HostState.from_message(golden)
    assert state.host == "compute-1.example.org"
    assert state.coverage[IMAGE] == 0.0
    assert state.to_message() == golden


def test_optional_fields_are_told_and_null_is_as_good_as_absent() -> None:
    golden = json.loads(FULL_GOLDEN.read_text())
    state = HostState.from_message(golden)
    assert state.moved_out == 2_500_000
    assert state.sketch is not None
    assert state.sketch.hashes[2] == 1 << 56
    assert state.to_message() == golden
    nothing = dict.fromkeys(("moved_in", "moved_out", "load", "sketch", "peers", "disk"))
    assert HostState.from_message(message(**nothing)) == HostState.from_message(message())


def test_unknown_fields_are_ignored() -> None:
    assert HostState.from_message(message(colour="blue")) == HostState.from_message(message())


@pytest.mark.parametrize("version", [2, 0, "1", None, True, 1.0])
def test_another_version_is_unsupported(version: object) -> None:
    with pytest.raises(exception.UnsupportedError):
        HostState.from_message(message(version=version))


NAN = float("nan")


@pytest.mark.parametrize(
    "change",
    [
        {"host": ""},
        {"host": "UPPER"},
        {"host": "h" * 256},
        {"host": None},
        {"sequence": -1},
        {"sequence": 1 << 63},
        {"sequence": True},
        {"sequence": 1.5},
        {"release": "x" * 65},
        {"is_up": 1},
        {"is_draining": None},
        {"extra_in": NAN},
        {"extra_in": float("inf")},
        {"extra_in": -1},
        {"extra_out": 1e14},
        {"extra_out": "5"},
        {"extra_out": True},
        {"link_bytes_per_s": -0.1},
        {"coverage": None},
        {"coverage": [IMAGE]},
        {"coverage": {IMAGE: 1.01}},
        {"coverage": {IMAGE: -0.01}},
        {"coverage": {IMAGE: NAN}},
        {"coverage": {IMAGE: None}},
        {"coverage": {"not-an-image": 0.5}},
        {"coverage": {image_name(n): 0.5 for n in range(host_states.COVERAGE_IMAGES_MAX + 1)}},
        {"images": {}},
        {"images": [5]},
        {"images": [IMAGE.upper()]},
        {"images": [IMAGE] * (host_states.LISTED_IMAGES_MAX + 1)},
        {"moved_in": -1},
        {"moved_out": NAN},
        {"load": 1.1},
        {"load": True},
        {"sketch": []},
        {"sketch": {"count": 1}},
        {"sketch": {"count": -1, "hashes": []}},
        {"sketch": {"count": 0, "hashes": ["0" * 16]}},
        {"sketch": {"count": 9, "hashes": [7]}},
        {"sketch": {"count": 9, "hashes": ["0" * 15]}},
        {"sketch": {"count": 9, "hashes": ["2" * 16, "1" * 16]}},
        {"sketch": {"count": 9, "hashes": ["1" * 16, "1" * 16]}},
        {"sketch": {"count": 999, "hashes": [f"{n:016x}" for n in range(257)]}},
        {"peers": []},
        {"peers": {"A": {"p50_ms": 1, "p99_ms": 1}}},
        {"peers": {"a": {"p50_ms": 1}}},
        {"peers": {"a": {"p50_ms": 1, "p99_ms": -1}}},
        {"peers": {f"a{n}": {"p50_ms": 1, "p99_ms": 1} for n in range(65)}},
        {"disk": {}},
        {"disk": {"is_healthy": 1}},
        {"disk": {"is_healthy": True, "wear": 2}},
    ],
)
def test_what_no_agent_sends_is_invalid(change: dict[str, Any]) -> None:
    with pytest.raises(exception.InvalidError):
        HostState.from_message(message(**change))


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.one_of(ANYTHING, st.fixed_dictionaries(dict.fromkeys(message(), ANYTHING))))
def test_any_input_is_a_state_or_a_known_error(found: object) -> None:
    with contextlib.suppress(exception.InvalidError, exception.UnsupportedError):
        HostState.from_message(found)


def test_message_tells_of_the_images_most_covered() -> None:
    coverage = {image_name(n): n / 1000 for n in range(1000)}
    told = most_covered(coverage)
    assert len(told) == host_states.COVERAGE_IMAGES_MAX
    assert min(told.values()) == (1000 - host_states.COVERAGE_IMAGES_MAX) / 1000


def test_largest_message_is_small() -> None:
    images = [image_name(n) for n in range(host_states.LISTED_IMAGES_MAX)]
    state = HostState.from_message(message())
    largest = HostState(
        **{
            **vars(state),
            "host": "h" * host_states.HOST_LENGTH_MAX,
            "coverage": dict.fromkeys(images, 0.123456),
            "images": tuple(images),
            "sketch": ChunkSketch(1 << 40, tuple(range(1 << 62, (1 << 62) + SKETCH_HASHES_MAX))),
            "peers": {f"{n:0255}": PeerLatency(0.123, 9_999_999.0) for n in range(PEERS_MAX)},
        }
    ).to_message()
    assert len(json.dumps(largest)) < 50_000
    HostState.from_message(json.loads(json.dumps(largest)))


def test_sequence_grows_whatever_the_clock_does() -> None:
    times = iter([100.0, 100.0, 50.0, 200.0])
    numbers = SequenceNumbers(lambda: next(times))
    found = [numbers.next() for _ in range(4)]
    assert found == [100_000, 100_001, 100_002, 200_000]


class Client:
    """A client of a broker that the test switches off."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.is_broken = False
        self.attempts = 0

    def cast(self, context: dict[str, Any], method: str, state: dict[str, Any]) -> None:
        self.attempts += 1
        if self.is_broken:
            raise ConnectionError("no broker")
        assert (context, method) == ({}, "host_state")
        self.sent.append(state)


class Transport:
    def cleanup(self) -> None:
        pass


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(host_states, "_client", lambda transport: client)
    return client


def state(sequence: int) -> HostState:
    return HostState("h1", sequence, "1", is_up=True, is_draining=False)


def test_sender_goes_on_with_the_newest_state_when_the_broker_is_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_states, "RECONNECT", BackOff(0.5, 0.5, spread=0.0))
    outcomes: list[str] = []
    sender = HostStateSender(Transport, outcomes.append)
    client.is_broken = True
    sender.start()
    try:
        sender.send(state(1))
        wait_for("the first attempt", lambda: client.attempts)
        for number in range(2, 100):
            sender.send(state(number))
        client.is_broken = False
        wait_for("a state arrives", lambda: client.sent)
        assert [each["sequence"] for each in client.sent] == [99]
        assert outcomes[0] == "failed"
        wait_for("the outcome", lambda: outcomes[-1] == "sent")
    finally:
        sender.stop(10)


def test_sending_never_waits_for_a_transport_that_hangs() -> None:
    is_hanging = threading.Event()
    release = threading.Event()

    def hang() -> Transport:
        is_hanging.set()
        release.wait()
        return Transport()

    sender = HostStateSender(hang)
    sender.start()
    try:
        assert is_hanging.wait(20)
        for number in range(1000):
            sender.send(state(number))
    finally:
        release.set()
        sender.stop(10)


def test_stop_ends_a_sender_that_waits_to_connect_again() -> None:
    failures: list[str] = []

    def refuse() -> Transport:
        raise ConnectionError("no broker")

    sender = HostStateSender(refuse, failures.append)
    sender.start()
    wait_for("a failure", lambda: failures)
    sender.stop(10)
    assert not sender._thread.is_alive()


def test_every_listener_on_the_in_process_transport_hears_the_agent(
    conf: cfg.ConfigOpts,
) -> None:
    """The client that agents use and the listener that schedulers use understand each other."""

    def make_transport() -> Any:
        return transport.open_transport(conf)

    tables = [HostTable(60.0), HostTable(60.0)]
    listeners = [Listener(table, make_transport, "controller") for table in tables]
    sender = HostStateSender(make_transport)
    try:
        for listener in listeners:
            listener.start()
        for listener in listeners:
            assert listener.is_listening.wait(20)
        sender.start()
        state = HostState.from_message(message())

        def heard_by(table: HostTable) -> HostState | None:
            # The transport drops what comes before a listener's first look, as a broker does.
            sender.send(state)
            return table.get(state.host, 0.0)

        for table in tables:
            assert wait_for("it is heard", functools.partial(heard_by, table)) == state
    finally:
        sender.stop(10)
        for listener in listeners:
            listener.stop(10)
