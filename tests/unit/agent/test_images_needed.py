"""Images that a reconciler needs, or that are pinned whole, in the agent's looks."""

import pathlib
from collections.abc import Callable

import pytest
from oslo_config import cfg

from acstor.agent.reconciler import ImageUser
from acstor.agent.reconcilers.usage_publication import LocalUse
from acstor.conf.types import KIB
from acstor.origin.base import Origin
from acstor.origin.faulty import FaultyOrigin
from acstor.repository import layout
from acstor.repository.images.image_registry import Entry, EntryState, ImageRegistry
from acstor.repository.images.usage import Usage, usage_ref
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.conftest import Clock, HostUnderTest, RecordingReconciler
from tests.unit.agent.test_agent import IMAGE, OTHER, problems, publish, register


class NeedyReconciler(RecordingReconciler):
    needed: frozenset[str] | None = None

    def images_needed(self) -> frozenset[str] | None:
        return self.needed

    use: LocalUse | None = None

    def local_use(self) -> LocalUse | None:
        return self.use


@pytest.fixture
def reconciler(host: HostUnderTest) -> NeedyReconciler:
    reconciler = NeedyReconciler()
    host.agent._reconcilers = (reconciler, RecordingReconciler())
    return reconciler


def withdraw(origin: Origin, image_id: str) -> None:
    ref = origin.get_ref(layout.image_ref(image_id))
    assert ref is not None
    origin.swap_ref(layout.image_ref(image_id), ref.token, None)


def test_only_reconcilers_that_need_images_are_asked(reconciler: NeedyReconciler) -> None:
    assert isinstance(reconciler, ImageUser)
    assert not isinstance(RecordingReconciler(), ImageUser)


def test_image_in_use_is_never_detached(host: HostUnderTest, reconciler: NeedyReconciler) -> None:
    """Not even hidden: an instance that is stopped now is started later, by name."""
    runtime = host.data_plane.start()
    publish(host.origin, 1)
    register(host.origin, IMAGE)
    host.agent.reconcile()
    withdraw(host.origin, IMAGE)
    for needed in (None, frozenset({IMAGE})):
        reconciler.needed = needed
        host.agent.reconcile()
        assert not runtime.images[IMAGE]["hidden"]
        assert reconciler.sights[-1].kept == {IMAGE}
    reconciler.needed = frozenset({OTHER})
    host.agent.reconcile()
    assert runtime.images == {}


@pytest.mark.parametrize("is_known", [True, False])
def test_withdrawn_image_in_use_whose_manifest_was_put_aside_is_attached_again(
    host: HostUnderTest, reconciler: NeedyReconciler, is_known: bool
) -> None:
    """Nothing but the host's record tells of which manifest it was; guests got ESTALE for good."""
    runtime = host.data_plane.start()
    digest = lose_attached(host, reconciler)
    reconciler.needed = frozenset({IMAGE}) if is_known else None
    host.data_plane.stop()
    runtime = host.data_plane.start()
    assert runtime.images == {}, "its manifest was put aside"
    manifest = host.origin.get(layout.manifest_key(digest), 1 << 20)
    host.origin.delete(layout.manifest_key(digest))
    host.agent.reconcile()
    assert runtime.images == {}
    assert digest in problems(host.agent)[f"image {IMAGE}"]
    host.origin.put_if_absent(layout.manifest_key(digest), [manifest])
    host.agent.reconcile()
    assert runtime.images[IMAGE]["manifest"] == digest
    assert reconciler.sights[-1].kept == {IMAGE}
    assert f"image {IMAGE}" not in problems(host.agent)
    host.agent.reconcile()
    assert not runtime.images[IMAGE]["hidden"]


def test_withdrawn_image_that_nobody_needs_is_not_attached_again(
    host: HostUnderTest, reconciler: NeedyReconciler
) -> None:
    host.data_plane.start()
    lose_attached(host, reconciler)
    reconciler.needed = frozenset({OTHER})
    host.data_plane.stop()
    runtime = host.data_plane.start()
    host.agent.reconcile()
    assert runtime.images == {}


@pytest.mark.parametrize("open_handles", [0, 1])
def test_image_found_damaged_when_it_was_needed_is_attached_anew(
    host: HostUnderTest, reconciler: NeedyReconciler, open_handles: int
) -> None:
    """The origin keeps its manifest: withdrawn as the image is, this host uses it."""
    runtime = host.data_plane.start()
    digest = withdraw_in_use(host, reconciler)
    runtime.open_handles[IMAGE] = open_handles
    runtime.damaged.add(IMAGE)
    host.data_plane.look()
    assert [image["hidden"] for image in runtime.list_images()] == [True] * open_handles
    host.agent.reconcile()
    assert runtime.images[IMAGE]["manifest"] == digest
    assert not runtime.images[IMAGE]["hidden"]
    assert runtime.damaged_images() == []


def test_registered_image_found_damaged_is_attached_anew_before_it_is_put_aside(
    host: HostUnderTest,
) -> None:
    runtime = host.data_plane.start()
    publish(host.origin, 1)
    register(host.origin, IMAGE)
    host.agent.reconcile()
    runtime.damaged.add(IMAGE)
    host.agent.reconcile()
    assert runtime.damaged_images() == []
    host.data_plane.look()
    assert not runtime.images[IMAGE]["hidden"]


def lose_attached(host: HostUnderTest, reconciler: NeedyReconciler) -> str:
    """Withdraw an image that is in use, and damage the manifest that the data plane keeps of it.

    :returns: the digest of the manifest.
    """
    digest = withdraw_in_use(host, reconciler)
    kept = pathlib.Path(host.conf.state_path) / "dataplane" / "images" / f"{IMAGE}.manifest"
    kept.write_bytes(b"damaged")
    return digest


def withdraw_in_use(host: HostUnderTest, reconciler: NeedyReconciler) -> str:
    """Withdraw an image that is in use; return the digest of its manifest."""
    publish(host.origin, 1)
    register(host.origin, IMAGE)
    reconciler.use = LocalUse(images={IMAGE: ("an instance",)})
    reconciler.needed = frozenset({IMAGE})
    host.agent.reconcile()
    withdraw(host.origin, IMAGE)
    host.agent.reconcile()
    (digest,) = Usage.parse(read_usage(host.origin), "h1").manifests
    return digest


def read_usage(origin: Origin) -> bytes:
    ref = origin.get_ref(usage_ref("h1"))
    assert ref is not None
    return ref.content


def test_image_in_use_stays_pinned(host: HostUnderTest, reconciler: NeedyReconciler) -> None:
    runtime = host.data_plane.start()
    publish(host.origin, 1)
    register(host.origin, IMAGE)
    reconciler.needed = frozenset({IMAGE})
    host.agent._pinner.start()
    host.agent.reconcile()
    withdraw(host.origin, IMAGE)
    host.agent.reconcile()
    wait_for("pinned", lambda: runtime.images[IMAGE]["pinned_bytes"] != 0)

    def is_seen() -> bool:
        host.agent.reconcile()
        return reconciler.sights[-1].pinned == {IMAGE}

    wait_for("its pin is seen", is_seen)
    host.agent._pinner.stop(10)


def test_image_that_the_registry_says_to_pin_is_pinned_whole(
    make_conf: Callable[..., cfg.ConfigOpts], origin: FaultyOrigin, clock: Clock
) -> None:
    host = HostUnderTest(make_conf(pin_head="64KiB"), origin, clock, [])
    runtime = host.data_plane.start()
    publish(origin, 1)
    register(origin, IMAGE)
    register(origin, OTHER)
    entry = Entry(state=EntryState.REGISTERED, pin=True)
    ImageRegistry(origin).replace(IMAGE, None, entry)
    host.agent._pinner.start()
    try:
        host.agent.reconcile()
        size = int(str(runtime.images[IMAGE]["size_bytes"]))
        wait_for("whole", lambda: runtime.images[IMAGE]["pinned_bytes"] == size + 64 * KIB)
        wait_for("ends", lambda: runtime.images[OTHER]["pinned_bytes"] == 128 * KIB)
        assert size > 128 * KIB
    finally:
        host.agent._pinner.stop(10)
        host.data_plane.stop()


def test_damaged_registry_entry_hides_no_image(
    host: HostUnderTest, reconciler: NeedyReconciler
) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.origin.swap_ref(f"catalogue/{IMAGE}", None, b"{")
    host.agent.reconcile()
    assert "registry" in problems(host.agent)[f"image {IMAGE}"]
    assert list(runtime.images) == [IMAGE]
