"""Looks of an agent: real admin socket, real membership, origin and runtime in memory."""

import dataclasses
import json
import math
import threading
import time
import uuid
from collections.abc import Callable

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.agent import Agent
from acstor.agent.reconcilers.desired_host import (
    HOST_PREFIX,
    DesiredState,
    read_desired_state,
    write_desired_state,
)
from acstor.agent.states import (
    TRANSITIONS,
    AgentEvent,
    AgentState,
    next_state,
)
from acstor.cluster.membership import View
from acstor.cluster.ring.decision import DECISION_REF, Decision, replace_decision
from acstor.cluster.ring.published_ring import RING_REF, read_ring
from acstor.cluster.timed_lock import TimedLock
from acstor.native import RingHost, build_ring
from acstor.origin.base import Origin
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.repository import layout
from acstor.repository.images import registration
from acstor.repository.images.image_index import INDEX_REF, ImageIndexWriter
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.repository import Repository
from acstor.states import IllegalTransitionError
from testbed.doubles.memory_lock import MemoryLock
from testbed.doubles.memory_runtime import CHUNK_SIZE, MemoryRuntime, make_manifest
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.conftest import Clock, HostUnderTest
from tests.unit.repository.memory_source import MemorySource

IMAGE = str(uuid.UUID(int=1))
OTHER = str(uuid.UUID(int=2))


def register(
    origin: Origin,
    image_id: str,
    *,
    disk_id: str | None = None,
    salt: int = 0,
    registered_at: str = "2026-01-01T00:00:00Z",
) -> str:
    manifest = make_manifest(disk_id or image_id, salt=salt)
    origin.put_if_absent(layout.FORMAT_KEY, [b"{}"])
    origin.put_if_absent(layout.manifest_key(manifest.digest), [manifest.to_bytes()])
    record = ImageRecord(
        manifest=manifest.digest,
        content="0" * 64,
        name="image",
        size_bytes=manifest.size_bytes,
        chunk_size=CHUNK_SIZE,
        chunk_count=manifest.chunk_count,
        unique_count=0,
        zero_count=manifest.chunk_count,
        source_format="raw",
        registered_at=registered_at,
    )
    name = layout.image_ref(image_id)
    ref = origin.get_ref(name)
    with ImageIndexWriter(origin, is_kept=True).changing(image_id):
        origin.swap_ref(name, ref.token if ref else None, record.encode())
    return manifest.digest


def publish(origin: Origin, generation: int) -> None:
    ring = build_ring([RingHost("h1", "10.0.0.1:1", 100)], 64, generation=generation)
    ref = origin.get_ref(RING_REF)
    origin.swap_ref(RING_REF, ref.token if ref else None, ring.encode())


def problems(agent: Agent) -> dict[str, str]:
    """Return the problems of a look, coordination (which is not started here) left out."""
    return {what: text for what, text in agent.problems.items() if what != "coordination"}


def test_ring_and_images_reach_the_data_plane(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    publish(host.origin, 3)
    manifest = register(host.origin, IMAGE)
    host.agent.reconcile()
    assert problems(host.agent) == {}
    assert runtime.ring is not None
    assert runtime.ring["generation"] == 3
    assert runtime.images[IMAGE]["manifest"] == manifest


def test_removed_image_is_withdrawn_and_forgotten_when_released(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.agent.reconcile()
    runtime.open_handles[IMAGE] = 1
    ref = host.origin.get_ref(layout.image_ref(IMAGE))
    assert ref is not None
    host.origin.swap_ref(layout.image_ref(IMAGE), ref.token, None)
    host.agent.reconcile()
    assert runtime.images[IMAGE]["hidden"]
    runtime.open_handles[IMAGE] = 0
    host.agent.reconcile()
    assert runtime.images == {}


@pytest.mark.parametrize("content", [b"{", b'{"version": 9}'])
def test_damaged_record_of_one_image_leaves_the_others(host: HostUnderTest, content: bytes) -> None:
    runtime = host.data_plane.start()
    host.origin.swap_ref(layout.image_ref(IMAGE), None, content)
    register(host.origin, OTHER)
    host.agent.reconcile()
    assert list(problems(host.agent)) == [f"image {IMAGE}"]
    assert list(runtime.images) == [OTHER]


def test_damaged_manifest_is_never_attached(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    manifest = register(host.origin, IMAGE)
    key = layout.manifest_key(manifest)
    content = bytearray(host.origin.get(key, 1 << 20))
    content[-1] ^= 1
    host.origin.delete(key)
    host.origin.put_if_absent(key, [bytes(content)])
    host.agent.reconcile()
    assert "damaged" in problems(host.agent)[f"image {IMAGE}"]
    assert runtime.images == {}


@pytest.mark.parametrize("position", [0, 100, 4096, -4096, -100])
def test_damaged_paged_manifest_is_never_attached(host: HostUnderTest, position: int) -> None:
    runtime = host.data_plane.start()
    repository = Repository.open(host.origin)
    request = registration.Request(IMAGE, "an image", MemorySource(b"text" * CHUNK_SIZE), "raw")
    settings = registration.Settings(workers=0)
    registrar = registration.Registrar(repository, settings)
    key = layout.manifest_key(registrar.register(request).manifest)
    content = bytearray(host.origin.get(key, 1 << 20))
    content[position] ^= 1
    host.origin.delete(key)
    host.origin.put_if_absent(key, [bytes(content)])
    host.agent.reconcile()
    assert "manifest" in problems(host.agent)[f"image {IMAGE}"]
    assert runtime.read_whole == 0, "the data plane has not seen it"


def test_record_that_names_another_disks_manifest_is_refused(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE, disk_id=OTHER)
    host.agent.reconcile()
    assert OTHER in problems(host.agent)[f"image {IMAGE}"]
    assert runtime.images == {}


def test_origin_away_keeps_what_is_attached(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    publish(host.origin, 1)
    register(host.origin, IMAGE)
    host.agent.reconcile()
    for operation in Operation:
        host.origin.faults.append(Fault(operation, Effect.ERROR))
    host.agent.reconcile()
    assert list(problems(host.agent)) == ["origin"]
    assert list(runtime.images) == [IMAGE]
    host.origin.faults.clear()
    host.agent.reconcile()
    assert problems(host.agent) == {}


def test_reconciler_gets_the_snapshot_of_the_pass(host: HostUnderTest) -> None:
    host.data_plane.start()
    publish(host.origin, 3)
    manifest = register(host.origin, IMAGE)
    host.agent.reconcile()
    snapshot = host.reconciler.sights[-1]
    assert snapshot.status is not None
    assert snapshot.origin is host.origin
    assert snapshot.generation == 3
    assert snapshot.registered == frozenset({IMAGE})
    assert snapshot.offered == {IMAGE: manifest}


def test_reconciler_is_not_told_that_there_are_no_images_when_nobody_knows(
    host: HostUnderTest,
) -> None:
    host.data_plane.start()
    register(host.origin, IMAGE)
    host.agent.reconcile()
    for operation in Operation:
        host.origin.faults.append(Fault(operation, Effect.ERROR))
    host.agent.reconcile()
    assert host.reconciler.sights[-1].registered is None
    assert host.reconciler.sights[-1].origin is None


def test_reconciler_that_fails_is_a_problem_of_its_own(host: HostUnderTest) -> None:
    host.data_plane.start()
    host.reconciler.error = OSError(13, "not allowed")
    host.agent.reconcile()
    assert "not allowed" in problems(host.agent)["recording"]
    host.reconciler.error, host.reconciler.problems = None, {"thing": "is wrong"}
    host.agent.reconcile()
    assert problems(host.agent) == {"thing": "is wrong"}


def test_listing_that_fails_detaches_nothing(host: HostUnderTest) -> None:
    """An origin that is half away must not be taken for one without images."""
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.agent.reconcile()
    host.origin.faults.append(Fault(Operation.LIST_REFS, Effect.ERROR))
    host.agent.reconcile()
    assert list(runtime.images) == [IMAGE]


def test_origin_that_is_not_mounted_is_not_one_without_images(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.agent.reconcile()
    for name in (layout.image_ref(IMAGE), INDEX_REF):
        ref = host.origin.get_ref(name)
        assert ref is not None
        host.origin.swap_ref(name, ref.token, None)
    host.origin.delete(layout.FORMAT_KEY)
    host.agent.reconcile()
    assert "no repository any more" in problems(host.agent)["origin"]
    assert list(runtime.images) == [IMAGE]
    assert host.reconciler.sights[-1].registered is None


def test_data_plane_away_is_waited_for(host: HostUnderTest) -> None:
    publish(host.origin, 1)
    register(host.origin, IMAGE)
    host.agent.reconcile()
    assert list(problems(host.agent)) == ["data plane"]
    runtime = host.data_plane.start()
    host.agent.reconcile()
    assert problems(host.agent) == {}
    assert list(runtime.images) == [IMAGE]


def test_desired_state_to_drain_reaches_data_plane_and_state(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    write_desired_state(host.origin, "h1", DesiredState(is_drained=True))
    host.agent.reconcile()
    drained = (runtime.is_draining, host.agent.state)
    write_desired_state(host.origin, "h1", DesiredState())
    host.agent.reconcile()
    assert drained == (True, AgentState.DRAINING)
    assert not runtime.is_draining
    assert host.agent.state is not AgentState.DRAINING


def test_unreadable_desired_state_changes_nothing(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    write_desired_state(host.origin, "h1", DesiredState(is_drained=True))
    host.agent.reconcile()
    ref = host.origin.get_ref(HOST_PREFIX + "h1")
    assert ref is not None
    host.origin.swap_ref(HOST_PREFIX + "h1", ref.token, b'{"version": 7, "drain": false}')
    host.agent.reconcile()
    assert runtime.is_draining
    assert "version 7" in problems(host.agent)["desired state"]


def test_damaged_ring_leaves_images_followed(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    host.origin.swap_ref(RING_REF, None, b"nonsense")
    register(host.origin, IMAGE)
    host.agent.reconcile()
    assert list(problems(host.agent)) == ["ring"]
    assert list(runtime.images) == [IMAGE]


def test_older_published_ring_is_not_given_to_the_data_plane(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    publish(host.origin, 5)
    host.agent.reconcile()
    ref = host.origin.get_ref(RING_REF)
    assert ref is not None
    older = build_ring([RingHost("h1", "10.0.0.1:1", 100)], 64, generation=4)
    host.origin.swap_ref(RING_REF, ref.token, older.encode())
    host.agent.reconcile()
    assert problems(host.agent) == {}
    assert runtime.ring is not None
    assert runtime.ring["generation"] == 5


def test_records_of_attached_images_are_not_read_at_each_look(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    for number in range(1, 11):
        register(host.origin, str(uuid.UUID(int=number)))
    host.agent.reconcile()
    before = host.origin.calls[Operation.GET_REF]
    host.agent.reconcile()
    assert host.origin.calls[Operation.GET_REF] - before < 9
    assert len(runtime.images) == 10


def test_image_published_anew_is_noticed(host: HostUnderTest) -> None:
    """Its present manifest stays attached where the data plane refuses another one."""
    runtime = host.data_plane.start()
    former = register(host.origin, IMAGE)
    host.agent.reconcile()
    assert register(host.origin, IMAGE, salt=1) != former
    host.agent.reconcile()
    assert "another manifest" in problems(host.agent)[f"image {IMAGE}"]
    assert runtime.images[IMAGE]["manifest"] == former


def test_data_plane_away_for_long_is_no_member_any_more(host: HostUnderTest, clock: Clock) -> None:
    host.data_plane.start()
    host.agent.reconcile()
    assert host.agent._membership._wanted is not None
    host.data_plane.stop()
    clock.now += 30
    host.agent.reconcile()
    assert host.agent._membership._wanted is not None, "a restart is no absence"
    clock.now += 1
    host.agent.reconcile()
    assert host.agent._membership._wanted is None


def test_running_agent_publishes_a_ring_and_becomes_active(
    host: HostUnderTest, clock: Clock, announced: list[int]
) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    thread = threading.Thread(target=host.agent.run)
    thread.start()
    try:
        wait_for("membership", lambda: host.agent.membership_view.is_publisher)

        def settle() -> bool:
            clock.now += 1
            host.agent.reconcile_soon()
            return host.agent.state is AgentState.ACTIVE

        wait_for("an active agent", settle)
        wait_for("pins", lambda: runtime.images[IMAGE]["pinned_bytes"] == (1 << 20) + (64 << 10))
        assert host.agent.is_healthy()
        assert announced == [1]
        published = read_ring(host.origin)
        assert published is not None
        assert published.ring.hosts[0].address == runtime.peer_address()
        assert 'acstor_agent_state{state="active"} 1.0' in host.metrics.text()
    finally:
        host.agent.stop()
        thread.join(20)
    assert host.agent.state is AgentState.STOPPED
    assert list(runtime.images) == [IMAGE], "the data plane goes on without its agent"


def test_pins_are_made_again_for_a_new_data_plane_process(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    publish(host.origin, 3)
    host.agent._pinner.start()
    host.agent.reconcile()
    wait_for("pinned", lambda: runtime.images[IMAGE]["pinned_bytes"] != 0)
    host.data_plane.stop()
    runtime = host.data_plane.start()
    host.agent.reconcile()
    wait_for("pinned again", lambda: runtime.images[IMAGE]["pinned_bytes"] != 0)
    host.agent._pinner.stop(10)


def test_image_that_is_used_is_pinned_first(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[list[str]] = []
    monkeypatch.setattr(
        host.agent._pinner, "set_desired", lambda *desired: orders.append(desired[3])
    )
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    register(host.origin, OTHER, registered_at="2026-01-02T00:00:00Z")
    publish(host.origin, 3)
    host.agent.reconcile()
    runtime.open_handles[IMAGE] = 1
    host.agent.reconcile()
    runtime.open_handles[IMAGE] = 0
    host.agent.reconcile()
    assert orders == [[OTHER, IMAGE], [IMAGE, OTHER], [IMAGE, OTHER]]


def test_nothing_is_pinned_before_there_is_a_ring(host: HostUnderTest) -> None:
    """Else every host would read heads and tails from the origin itself."""
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.agent._pinner.start()
    host.agent.reconcile()
    assert host.agent._pinner.is_idle()
    assert runtime.images[IMAGE]["pinned_bytes"] == 0
    publish(host.origin, 3)
    host.agent.reconcile()
    wait_for("pinned", lambda: runtime.images[IMAGE]["pinned_bytes"] != 0)
    host.agent._pinner.stop(10)


def test_every_pair_of_state_and_event_is_listed_or_refused() -> None:
    for state in AgentState:
        for event in AgentEvent:
            if (state, event) in TRANSITIONS:
                assert next_state(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(IllegalTransitionError):
                    next_state(state, event)


@pytest.mark.parametrize(
    "state",
    [state for state in AgentState if state not in (AgentState.STOPPED, AgentState.STOPPING)],
)
def test_every_event_of_a_look_is_possible_in_every_running_state(state: AgentState) -> None:
    for event in set(AgentEvent) - {AgentEvent.STOPPED}:
        next_state(state, event)


def test_desired_state_survives_the_origin(origin: FaultyOrigin) -> None:
    assert read_desired_state(origin, "h1") == DesiredState()
    write_desired_state(origin, "h1", DesiredState(is_drained=True))
    write_desired_state(origin, "h1", DesiredState(is_drained=True))
    assert read_desired_state(origin, "h1") == DesiredState(is_drained=True)
    assert origin.calls[Operation.SWAP_REF] == 1


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version":1,"drain":"yes"}'])
def test_malformed_desired_state_is_corrupt(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        DesiredState.parse(content, "h1")
    assert json.loads(DesiredState().encode())["version"] == 1


def be_publisher(host: HostUnderTest, clock: Clock) -> None:
    """Have the agent publish rings, as if it were the only member and held the lock."""
    host.agent.reconcile()
    member = host.agent._membership._wanted
    assert member is not None
    host.agent._membership._view = View({"h1": member}, is_current=True, is_publisher=True)
    host.agent._membership._lock = TimedLock(MemoryLock(), "test", math.inf)
    host.agent._membership._lock.hold(0.0)
    host.agent.reconcile()
    clock.now += 60  # the members have settled
    host.agent.reconcile()


def test_decision_changes_the_ring_and_the_threshold_of_the_data_plane(
    host: HostUnderTest, clock: Clock
) -> None:
    runtime = host.data_plane.start()
    be_publisher(host, clock)
    first = Decision(1, 1, "policy-1", 0, "equation1", {"h1": 5000}, threshold=5)
    published = replace_decision(host.origin, None, first)
    host.agent.reconcile()
    ring = read_ring(host.origin)
    assert ring is not None
    assert [each.weight for each in ring.ring.hosts] == [5000]
    assert runtime.status()["distance_threshold"] == 5
    assert "acstor_agent_decision_threshold_hops 5.0" in host.metrics.text()
    replace_decision(host.origin, published, dataclasses.replace(first, sequence=2, threshold=None))
    host.agent.reconcile()
    assert runtime.status()["distance_threshold"] is None


def test_malformed_decision_is_told_and_changes_nothing(host: HostUnderTest, clock: Clock) -> None:
    runtime = host.data_plane.start()
    be_publisher(host, clock)
    decision = Decision(1, 1, "policy-1", 0, "equation1", {"h1": 5000}, threshold=5)
    published = replace_decision(host.origin, None, decision)
    host.agent.reconcile()
    before = read_ring(host.origin)
    token = host.origin.swap_ref(DECISION_REF, published.token, b"{")
    host.agent.reconcile()
    assert "malformed" in host.agent.problems["decision"]
    assert read_ring(host.origin) == before
    assert runtime.status()["distance_threshold"] == 5
    host.origin.swap_ref(DECISION_REF, token, None)
    host.agent.reconcile()
    assert host.agent.problems == {}
    after = read_ring(host.origin)
    assert after is not None
    assert [each.weight for each in after.ring.hosts] == [100]


def test_announcements_that_concern_others_are_not_looked_at(
    host: HostUnderTest, clock: Clock
) -> None:
    host.data_plane.start()
    be_publisher(host, clock)
    agent, alarm = host.agent, host.agent._loop._alarm
    member = agent._membership._wanted
    assert member is not None
    view = View({"h1": member}, is_current=True)
    agent._membership._view = view
    alarm.begin()  # the doorbell had it asked for once, when it began to listen
    agent.hear_ring(1)  # the one that it has
    agent.hear_decision(concerns_all=False)
    assert math.isinf(alarm._asked_for)
    hear: list[Callable[[], None]] = [
        lambda: agent.hear_ring(2),
        lambda: agent.hear_decision(concerns_all=True),
        agent.hear_doorbell,
    ]
    for each in hear:
        each()
        assert not math.isinf(alarm._asked_for)
        alarm.begin()
    agent._membership._view = dataclasses.replace(view, is_publisher=True)
    agent.hear_decision(concerns_all=False)
    assert not math.isinf(alarm._asked_for)


def test_image_is_attached_as_soon_as_its_registration_rings_the_doorbell(
    make_conf: Callable[..., cfg.ConfigOpts], origin: FaultyOrigin
) -> None:
    """With an hour between looks: the doorbell alone takes the second image to the data plane."""
    MemoryRuntime.locked_stores.clear()
    register(origin, IMAGE)
    host = HostUnderTest(make_conf("h1", interval=3600), origin, time.monotonic, [])
    runtime = host.data_plane.start()
    thread = threading.Thread(target=host.agent.run)
    thread.start()
    try:
        wait_for("the first image", lambda: IMAGE in runtime.images)
        register(origin, OTHER)
        wait_for("the other image", lambda: OTHER in runtime.images)
    finally:
        host.agent.stop()
        thread.join(20)
        host.data_plane.stop()


def test_decision_and_ring_that_are_announced_are_looked_at_at_once(
    make_conf: Callable[..., cfg.ConfigOpts], origin: FaultyOrigin
) -> None:
    """With an hour between looks: announcements alone take a decision to the data planes."""
    MemoryRuntime.locked_stores.clear()
    hosts: list[HostUnderTest] = []

    def announce(generation: int) -> None:
        for each in hosts:
            each.agent.hear_ring(generation)

    for name in ("h1", "h2"):
        conf = make_conf(name, interval=3600, ring_settle_delay=0)
        host = HostUnderTest(conf, origin, time.monotonic, [])
        host.agent._announce_ring = announce
        hosts.append(host)
    runtimes = [host.data_plane.start() for host in hosts]
    threads = [threading.Thread(target=host.agent.run) for host in hosts]
    for thread in threads:
        thread.start()
    try:

        def generations() -> set[object]:
            return {runtime.ring["generation"] if runtime.ring else 0 for runtime in runtimes}

        def settled() -> bool:
            for host in hosts:
                host.agent.reconcile_soon()
            published = read_ring(origin)
            return (
                published is not None
                and len(published.ring.hosts) == 2
                and generations() == {published.ring.generation}
            )

        wait_for("a ring of both", settled, interval=0.05)
        (publisher,) = [host for host in hosts if host.agent.membership_view.is_publisher]
        (follower,) = [host for host in hosts if host is not publisher]
        before = generations()
        replace_decision(origin, None, Decision(1, 1, "p", 0, "equation1", {"h1": 5000}, 5))
        publisher.agent.hear_decision(concerns_all=False)
        wait_for(
            "both follow the ring", lambda: len(generations()) == 1 and generations() != before
        )
        follower.agent.hear_decision(concerns_all=True)
        wait_for(
            "the threshold",
            lambda: [runtime.status()["distance_threshold"] for runtime in runtimes] == [5, 5],
        )
    finally:
        for host in hosts:
            host.agent.stop()
        for thread in threads:
            thread.join(20)
        for host in hosts:
            host.data_plane.stop()
