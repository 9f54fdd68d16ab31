"""Usage record of a host, and its order with what the host attaches."""

import dataclasses
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.agent.reconciler import ImageUser
from acstor.agent.reconcilers.usage_publication import (
    LINGER_SECONDS,
    RECHECK_INTERVAL,
    REFRESH_INTERVAL,
    LocalUse,
    UsagePublisher,
)
from acstor.dataplane import restored_images
from acstor.origin import base
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.repository import layout
from acstor.repository.gc import condemnation
from acstor.repository.images.usage import Usage, forget_usage, read_usage, usage_ref
from testbed.doubles.memory_runtime import MemoryRuntime
from testbed.fixtures.usage_records import write_usage
from tests.unit.agent.conftest import Clock, HostUnderTest, RecordingReconciler
from tests.unit.agent.test_agent import IMAGE, OTHER, problems, register

ONE, TWO = "01" * 32, "02" * 32


@pytest.fixture
def publisher(origin: FaultyOrigin, clock: Clock) -> UsagePublisher:
    return UsagePublisher(origin, "h1", speaks_within=35, clock=clock)


def published(origin: base.Origin) -> Usage:
    found = read_usage(origin, "h1")
    assert found is not None
    return found


def swaps(origin: FaultyOrigin) -> int:
    return origin.calls[Operation.SWAP_REF]


def test_record_says_who_wrote_it_and_when(origin: FaultyOrigin, publisher: UsagePublisher) -> None:
    publisher.announce({ONE: IMAGE}, {TWO: OTHER})
    publisher.speak(LocalUse({IMAGE: ("b", "a")}, frozenset({"0" * 40}), round=3))
    found = published(origin)
    assert found.manifests == {ONE: IMAGE, TWO: OTHER}
    assert found.images == {IMAGE: ("a", "b")}
    assert found.bases == {"0" * 40}
    assert (found.sequence, found.round, found.speaks_within) == (2, 3, 35)
    assert found.time
    assert found.boot
    assert len(found.agent) == 32


def test_record_is_written_only_when_it_changed(
    origin: FaultyOrigin, publisher: UsagePublisher, clock: Clock
) -> None:
    publisher.announce({ONE: IMAGE}, {})
    publisher.speak(LocalUse({IMAGE: ()}))
    count = swaps(origin)
    publisher.announce({ONE: IMAGE}, {})
    publisher.speak(LocalUse({IMAGE: ()}))
    assert swaps(origin) == count
    clock.now += REFRESH_INTERVAL
    publisher.announce({ONE: IMAGE}, {})
    assert swaps(origin) == count
    publisher.speak(LocalUse({IMAGE: ()}))
    assert swaps(origin) == count + 1, "operators see when a host spoke last"


def test_record_that_somebody_removed_is_written_again(
    origin: FaultyOrigin, publisher: UsagePublisher, clock: Clock
) -> None:
    publisher.announce({ONE: IMAGE}, {})
    publisher.speak(LocalUse({IMAGE: ()}))
    forget_usage(origin, "h1")
    clock.now += RECHECK_INTERVAL
    publisher.announce({ONE: IMAGE}, {})
    assert published(origin).manifests == {ONE: IMAGE}
    assert published(origin).images == {IMAGE: ()}


def test_next_process_keeps_what_the_one_before_has_published(
    origin: FaultyOrigin, publisher: UsagePublisher
) -> None:
    publisher.announce({ONE: IMAGE}, {})
    publisher.speak(LocalUse({IMAGE: ("a",)}, round=5))
    before = published(origin)
    following = UsagePublisher(origin, "h1")
    following.announce({}, {})
    found = published(origin)
    assert (found.manifests, found.images, found.round) == ({ONE: IMAGE}, {IMAGE: ("a",)}, 5)
    assert found.sequence == before.sequence + 1
    assert found.agent != before.agent, "a swap of the process before can take effect no more"


def test_incomplete_look_takes_nothing_off_and_acknowledges_nothing(
    origin: FaultyOrigin, publisher: UsagePublisher
) -> None:
    publisher.speak(LocalUse({IMAGE: ()}, frozenset({"0" * 40}), round=1))
    publisher.speak(LocalUse({OTHER: ()}, is_complete=False, round=2))
    found = published(origin)
    assert set(found.images) == {IMAGE, OTHER}
    assert (sorted(found.bases), found.round) == (["0" * 40], 1)


def test_manifest_leaves_the_record_a_while_after_the_data_plane_lost_it(
    origin: FaultyOrigin, publisher: UsagePublisher, clock: Clock
) -> None:
    publisher.announce({ONE: IMAGE, TWO: OTHER}, {})
    publisher.announce({TWO: OTHER}, {})
    clock.now += LINGER_SECONDS - 1
    publisher.announce({TWO: OTHER}, {})
    assert set(published(origin).manifests) == {ONE, TWO}
    clock.now += 1
    publisher.announce({TWO: OTHER}, {})
    assert set(published(origin).manifests) == {TWO}


def test_manifest_of_an_image_in_use_stays_whatever_the_data_plane_has(
    origin: FaultyOrigin, publisher: UsagePublisher, clock: Clock
) -> None:
    publisher.announce({ONE: IMAGE}, {})
    publisher.speak(LocalUse({IMAGE: ("a",)}))
    for _ in range(3):
        publisher.announce({}, {})
        clock.now += LINGER_SECONDS
    assert published(origin).manifests == {ONE: IMAGE}


def test_swap_that_takes_effect_late_takes_nothing_away(
    origin: FaultyOrigin, publisher: UsagePublisher
) -> None:
    """A write that failed may still be on its way: whatever comes after it must exclude it."""
    publisher.announce({ONE: IMAGE}, {})
    ref = origin.get_ref(usage_ref("h1"))
    assert ref is not None
    late = dataclasses.replace(published(origin), manifests={})
    origin.faults.append(Fault(Operation.SWAP_REF, Effect.ERROR, call=swaps(origin) + 1))
    with pytest.raises(exception.UnavailableError):
        publisher.announce({ONE: IMAGE}, {TWO: OTHER})
    publisher.announce({ONE: IMAGE}, {})  # equal to what is there, and written all the same
    with pytest.raises(exception.ConflictError):
        origin.swap_ref(usage_ref("h1"), ref.token, late.encode())
    assert ONE in published(origin).manifests


def test_damaged_record_is_made_anew(origin: FaultyOrigin, publisher: UsagePublisher) -> None:
    origin.swap_ref(usage_ref("h1"), None, b"{")
    publisher.announce({ONE: IMAGE}, {})
    assert published(origin).manifests == {ONE: IMAGE}


def test_damaged_record_stays_until_the_data_plane_said_what_it_has(origin: FaultyOrigin) -> None:
    """Nothing is collected while it is damaged; one without the manifests would allow it."""
    origin.swap_ref(usage_ref("h1"), None, b"{")
    answers: list[dict[str, str]] = []

    def attached() -> dict[str, str]:
        if not answers:
            raise exception.UnavailableError("the data plane does not answer")
        return answers.pop()

    publisher = UsagePublisher(origin, "h1", attached=attached)
    with pytest.raises(exception.UnavailableError):
        publisher.ensure()
    with pytest.raises(exception.CorruptError):
        read_usage(origin, "h1")
    answers.append({ONE: IMAGE})
    assert publisher.ensure()
    assert published(origin).manifests == {ONE: IMAGE}


def test_address_of_the_data_plane_is_published_and_kept(
    origin: FaultyOrigin, publisher: UsagePublisher
) -> None:
    publisher.peer_address = "10.0.0.1:7420"
    publisher.ensure()
    assert published(origin).peer_address == "10.0.0.1:7420"
    publisher.peer_address = "10.0.0.2:7420"
    publisher.ensure()
    assert published(origin).peer_address == "10.0.0.2:7420"
    following = UsagePublisher(origin, "h1")
    following.ensure()
    assert published(origin).peer_address == "10.0.0.2:7420"


def test_record_of_the_release_before_is_carried_over(
    origin: FaultyOrigin, publisher: UsagePublisher
) -> None:
    old = f'{{"version": 1, "images": ["{IMAGE}"]}}'
    origin.swap_ref(usage_ref("h1"), None, old.encode())
    publisher.announce({}, {})
    assert published(origin).images == {IMAGE: ()}


def test_collectors_of_older_releases_are_stopped(
    origin: FaultyOrigin, publisher: UsagePublisher
) -> None:
    publisher.announce({ONE: IMAGE}, {})
    name = condemnation.GUARD_NAME
    assert name not in condemnation.Tombstones(origin).names()
    ref = origin.get_ref(layout.condemned_ref(name))
    assert ref is not None
    # What the release before does with each ref of that folder that is named like an object.
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        condemnation.Tombstone.parse(name, ref)


# In the agent's looks


class UsingReconciler(RecordingReconciler):
    """A reconciler that has seen what the test wants."""

    use: LocalUse | None = None
    needed: frozenset[str] | None = frozenset()

    def images_needed(self) -> frozenset[str] | None:
        return self.needed

    def local_use(self) -> LocalUse | None:
        return self.use


@pytest.fixture
def reconciler(host: HostUnderTest) -> UsingReconciler:
    reconciler = UsingReconciler()
    assert isinstance(reconciler, ImageUser)
    host.agent._reconcilers = (reconciler,)
    return reconciler


def test_manifest_is_published_before_it_is_attached(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    manifest = register(host.origin, IMAGE)
    seen: list[bool] = []
    attach = runtime.attach_image

    def watched(
        manifest_path: str, hidden: bool = False, digest: str | None = None
    ) -> dict[str, object]:
        seen.append(manifest in published(host.origin).manifests)
        return attach(manifest_path, hidden, digest)

    runtime.attach_image = watched  # type: ignore[method-assign]
    host.agent.reconcile()
    assert seen == [True]


def test_no_state_of_a_damaged_record_lacks_what_is_attached(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    digest = register(host.origin, IMAGE)
    host.agent.reconcile()
    assert published(host.origin).peer_address
    ref = host.origin.get_ref(usage_ref("h1"))
    assert ref is not None
    host.origin.swap_ref(usage_ref("h1"), ref.token, b"{")
    swap: Callable[..., str | None] = host.origin.swap_ref
    seen: list[bool] = []

    def watched(name: str, expected: str | None, content: bytes | None) -> str | None:
        if name == usage_ref("h1") and content is not None:
            seen.append(digest in Usage.parse(content, "h1").manifests)
        return swap(name, expected, content)

    host.origin.swap_ref = watched  # type: ignore[method-assign]
    host.agent._followers = None  # a process that knows nothing yet
    host.agent.reconcile()
    assert set(runtime.images) == {IMAGE}
    assert seen
    assert all(seen)


def restart_with_an_image_that_waits(host: HostUnderTest) -> str:
    """Have an image attached, then not registered any more and not attached after a restart."""
    host.data_plane.start()
    digest = register(host.origin, IMAGE)
    host.agent.reconcile()
    host.data_plane.stop_for_next()
    ref = host.origin.get_ref(layout.image_ref(IMAGE))
    assert ref is not None
    host.origin.swap_ref(layout.image_ref(IMAGE), ref.token, None)

    def prepare(runtime: MemoryRuntime) -> None:
        runtime.attach_failures = ["unavailable"]

    assert host.data_plane.start(prepare).images == {}
    return digest


def test_damaged_record_is_replaced_by_one_with_images_that_wait_to_be_attached(
    host: HostUnderTest,
) -> None:
    digest = restart_with_an_image_that_waits(host)
    ref = host.origin.get_ref(usage_ref("h1"))
    assert ref is not None
    host.origin.swap_ref(usage_ref("h1"), ref.token, b"{")
    host.agent._followers = None  # a process that knows nothing yet
    host.agent.reconcile()
    found = published(host.origin)
    assert digest in found.manifests
    assert found.uses(IMAGE), "guests may have it open"


def test_image_that_waits_to_be_attached_stays_in_the_record(
    host: HostUnderTest, clock: Clock
) -> None:
    digest = restart_with_an_image_that_waits(host)
    for _ in range(3):
        host.agent.reconcile()
        clock.now += LINGER_SECONDS
    assert digest in published(host.origin).manifests


def test_damaged_record_waits_for_a_manifest_that_cannot_be_read(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restored_images, "_manifest_of", lambda image: "")
    restart_with_an_image_that_waits(host)
    ref = host.origin.get_ref(usage_ref("h1"))
    assert ref is not None
    host.origin.swap_ref(usage_ref("h1"), ref.token, b"{")
    host.agent._followers = None
    host.agent.reconcile()
    with pytest.raises(exception.CorruptError):
        read_usage(host.origin, "h1")


def test_record_that_the_store_damaged_is_made_anew(
    origin: FaultyOrigin, publisher: UsagePublisher, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.announce({ONE: IMAGE}, {})
    ref = origin.get_ref(usage_ref("h1"))
    assert ref is not None
    origin.swap_ref(usage_ref("h1"), ref.token, b"")
    ref = origin.get_ref(usage_ref("h1"))
    get_ref = FaultyOrigin.get_ref

    def damaged(self: FaultyOrigin, name: str) -> base.Ref | None:
        found = get_ref(self, name)
        if found is not None and found == ref:
            raise base.DamagedRefError("not what was written", token=found.token)
        return found

    monkeypatch.setattr(FaultyOrigin, "get_ref", damaged)
    clock.now += RECHECK_INTERVAL
    publisher.announce({ONE: IMAGE}, {})
    assert published(origin).manifests == {ONE: IMAGE}


def test_nothing_is_attached_that_could_not_be_published(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.origin.faults.append(Fault(Operation.SWAP_REF, Effect.ERROR))
    host.agent.reconcile()
    assert runtime.images == {}
    host.origin.faults.clear()
    host.agent.reconcile()
    assert set(runtime.images) == {IMAGE}


def test_image_that_went_while_it_was_published_is_not_attached(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    swap: Callable[..., str | None] = host.origin.swap_ref

    def swap_and_remove(name: str, expected: str | None, content: bytes | None) -> str | None:
        token = swap(name, expected, content)
        ref = host.origin.get_ref(layout.image_ref(IMAGE))
        if name == usage_ref("h1") and ref is not None:
            swap(layout.image_ref(IMAGE), ref.token, None)
        return token

    host.origin.swap_ref = swap_and_remove  # type: ignore[method-assign]
    host.agent.reconcile()
    assert runtime.images == {}
    assert problems(host.agent) == {}


def test_look_publishes_what_reconcilers_and_open_files_use(
    host: HostUnderTest, reconciler: UsingReconciler
) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    register(host.origin, OTHER)
    host.agent.reconcile()
    assert published(host.origin).images == {}
    reconciler.use = LocalUse({IMAGE: ("a",)})
    runtime.open_handles[OTHER] = 1
    host.agent.reconcile()
    assert published(host.origin).images == {IMAGE: ("a",), OTHER: ()}


def test_nothing_is_said_of_use_before_the_reconcilers_have_run(
    host: HostUnderTest, reconciler: UsingReconciler
) -> None:
    host.data_plane.start()
    register(host.origin, IMAGE)
    write_usage(host.origin, "h1", [OTHER])
    host.agent.reconcile()
    assert set(published(host.origin).images) == {OTHER}
    reconciler.use = LocalUse()
    host.agent.reconcile()
    assert published(host.origin).images == {}


def test_data_plane_that_is_away_takes_nothing_off_the_record(host: HostUnderTest) -> None:
    host.data_plane.start()
    digest = register(host.origin, IMAGE)
    host.agent.reconcile()
    host.data_plane.stop()
    host.agent.reconcile()
    assert digest in published(host.origin).manifests


@pytest.mark.parametrize("is_linking", [True, False])
def test_host_without_links_is_not_waited_for_as_one_that_scans(
    host: HostUnderTest, is_linking: bool
) -> None:
    """One in the whole cluster would lengthen every withdrawal's grace."""
    host.conf.set_override("scan_interval", 1000.0, "image_links")
    host.conf.set_override("enabled", is_linking, "image_links")
    host.data_plane.start()
    host.agent.reconcile()
    told = published(host.origin).speaks_within
    assert told == host.conf.agent.interval + (1000.0 if is_linking else 0.0)
