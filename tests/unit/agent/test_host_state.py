"""The reconciler that tells the schedulers how the host is."""

import dataclasses
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.reconciler import HostSnapshot
from acstor.agent.reconcilers.host_state import SKETCH_EVERY, HostStateReconciler
from acstor.cluster.membership import View
from acstor.control.client import AdminClient
from acstor.telemetry import host_states
from acstor.telemetry.block_devices import BlockDevice
from acstor.telemetry.data_plane_readings import DataPlaneLoad
from acstor.telemetry.disk_watch import DiskWatch
from acstor.telemetry.host_state_details import DiskHealth, PeerLatency
from acstor.telemetry.host_states import HostState
from acstor.telemetry.traffic import WIRE_SHARE, ExtraTraffic, InterfaceCounters
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.conftest import Clock

LONG = 3600.0


class Recorder:
    """Takes the states."""

    def __init__(self) -> None:
        self.states: list[HostState] = []
        self.is_started = False
        self.is_stopped = False

    def start(self) -> None:
        self.is_started = True

    def send(self, state: HostState) -> None:
        self.states.append(state)

    def stop(self, timeout: float) -> None:
        self.is_stopped = True


class Interfaces:
    """One interface that the test counts up."""

    def __init__(self) -> None:
        self.received = 0
        self.error: OSError | None = None
        self.asked: list[str | None] = []
        self.is_there = True

    def read(self, peer_address: str | None) -> list[InterfaceCounters]:
        self.asked.append(peer_address)
        if self.error is not None:
            raise self.error
        found = [InterfaceCounters("eth0", 2, self.received, 0, 1e9)]
        return found if self.is_there else []


@dataclasses.dataclass
class World:
    """A reconciler and everything around it."""

    reconciler: HostStateReconciler
    recorder: Recorder
    interfaces: Interfaces
    clock: Clock
    data_plane: MemoryDataPlane
    coverage: dict[str, float]
    traffic: list[ExtraTraffic]
    loads: list[DataPlaneLoad | None]
    client: AdminClient

    def see(self, **changes: Any) -> Mapping[str, str]:
        status = {"process_state": "serving", "peer_address": "192.0.2.1:7420"}
        snapshot = HostSnapshot("h1", self.client, status, None, None, False, View())
        return self.reconciler.reconcile(dataclasses.replace(snapshot, **changes))

    def told(self, count: int) -> list[HostState]:
        wait_for(f"{count} states", lambda: len(self.recorder.states) >= count)
        return self.recorder.states


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(make_conf: Callable[..., cfg.ConfigOpts], clock: Clock) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(interval: float = LONG, disk_watch: DiskWatch | None = None) -> World:
        conf = make_conf()
        data_plane = MemoryDataPlane(conf)
        data_plane.start()
        recorder, interfaces = Recorder(), Interfaces()
        coverage: dict[str, float] = {}
        traffic: list[ExtraTraffic] = []
        loads: list[DataPlaneLoad | None] = []
        client = AdminClient(conf.dataplane.admin_socket)
        reconciler = HostStateReconciler(
            "h1",
            interval,
            data_plane=client,
            interfaces=interfaces,
            is_origin_remote=True,
            coverage=lambda: coverage,
            publisher=recorder,
            disk_watch=disk_watch,
            on_traffic=traffic.append,
            on_load=loads.append,
            clock=clock,
        )
        reconciler.start()
        world = World(
            reconciler, recorder, interfaces, clock, data_plane, coverage, traffic, loads, client
        )
        made.append(world)
        return world

    yield make
    for world in made:
        world.reconciler.stop(10)
        world.data_plane.stop()
        assert world.recorder.is_stopped


def image_name(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def test_first_look_is_told_at_once(make_world: MakeWorld) -> None:
    world = make_world()
    world.coverage[image_name(1)] = 0.25
    world.see(registered=frozenset({image_name(1), image_name(2)}))
    state = world.told(1)[0]
    assert (state.host, state.is_up, state.is_draining) == ("h1", True, False)
    assert state.coverage == {image_name(1): 0.25}
    assert sorted(state.images) == [image_name(1), image_name(2)]
    assert state.link_bytes_per_s == 1e9
    assert world.interfaces.asked == ["192.0.2.1:7420"]
    HostState.from_message(state.to_message())


def test_change_is_told_at_once(make_world: MakeWorld) -> None:
    world = make_world()
    world.see()
    world.told(1)
    world.see(is_draining=True)
    assert world.told(2)[1].is_draining
    world.see(status=None, is_draining=True)
    assert not world.told(3)[2].is_up
    sequences = [state.sequence for state in world.recorder.states]
    assert sequences == sorted(set(sequences))


def test_look_without_a_change_tells_nothing(make_world: MakeWorld) -> None:
    world = make_world()
    world.see()
    world.told(1)
    for _ in range(20):
        world.see()
    world.see(is_draining=True)
    assert [state.is_draining for state in world.told(2)] == [False, True]


def test_data_plane_that_leaves_is_not_up(make_world: MakeWorld) -> None:
    world = make_world()
    world.coverage[image_name(1)] = 1.0
    world.see(status={"process_state": "leaving", "peer_address": "192.0.2.1:1"})
    state = world.told(1)[0]
    assert not state.is_up
    assert state.coverage == {}


def test_state_is_told_again_and_again(make_world: MakeWorld) -> None:
    world = make_world(interval=0.01)
    world.see()
    world.told(5)


def test_extra_traffic_is_measured_between_two_states(make_world: MakeWorld) -> None:
    world = make_world()
    world.see()
    world.told(1)
    world.clock.now += 10
    world.interfaces.received += 5_000
    world.see(is_draining=True)
    assert world.told(2)[1].extra_in == 500.0
    assert world.traffic[-1] == world.reconciler.traffic
    assert world.reconciler.link_bytes_per_s() == 1e9


def test_data_plane_is_told_what_is_free_of_its_link(make_world: MakeWorld) -> None:
    world = make_world()
    world.see()
    world.told(1)
    assert world.data_plane.runtime is not None
    told = world.data_plane.runtime.free_rates
    assert told == [], "nothing is known after one sample"
    world.clock.now += 10
    world.interfaces.received += 2_000_000_000
    world.see(is_draining=True)
    world.told(2)
    assert told == [(800_000_000, 1_000_000_000, 3600.0)]
    world.clock.now += 10
    world.interfaces.received += 9_000_000_000
    world.see()
    world.told(3)
    assert told[1:] == [(0, 1_000_000_000, 3600.0)]


def test_data_plane_that_takes_no_rates_is_no_problem(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()

    def refuse(in_bytes_per_s: int, out_bytes_per_s: int, valid_s: float) -> None:
        raise exception.UnsupportedError(f"{in_bytes_per_s}, {out_bytes_per_s}, {valid_s}")

    monkeypatch.setattr(world.data_plane.runtime, "set_free_rates", refuse)
    world.see()
    world.told(1)
    world.clock.now += 10
    world.see(is_draining=True)
    assert world.told(2)[1].extra_in == 0.0
    assert world.see(is_draining=True) == {}


def test_what_the_data_plane_moved_its_load_and_its_disk_are_told(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    world.see()
    first = world.told(1)[0]
    assert (first.moved_in, first.moved_out, first.load) == (None, None, 0.0)
    assert first.disk == DiskHealth(is_healthy=True)
    world.clock.now += 10
    text = (
        'acstor_peer_fetch_bytes_total 1000\nacstor_serves_total{outcome="overloaded"} 1\n'
        'acstor_store_read_errors_total 2\nacstor_read_chunks_total{tier="peer"} 4\n'
    )
    monkeypatch.setattr(world.data_plane.runtime, "metrics_text", lambda: text)
    world.see(is_draining=True)
    second = world.told(2)[1]
    assert second.moved_in == pytest.approx(WIRE_SHARE * 100)
    assert (second.moved_out, second.load, second.disk) == (0.0, 1.0, DiskHealth(is_healthy=False))
    assert world.loads[-1] == DataPlaneLoad(1.0, DiskHealth(is_healthy=False), {"peer": 1.0})
    world.clock.now += 10
    world.see(status=None)
    third = world.told(3)[2]
    assert (third.moved_in, third.load, third.disk) == (None, None, None)
    assert world.loads[-1] is None


def test_disk_that_says_that_it_fails_is_told(
    make_world: MakeWorld, tmp_path: pathlib.Path
) -> None:
    disk = BlockDevice("sda", True, tmp_path)
    watch = DiskWatch("/", LONG, devices=lambda _: [disk], asks=(lambda _: DiskHealth(False, 0.4),))
    world = make_world(disk_watch=watch)
    wait_for("the first look at the disk", lambda: watch.health)
    world.see()
    state = world.told(1)[0]
    assert state.disk == DiskHealth(is_healthy=False, wear=0.4)
    assert world.loads[-1] == DataPlaneLoad(0.0, DiskHealth(is_healthy=False, wear=0.4), {})
    HostState.from_message(state.to_message())


STATUS = {"process_state": "serving", "peer_address": "192.0.2.1:7420"}
PEER = {"name": "H2", "fetches": 900, "p50_ms": 0.5, "p99_ms": 12.25}


def test_latency_of_the_busiest_peers_is_told(make_world: MakeWorld) -> None:
    world = make_world()
    many = [PEER] + [PEER | {"name": f"x{number}"} for number in range(100)]
    world.see(status=STATUS | {"peers": many})
    state = world.told(1)[0]
    assert len(state.peers) == 64
    assert state.peers["h2"] == PeerLatency(0.5, 12.25)
    HostState.from_message(state.to_message())


@pytest.mark.parametrize("peers", [7, [7], [{"name": "h2"}], [PEER | {"p50_ms": -1}], "h2"])
def test_malformed_latencies_are_left_out(make_world: MakeWorld, peers: Any) -> None:
    world = make_world()
    world.see(status=STATUS | {"peers": peers})
    state = world.told(1)[0]
    assert state.is_up
    assert state.peers == {}


def test_some_states_have_a_sketch(make_world: MakeWorld) -> None:
    world = make_world(interval=0.01)
    world.see()
    states = world.told(SKETCH_EVERY + 1)
    assert [state.sketch is not None for state in states[: SKETCH_EVERY + 1]] == [
        True, *[False] * (SKETCH_EVERY - 1), True,
    ]  # fmt: skip
    HostState.from_message(states[0].to_message())


def test_data_plane_that_knows_no_sketch_is_no_problem(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()

    def refuse(count: int) -> dict[str, object]:
        raise exception.UnsupportedError(f"sketch of {count}")

    monkeypatch.setattr(world.data_plane.runtime, "store_sketch", refuse)
    world.see()
    assert world.told(1)[0].sketch is None
    assert world.see() == {}


def test_network_that_cannot_be_read_is_a_problem_and_makes_the_traffic_unknown(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.interfaces.error = OSError("no netlink")
    world.see()
    assert world.told(1)[0].extra_in is None
    assert world.see() == {"host state": "no netlink"}
    world.interfaces.error = None
    world.interfaces.is_there = False
    world.see(is_draining=True)
    world.told(2)
    assert "[agent] interfaces" in world.see(is_draining=True)["host state"]


def test_data_plane_that_does_not_answer_makes_the_traffic_unknown(make_world: MakeWorld) -> None:
    world = make_world()
    world.see()
    world.told(1)
    world.data_plane.stop()
    world.clock.now += 10
    world.see(is_draining=True)
    state = world.told(2)[1]
    assert (state.extra_in, state.link_bytes_per_s) == (None, 1e9)


def test_images_are_listed_in_turns_until_all_were(make_world: MakeWorld) -> None:
    world = make_world(interval=0.01)
    count = 2 * host_states.LISTED_IMAGES_MAX + 10
    images = frozenset(image_name(number) for number in range(count))
    world.see(registered=images)
    states = world.told(3)[:3]
    assert all(len(state.images) == host_states.LISTED_IMAGES_MAX for state in states)
    assert images == {image for state in states for image in state.images}


def test_images_stay_known_while_the_origin_is_away(make_world: MakeWorld) -> None:
    world = make_world()
    world.see(registered=frozenset({image_name(1)}))
    world.told(1)
    world.see(registered=None, is_draining=True)
    assert world.told(2)[1].images == (image_name(1),)


def test_fault_of_the_coverage_does_not_silence_the_host(make_world: MakeWorld) -> None:
    world = make_world(interval=0.01)
    world.coverage["oops"] = None  # type: ignore[assignment]
    world.see()
    wait_for("two attempts", lambda: len(world.traffic) >= 2)
    world.coverage.clear()
    world.told(1)


def test_stop_before_the_first_look_ends_the_thread(make_world: MakeWorld) -> None:
    earlier = set(threading.enumerate())
    world = make_world(interval=0.01)
    world.reconciler.stop(10)
    left = set(threading.enumerate()) - earlier
    assert "host-state" not in {thread.name for thread in left}
