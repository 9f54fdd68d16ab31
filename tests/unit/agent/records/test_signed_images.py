"""Signed images on a host whose origin lies: nothing is attached that the registrar has not signed.

The real agent, its reconcilers and the admin socket; the origin is a wrapper that answers as
somebody wants who can write to it.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg

from acstor.agent.agent import Agent
from acstor.agent.reconcilers.registered_images import UNINDEXED_RECHECK
from acstor.agent.reconcilers.seen_records import path_in
from acstor.agent.reconcilers.usage_publication import LocalUse
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.images.image_index import ImageIndexWriter
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.record_writer import RecordWriter, SignedRecords, UnsignedRecords
from acstor.repository.images.usage import Usage, usage_ref
from acstor.repository.repository import Format, Repository
from acstor.repository.signing.signed_document import RefusalReason
from testbed.doubles.lying_origin import LyingOrigin
from testbed.doubles.memory_runtime import CHUNK_SIZE, MemoryRuntime, make_manifest
from tests.unit.agent.conftest import Clock, HostUnderTest
from tests.unit.agent.test_agent import IMAGE, OTHER, problems, publish
from tests.unit.agent.test_images_needed import NeedyReconciler
from tests.unit.repository import images
from tests.unit.repository.signing.keys import install, private, trusted

NAME = layout.image_ref(IMAGE)


class SigningCloud:
    """A registrar that signs, a host that verifies, and an origin between them that may lie."""

    def __init__(self, host: HostUnderTest, origin: LyingOrigin, keys: pathlib.Path) -> None:
        self.host = host
        self.origin = origin
        self.keys = keys
        self.repository = Repository.open(origin)
        self.runtime = host.data_plane.start()
        publish(origin, 1)
        host.conf.set_override("public_keys", str(keys), group="repository")
        self.trust(0)
        self.require(True)

    def trust(self, *numbers: int) -> None:
        install(self.keys, *numbers)

    def require(self, is_required: bool) -> None:
        """As the configuration says when the agent starts."""
        self.host.conf.set_override("require_signatures", is_required, group="repository")

    def register(
        self, image_id: str = IMAGE, number: int | None = 0, salt: int = 0, disk: str | None = None
    ) -> bytes:
        """Register an image; return the content of its ref.

        :param number: of the key; None: unsigned.
        """
        writer: RecordWriter = UnsignedRecords()
        if number is not None:
            writer = SignedRecords(private(number), trusted())
        manifest = make_manifest(disk or image_id, salt=salt)
        self.origin.put_if_absent(layout.manifest_key(manifest.digest), [manifest.to_bytes()])
        record = ImageRecord(
            manifest.digest, "0" * 64, "image", manifest.size_bytes, CHUNK_SIZE,
            manifest.chunk_count, 0, manifest.chunk_count, "raw", "2026-01-01T00:00:00Z",
        )  # fmt: skip
        name = layout.image_ref(image_id)
        ref = self.origin._inner.get_ref(name)
        content = writer.encode(self.repository, image_id, record, None)
        with ImageIndexWriter(self.origin, is_kept=True).changing(image_id):
            self.origin.swap_ref(name, ref.token if ref else None, content)
        return content

    def remove(self) -> None:
        ref = self.origin._inner.get_ref(NAME)
        assert ref is not None
        self.origin.swap_ref(NAME, ref.token, None)

    def reconcile(self, later: float = 0.0) -> None:
        self.clock.now += later
        self.host.agent.reconcile()

    def restart_agent(self) -> None:
        """As a process that was killed starts anew: it knows what is on its disk."""
        self.host.agent = Agent(
            self.host.conf,
            open_origin=lambda: self.origin,
            metrics=self.host.metrics,
            metrics_address="127.0.0.1:9471",
            reconcilers=[self.host.reconciler],
            clock=self.clock,
        )

    clock: Clock

    @property
    def attached(self) -> dict[str, str]:
        """Manifests that the data plane lists, by image."""
        return {
            image_id: str(image["manifest"])
            for image_id, image in self.runtime.images.items()
            if not image["hidden"]
        }

    def metric(self, name: str, label: str) -> float:
        lines = self.host.metrics.text().splitlines()
        found = [line for line in lines if line.startswith(name) and f'="{label}"' in line]
        return float(found[0].split()[1]) if found else 0.0

    def refusals(self, reason: RefusalReason) -> float:
        return self.metric("acstor_agent_image_records_refused_total", reason.value)


@pytest.fixture
def cloud(
    make_conf: Callable[..., cfg.ConfigOpts], clock: Clock, tmp_path: pathlib.Path
) -> Iterator[SigningCloud]:
    MemoryRuntime.locked_stores.clear()
    inner = MemoryOrigin()
    Repository.init(inner, images.CHUNK_SIZE)
    origin = LyingOrigin(inner)
    made = SigningCloud(HostUnderTest(make_conf(), origin, clock, []), origin, tmp_path / "keys")
    made.clock = clock
    yield made
    made.host.data_plane.stop()


def manifest_of(content: bytes) -> str:
    return ImageRecord.parse(content, IMAGE).manifest


def test_signed_image_is_attached(cloud: SigningCloud) -> None:
    content = cloud.register()
    cloud.reconcile()
    assert problems(cloud.host.agent) == {}
    assert cloud.attached == {IMAGE: manifest_of(content)}
    assert cloud.metric("acstor_agent_images", "unverified") == 0


def forged_by(cloud: SigningCloud) -> dict[str, bytes]:
    """Return what somebody may put in the place of an image's record, by what he does."""
    other = cloud.register(OTHER)
    another_disk = make_manifest(IMAGE, salt=77)
    cloud.origin.put_if_absent(layout.manifest_key(another_disk.digest), [another_disk.to_bytes()])
    record = dataclasses.replace(ImageRecord.parse(other, OTHER), manifest=another_disk.digest)
    good = cloud.register()
    return {
        "unsigned": record.encode(),
        "his own key": SignedRecords(private(9), trusted()).encode(
            cloud.repository, IMAGE, record, None
        ),
        "another manifest": good.replace(manifest_of(good).encode(), another_disk.digest.encode()),
        "the record of another image": other,
        "half a record": good[: len(good) // 2],
        "nothing": b"",
    }


FORGERIES = {
    "unsigned": RefusalReason.UNSIGNED,
    "his own key": RefusalReason.UNKNOWN_KEY,
    "another manifest": RefusalReason.BAD_SIGNATURE,
    "the record of another image": RefusalReason.OTHER_SUBJECT,
    "half a record": RefusalReason.UNSIGNED,
    "nothing": RefusalReason.UNSIGNED,
}


@pytest.mark.parametrize("how", FORGERIES)
def test_forged_record_is_refused_with_its_reason(cloud: SigningCloud, how: str) -> None:
    cloud.origin.lies[NAME] = forged_by(cloud)[how]
    cloud.reconcile()
    assert set(cloud.attached) == {OTHER}, "the others are followed"
    assert f"image {IMAGE}" in problems(cloud.host.agent)
    assert cloud.refusals(FORGERIES[how]) > 0
    assert cloud.host.reconciler.sights[-1].unverified == {IMAGE}
    assert cloud.metric("acstor_agent_images", "unverified") == 1
    cloud.origin.lies.clear()
    cloud.reconcile()
    assert set(cloud.attached) == {IMAGE, OTHER}
    assert problems(cloud.host.agent) == {}


def test_record_that_changes_between_two_reads_is_refused(
    cloud: SigningCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that changes between look and attachment is verified again."""
    forged = forged_by(cloud)["another manifest"]
    announced = manifest_of(cloud.register()).encode()
    put = cloud.origin.swap_ref

    def swap(name: str, expected: str | None, content: bytes | None) -> str | None:
        if name == usage_ref("h1") and announced in (content or b""):
            cloud.origin.lies[NAME] = forged
        return put(name, expected, content)

    monkeypatch.setattr(cloud.origin, "swap_ref", swap)
    cloud.reconcile()
    assert IMAGE not in cloud.attached
    assert cloud.refusals(RefusalReason.BAD_SIGNATURE) > 0
    assert IMAGE in cloud.host.reconciler.sights[-1].unverified


def test_attached_image_stays_when_its_record_is_replaced(cloud: SigningCloud) -> None:
    content = cloud.register()
    cloud.reconcile()
    cloud.origin.lies[NAME] = forged_by(cloud)["his own key"]
    cloud.reconcile(UNINDEXED_RECHECK)
    assert cloud.attached[IMAGE] == manifest_of(content)
    snapshot = cloud.host.reconciler.sights[-1]
    assert IMAGE in snapshot.kept & snapshot.unverified
    assert IMAGE not in snapshot.offered
    cloud.reconcile()
    assert cloud.attached[IMAGE] == manifest_of(content)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_old_record_that_is_put_back_is_refused(cloud: SigningCloud, is_restarted: bool) -> None:
    """The image was removed and registered anew: the record before is still well signed."""
    old = cloud.register(salt=1)
    cloud.reconcile()
    cloud.remove()
    cloud.reconcile()
    assert cloud.attached == {}
    new = cloud.register(salt=2)
    cloud.reconcile()
    assert cloud.attached == {IMAGE: manifest_of(new)}
    cloud.runtime.images.clear()
    if is_restarted:
        cloud.restart_agent()
    cloud.origin.lies[NAME] = old
    cloud.reconcile()
    assert cloud.attached == {}
    assert "somebody has put an old one back" in problems(cloud.host.agent)[f"image {IMAGE}"]
    assert cloud.refusals(RefusalReason.ROLLBACK) > 0
    cloud.origin.lies.clear()
    cloud.reconcile()
    assert cloud.attached == {IMAGE: manifest_of(new)}


def test_old_record_is_refused_after_the_image_was_gone_for_long(cloud: SigningCloud) -> None:
    old = cloud.register(salt=1)
    new = cloud.register(salt=2)
    cloud.reconcile()
    assert cloud.attached == {IMAGE: manifest_of(new)}
    cloud.remove()
    cloud.reconcile(1e6)
    cloud.restart_agent()
    cloud.origin.lies[NAME] = old
    cloud.reconcile(1e6)
    assert cloud.attached == {}


def test_memory_is_on_the_disk_before_the_image_is_attached(cloud: SigningCloud) -> None:
    """Else an agent that is killed in between would take the old one at its next start."""
    cloud.register()
    folder = pathlib.Path(path_in(cloud.host.conf.state_path))
    folder.mkdir(parents=True)
    cloud.reconcile()
    assert cloud.attached == {}
    folder.rmdir()
    cloud.reconcile()
    assert set(cloud.attached) == {IMAGE}


def test_damaged_memory_is_put_aside_and_said(
    cloud: SigningCloud, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.register()
    cloud.reconcile()
    path = pathlib.Path(path_in(cloud.host.conf.state_path))
    path.write_bytes(path.read_bytes()[:-10])
    cloud.runtime.images.clear()
    cloud.restart_agent()
    cloud.reconcile()
    assert set(cloud.attached) == {IMAGE}
    assert path.with_name(f"{path.name}.damaged").exists()
    assert "is malformed; old records are taken until newer ones are seen" in caplog.text


def test_memory_of_a_newer_release_attaches_nothing(cloud: SigningCloud) -> None:
    cloud.register()
    path = pathlib.Path(path_in(cloud.host.conf.state_path))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b'{"version": 2}')
    cloud.reconcile()
    assert "has version 2" in problems(cloud.host.agent)["images"]
    assert cloud.attached == {}
    assert path.read_bytes() == b'{"version": 2}'


def test_key_is_rotated_under_running_images(cloud: SigningCloud) -> None:
    content = cloud.register()
    cloud.reconcile()
    cloud.trust(0, 1)
    cloud.register(number=1)
    cloud.reconcile(UNINDEXED_RECHECK)
    assert problems(cloud.host.agent) == {}
    cloud.trust(1)
    cloud.reconcile()
    assert problems(cloud.host.agent) == {}
    assert cloud.attached == {IMAGE: manifest_of(content)}
    assert cloud.host.reconciler.sights[-1].offered == {IMAGE: manifest_of(content)}
    cloud.origin.lies[NAME] = content
    cloud.reconcile(UNINDEXED_RECHECK)
    assert cloud.refusals(RefusalReason.UNKNOWN_KEY) > 0, "the former key counts no more"


def test_removed_key_attaches_nothing_new_and_ends_nothing(cloud: SigningCloud) -> None:
    """At the next pass, not when the record is looked at again."""
    content = cloud.register()
    cloud.reconcile()
    cloud.register(OTHER)
    cloud.trust(5)
    cloud.reconcile()
    assert cloud.attached == {IMAGE: manifest_of(content)}
    snapshot = cloud.host.reconciler.sights[-1]
    assert set(snapshot.unverified) == {IMAGE, OTHER}
    assert set(snapshot.kept) == {IMAGE}
    assert cloud.metric("acstor_agent_images", "unverified") == 2
    cloud.trust(0)
    cloud.reconcile()
    assert set(cloud.attached) == {IMAGE, OTHER}
    assert problems(cloud.host.agent) == {}


def test_stolen_key_does_not_lock_out_its_successor(cloud: SigningCloud) -> None:
    """The thief has signed with a generation that nobody can go above."""
    content = cloud.register()
    record = ImageRecord.parse(content, IMAGE)
    thief = SignedRecords(private(0), trusted())
    cloud.origin.lies[NAME] = thief.encode_as(cloud.repository, IMAGE, record, (1 << 53) - 1)
    cloud.reconcile()
    assert set(cloud.attached) == {IMAGE}
    cloud.origin.lies.clear()
    cloud.trust(1)
    cloud.register(number=1)
    cloud.reconcile(UNINDEXED_RECHECK)
    assert problems(cloud.host.agent) == {}


def test_damaged_key_file_is_a_problem_and_no_key(cloud: SigningCloud) -> None:
    cloud.trust(0, 1)
    cloud.register()
    (cloud.keys / "0.pub").write_bytes(b"damaged")
    cloud.reconcile()
    found = problems(cloud.host.agent)
    assert "holds no public key" in found[f"image key {cloud.keys}/0.pub"]
    assert "is not trusted here" in found[f"image {IMAGE}"]
    assert cloud.attached == {}
    cloud.trust(0, 1)
    cloud.reconcile()
    assert problems(cloud.host.agent) == {}
    assert set(cloud.attached) == {IMAGE}


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives files away")
def test_key_file_of_another_user_is_no_key(cloud: SigningCloud) -> None:
    cloud.register()
    os.chown(cloud.keys / "0.pub", 12345, -1)
    cloud.reconcile()
    assert cloud.attached == {}


def test_unsigned_image_is_attached_until_signatures_are_required(cloud: SigningCloud) -> None:
    cloud.require(False)
    content = cloud.register(number=None)
    cloud.reconcile()
    assert cloud.attached == {IMAGE: manifest_of(content)}
    cloud.require(True)
    cloud.restart_agent()
    cloud.reconcile()
    assert cloud.attached == {IMAGE: manifest_of(content)}, "guests go on"
    assert cloud.host.reconciler.sights[-1].unverified == {IMAGE}


def test_image_that_was_signed_is_not_read_unsigned_again(cloud: SigningCloud) -> None:
    cloud.require(False)
    cloud.register()
    cloud.reconcile()
    cloud.runtime.images.clear()
    cloud.origin.lies[NAME] = forged_by(cloud)["unsigned"]
    cloud.restart_agent()
    cloud.reconcile()
    assert IMAGE not in cloud.attached
    assert "has seen a signed one" in problems(cloud.host.agent)[f"image {IMAGE}"]


def test_record_of_another_repository_is_refused_with_its_id(cloud: SigningCloud) -> None:
    """Two clouds signed with one key keep their images apart."""
    cloud.register()
    cloud.reconcile()
    cloud.runtime.images.clear()
    other = Format("00000000-0000-4000-8000-000000000009", CHUNK_SIZE)
    cloud.origin.delete(layout.FORMAT_KEY)
    cloud.origin.put_if_absent(layout.FORMAT_KEY, [other.encode()])
    cloud.repository = Repository.open(cloud.origin)
    cloud.register()
    cloud.restart_agent()
    cloud.reconcile()
    assert cloud.attached == {}
    assert "knows signed images of repository" in problems(cloud.host.agent)[f"image {IMAGE}"]


@pytest.mark.parametrize("is_required", [False, True])
def test_forged_usage_record_attaches_nothing(cloud: SigningCloud, is_required: bool) -> None:
    """An image without a record comes back by what this host has said that it has attached."""
    reconciler = NeedyReconciler()
    cloud.host.reconciler = reconciler
    cloud.require(is_required)
    cloud.restart_agent()
    good = manifest_of(cloud.register())
    reconciler.use, reconciler.needed = LocalUse(images={IMAGE: ("guest",)}), frozenset({IMAGE})
    cloud.reconcile()
    forged = make_manifest(IMAGE, salt=77)
    cloud.origin.put_if_absent(layout.manifest_key(forged.digest), [forged.to_bytes()])
    cloud.remove()
    cloud.runtime.images.clear()
    ref = cloud.origin.get_ref(usage_ref("h1"))
    assert ref is not None
    usage = Usage.parse(ref.content, "h1")
    assert set(usage.manifests) == {good}
    lie = dataclasses.replace(usage, manifests={forged.digest: IMAGE})
    cloud.origin.swap_ref(usage_ref("h1"), ref.token, lie.encode())
    cloud.restart_agent()
    cloud.reconcile()
    cloud.reconcile()
    assert forged.digest not in cloud.attached.values()
    assert "no signed record" in problems(cloud.host.agent)[f"image {IMAGE}"]
    ref = cloud.origin.get_ref(usage_ref("h1"))
    assert ref is not None
    honest = dataclasses.replace(Usage.parse(ref.content, "h1"), manifests={good: IMAGE})
    cloud.origin.swap_ref(usage_ref("h1"), ref.token, honest.encode())
    cloud.restart_agent()
    cloud.reconcile()
    cloud.reconcile()
    assert cloud.attached == {IMAGE: good}, "what a signed record has named comes back"
