"""Copies of a repository: what they have, what they have not, and where they are refused."""

import dataclasses
from collections.abc import Sequence

import pytest

from acstor import exception
from acstor.origin import base, memory
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.repository import layout, upgrade
from acstor.repository.copying import copy_record
from acstor.repository.copying.copy_record import CopyKind, CopyState
from acstor.repository.copying.ref_kinds import COPY_REF, REF_KINDS
from acstor.repository.copying.settled_volumes import EPOCHS_SKIPPED
from acstor.repository.gc import hold
from acstor.repository.gc.condemnation import Tombstones
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.marking import Marker
from acstor.repository.repository import Repository
from acstor.repository.volumes.states import VolumeRecordState, state_of
from acstor.repository.volumes.store import VolumeStore
from tests.unit.repository.copying.cloud import (
    DAMAGED,
    FOLDED,
    IN_USE,
    LASTING,
    TEXTS,
    TRANSIENT,
    Cloud,
    check_content,
    copier,
    copy,
    volume_text,
)
from tests.unit.repository.images import disk, image_id, open_repository, register
from tests.unit.repository.volumes.hosts import FencedOwnerError, Owner


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(memory.MemoryOrigin())


@pytest.fixture
def destination() -> memory.MemoryOrigin:
    return memory.MemoryOrigin()


def refs_of(origin: base.Origin) -> dict[str, bytes]:
    found = {name: origin.get_ref(name) for name in origin.list_refs()}
    return {name: ref.content for name, ref in found.items() if ref is not None}


def only_pack(repository: Repository, number: int) -> str:
    """Return the key of a pack that an image needs."""
    manifest = repository.load_manifest(repository.get_image(image_id(number)).record.manifest)
    return layout.pack_key(manifest.packs()[-1].hex())


def damage(origin: memory.MemoryOrigin, key: str) -> None:
    """Flip the bits of a byte in the middle of an object."""
    content = bytearray(origin._objects[key])
    content[len(content) // 2] ^= 0xFF
    origin._objects[key] = bytes(content)


# Backups


def test_backup_has_everything_that_lasts(cloud: Cloud, destination: base.Origin) -> None:
    report = copy(cloud.origin, destination)
    assert report.is_complete
    assert report.damages == {}
    assert (report.images, report.volumes, report.snapshots) == (2, 2, 1)
    assert report.objects == report.objects_copied == report.objects_verified > 0
    check_content(destination)
    before, after = refs_of(cloud.origin), refs_of(destination)
    for name in LASTING:
        assert after[name] == before[name]
    assert after.keys().isdisjoint(TRANSIENT)
    volume = layout.volume_ref(IN_USE)
    assert after[volume] == before[volume], "a backup has records as they are"


def test_backup_keeps_what_hosts_have_attached(cloud: Cloud, destination: base.Origin) -> None:
    copy(cloud.origin, destination)
    repository = Repository.open(destination)
    for key in repository.load_manifest(cloud.withdrawn).references().values():
        assert destination.exists(key)
    assert Marker(repository).mark().hosts == 1


def test_garbage_is_not_copied(cloud: Cloud, destination: base.Origin) -> None:
    cloud.repository.remove_image(image_id(0))
    report = copy(cloud.origin, destination)
    assert report.images == 1
    assert len(list(destination.list())) == report.objects + 1
    assert len(list(destination.list())) < len(list(cloud.origin.list()))


def test_second_backup_copies_what_is_new(cloud: Cloud, destination: base.Origin) -> None:
    first = copy(cloud.origin, destination)
    cloud.writer.write("more ")
    second = copy(cloud.origin, destination)
    assert (second.objects_copied, second.objects_present) == (1, first.objects)
    assert second.refs_written == 0
    assert volume_text(destination, IN_USE) == TEXTS[IN_USE] + "more "


@pytest.mark.parametrize("prunes", [False, True])
def test_what_the_source_lost_goes_when_asked(
    cloud: Cloud, destination: base.Origin, prunes: bool
) -> None:
    copy(cloud.origin, destination)
    cloud.repository.remove_image(image_id(0))
    cloud.store.disallow_host(FOLDED, "b")
    cloud.store.delete(FOLDED)
    report = copy(cloud.origin, destination, prunes=prunes)
    # The image, what its boots read and in which order, and the volume.
    removed = (4, True) if prunes else (0, False)
    assert (report.refs_removed, report.objects_removed > 0) == removed
    assert len(list(Repository.open(destination).list_image_ids())) == (1 if prunes else 2)
    assert len(list(destination.list_refs(layout.VOLUME_PREFIX))) == (1 if prunes else 2)
    Marker(Repository.open(destination)).mark()
    assert volume_text(destination, IN_USE) == TEXTS[IN_USE]


def test_what_is_not_the_sources_is_replaced(cloud: Cloud, destination: base.Origin) -> None:
    copy(cloud.origin, destination)
    (key,) = [key for key in destination.list() if key.startswith("volume-log/") and "5" in key][:1]
    content = destination.get(key, 100)
    destination.delete(key)
    destination.put_if_absent(key, [bytes(len(content))])
    report = copy(cloud.origin, destination)
    assert report.objects_replaced == 1
    assert destination.get(key, 100) == content


def test_what_is_damaged_at_the_destination_is_copied_again(
    cloud: Cloud, destination: memory.MemoryOrigin
) -> None:
    copy(cloud.origin, destination)
    key = only_pack(cloud.repository, 0)
    damage(destination, key)
    report = copy(cloud.origin, destination)
    assert (report.objects_replaced, report.damages) == (1, {})
    assert destination._objects[key] == cloud.origin.get(key, 1 << 20)


# Restores


def test_restored_volumes_have_no_owner_and_another_epoch(
    cloud: Cloud, destination: base.Origin
) -> None:
    before = cloud.store.get(IN_USE).record
    report = copy(cloud.origin, destination, is_restore=True)
    assert report.is_complete
    check_content(destination)
    record = VolumeStore(Repository.open(destination)).get(IN_USE).record
    assert state_of(record) is VolumeRecordState.AVAILABLE
    assert (record.owner, record.pending, record.content_end) == (None, None, None)
    assert record.epoch == before.epoch + EPOCHS_SKIPPED
    assert record.hosts == before.hosts, "that is Cinder's word"


def test_owner_of_before_is_fenced_at_the_restored_origin(
    cloud: Cloud, destination: base.Origin
) -> None:
    copy(cloud.origin, destination, is_restore=True)
    cloud.writer.origin = destination
    with pytest.raises(FencedOwnerError):
        cloud.writer.write("late ")


def test_restored_volume_is_opened_and_written(cloud: Cloud, destination: base.Origin) -> None:
    copy(cloud.origin, destination, is_restore=True)
    store = VolumeStore(Repository.open(destination), wait=lambda seconds: None)
    owner = Owner(store, destination, IN_USE, "a", cloud.writer.salt)
    owner.acquire()
    owner.write("after ")
    owner.release()
    assert volume_text(destination, IN_USE) == TEXTS[IN_USE] + "after "


def test_restored_origin_is_no_copy_any_more(cloud: Cloud, destination: base.Origin) -> None:
    destination_refs = TRANSIENT
    copy(cloud.origin, destination, is_restore=True)
    after = refs_of(destination)
    assert COPY_REF not in after
    assert after.keys().isdisjoint(destination_refs)
    assert "image-index" in after
    assert after["image-index"] != refs_of(cloud.origin)["image-index"]
    with pytest.raises(exception.InvalidError, match="itself"):
        copy(cloud.origin, destination)


def test_backup_is_restored(cloud: Cloud, destination: base.Origin) -> None:
    copy(cloud.origin, destination)
    live = memory.MemoryOrigin()
    assert copy(destination, live, is_restore=True).is_complete
    check_content(live)
    assert list(destination.list_refs(layout.CONDEMNED_PREFIX)) == [], "no hold stays"


def test_restore_that_is_gone_on_with_has_nothing_of_before(cloud: Cloud) -> None:
    class Interrupted(memory.MemoryOrigin):
        is_cut = True

        def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
            if self.is_cut and name.startswith(layout.VOLUME_PREFIX):
                raise exception.UnavailableError("cut off")
            return super().swap_ref(name, expected, content)

    destination = Interrupted()
    with pytest.raises(exception.UnavailableError):
        copy(cloud.origin, destination, is_restore=True)
    assert layout.image_ref(image_id(0)) in refs_of(destination)
    cloud.repository.remove_image(image_id(0))
    destination.is_cut = False
    assert copy(cloud.origin, destination, is_restore=True).images == 1
    assert list(Repository.open(destination).list_image_ids()) == [image_id(1)]


def test_unknown_refs_are_in_backups_only(cloud: Cloud, destination: base.Origin) -> None:
    cloud.origin.swap_ref("of-a-newer-release", None, b"x")
    assert copy(cloud.origin, destination).refs_unknown == ["of-a-newer-release"]
    assert "of-a-newer-release" in refs_of(destination)
    live = memory.MemoryOrigin()
    copy(cloud.origin, live, is_restore=True)
    assert "of-a-newer-release" not in refs_of(live)


# Damage


def test_damaged_object_is_named_and_the_rest_copied(
    cloud: Cloud, destination: base.Origin
) -> None:
    key = only_pack(cloud.repository, 0)
    assert isinstance(cloud.origin, memory.MemoryOrigin)
    damage(cloud.origin, key)
    report = copy(cloud.origin, destination)
    assert list(report.damages) == [key]
    assert report.is_complete
    assert report.refs_left >= 1
    assert not destination.exists(key)
    assert image_id(0) not in set(Repository.open(destination).list_image_ids())
    assert volume_text(destination, FOLDED) == TEXTS[FOLDED]


def test_damage_does_not_replace_what_a_former_copy_has(
    cloud: Cloud, destination: base.Origin
) -> None:
    copy(cloud.origin, destination)
    kept = refs_of(destination)[layout.volume_ref(IN_USE)]
    sequence = cloud.writer.write("x")
    cloud.writer.release()
    key = layout.log_key(IN_USE, cloud.writer.epoch, sequence)
    assert isinstance(cloud.origin, memory.MemoryOrigin)
    cloud.origin._objects[key] = DAMAGED
    report = copy(cloud.origin, destination, prunes=True)
    assert list(report.damages) == [key]
    assert refs_of(destination)[layout.volume_ref(IN_USE)] == kept
    assert volume_text(destination, IN_USE) == TEXTS[IN_USE]
    assert (report.refs_removed, report.objects_removed) == (0, 0), "nothing is pruned then"


def test_damaged_objects_are_copied_when_asked(cloud: Cloud, destination: base.Origin) -> None:
    key = only_pack(cloud.repository, 0)
    assert isinstance(cloud.origin, memory.MemoryOrigin)
    damage(cloud.origin, key)
    report = copy(cloud.origin, destination, takes_damaged=True)
    assert list(report.damages) == [key]
    assert destination.get(key, 1 << 20) == cloud.origin._objects[key]
    assert report.images == 2


def test_restore_with_damage_is_not_finished(cloud: Cloud, destination: base.Origin) -> None:
    key = only_pack(cloud.repository, 0)
    assert isinstance(cloud.origin, memory.MemoryOrigin)
    sound = cloud.origin._objects[key]
    damage(cloud.origin, key)
    assert not copy(cloud.origin, destination, is_restore=True).is_complete
    with pytest.raises(exception.NotFoundError):
        Repository.open(destination)
    cloud.origin._objects[key] = sound
    assert copy(cloud.origin, destination, is_restore=True).is_complete
    check_content(destination)


def test_missing_objects_are_named(cloud: Cloud, destination: base.Origin) -> None:
    pack = only_pack(cloud.repository, 0)
    manifest = layout.manifest_key(cloud.repository.get_image(image_id(1)).record.manifest)
    cloud.origin.delete(pack)
    cloud.origin.delete(manifest)
    report = copy(cloud.origin, destination)
    assert pack in report.damages
    assert layout.image_ref(image_id(1)) in report.damages
    assert report.images == 0
    assert volume_text(destination, IN_USE) == TEXTS[IN_USE]


def test_object_that_is_damaged_once_is_read_again(cloud: Cloud, destination: base.Origin) -> None:
    class Lying(FaultyOrigin):
        lies = 1

        def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
            count = super().readinto(key, offset, buffer)
            if key.startswith("packs/") and len(buffer) > 4096 and self.lies:
                self.lies -= 1
                buffer[count // 2] ^= 0xFF
            return count

    lying = Lying(cloud.origin)
    report = copy(lying, destination)
    assert (lying.lies, report.damages) == (0, {})
    check_content(destination)


def test_full_destination_ends_the_copy_which_is_gone_on_with(cloud: Cloud) -> None:
    inner = memory.MemoryOrigin()
    full = Fault(Operation.PUT, Effect.ERROR, call=4, error=exception.ExhaustedError)
    with pytest.raises(exception.ExhaustedError):
        copy(cloud.origin, FaultyOrigin(inner, [full]))
    with pytest.raises(exception.NotFoundError):
        Repository.open(inner)
    report = copy(cloud.origin, inner)
    assert report.objects_present == 3
    check_content(inner)
    assert list(cloud.origin.list_refs(layout.CONDEMNED_PREFIX)) == [TRANSIENT[-1]]


# Refusals


def test_destination_with_another_repository_is_refused(cloud: Cloud) -> None:
    other = memory.MemoryOrigin()
    open_repository(other)
    before = refs_of(other)
    with pytest.raises(exception.InvalidError, match="another repository"):
        copy(cloud.origin, other)
    assert refs_of(other) == before


def test_destination_with_a_copy_of_another_repository_is_refused(
    cloud: Cloud, destination: base.Origin
) -> None:
    copy(Cloud(memory.MemoryOrigin()).origin, destination)
    before = refs_of(destination)
    with pytest.raises(exception.InvalidError, match="copy of another repository"):
        copy(cloud.origin, destination)
    assert refs_of(destination) == before


def test_destination_that_is_not_empty_is_refused(cloud: Cloud, destination: base.Origin) -> None:
    destination.put_if_absent("somebodys/file", [b"x"])
    with pytest.raises(exception.InvalidError, match="somebodys/file"):
        copy(cloud.origin, destination)
    assert list(destination.list_refs()) == []


def test_backup_is_no_place_for_a_restore(cloud: Cloud, destination: base.Origin) -> None:
    copy(cloud.origin, destination)
    with pytest.raises(exception.InvalidError, match="holds a backup"):
        copy(cloud.origin, destination, is_restore=True)


def test_source_is_no_destination(cloud: Cloud, destination: base.Origin) -> None:
    with pytest.raises(exception.InvalidError, match="itself"):
        copy(cloud.origin, cloud.origin)
    copy(cloud.origin, destination)
    before = refs_of(destination)
    with pytest.raises(exception.InvalidError, match="same origin"):
        copy(destination, destination)
    assert refs_of(destination) == before


def test_repository_of_an_old_version_is_refused(destination: base.Origin) -> None:
    source = memory.MemoryOrigin()
    repository = open_repository(source)
    source.delete("format")
    former = dataclasses.replace(repository.format, version=2)
    source.put_if_absent("format", [former.encode()])
    with pytest.raises(exception.UnsupportedError, match="copies need 3"):
        copy(source, destination)


def test_upgrade_meanwhile_is_noticed(destination: base.Origin) -> None:
    source = memory.MemoryOrigin()
    register(open_repository(source, 5), 0, disk(1, 2))
    made = copier(source, destination)
    upgrade.upgrade(source)
    with pytest.raises(exception.ConflictError, match="upgraded"):
        made.copy()
    assert copy(source, destination).is_complete


def test_second_process_fences_the_first(cloud: Cloud, destination: base.Origin) -> None:
    found = cloud.repository.format
    first = copy_record.begin(cloud.origin, found, destination, CopyKind.BACKUP)
    second = copy_record.begin(cloud.origin, found, destination, CopyKind.BACKUP)
    for state in (CopyState.COPYING, CopyState.COMPLETE):
        with pytest.raises(exception.ConflictError, match="another process"):
            first.become(state)
    second.become(CopyState.COMPLETE)


def test_collection_that_ends_the_hold_ends_the_copy(cloud: Cloud) -> None:
    times = iter([0.0, hold.LEASE_SECONDS + 1])

    class CollectedMeanwhile(memory.MemoryOrigin):
        def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
            now = next(times, None)
            if now is not None:
                Collector(cloud.repository, "c", 0.0, clock=lambda: now).collect()
            return super().put_if_absent(key, buffers)

    destination = CollectedMeanwhile()
    # It makes no tombstone readable that these tests have made up.
    ref = cloud.origin.get_ref(TRANSIENT[-1])
    assert ref is not None
    cloud.origin.swap_ref(TRANSIENT[-1], ref.token, None)
    with pytest.raises(exception.ConflictError, match="hold on collections has ended"):
        copy(cloud.origin, destination)
    with pytest.raises(exception.NotFoundError):
        Repository.open(destination)
    assert copy(cloud.origin, destination).is_complete
    assert not Tombstones(cloud.origin).names()


def test_ref_kinds_are_those_of_their_modules() -> None:
    from acstor.agent.reconcilers.desired_host import HOST_PREFIX
    from acstor.cluster.ring.decision import DECISION_REF
    from acstor.cluster.ring.published_ring import GENERATION_REF as RING_GENERATION_REF
    from acstor.cluster.ring.published_ring import RING_REF
    from acstor.cluster.ring.publisher_term import TERM_REF
    from acstor.policy.pins import PINS_REF
    from acstor.repository.images.boot_profile import PREFIX as BOOT_PROFILE_PREFIX
    from acstor.repository.images.generations import GENERATION_REF
    from acstor.repository.images.image_index import INDEX_REF
    from acstor.repository.images.image_registry import REGISTRY_PREFIX
    from acstor.repository.images.revocation import PREFIX as REVOCATION_PREFIX
    from acstor.repository.images.usage import USAGE_PREFIX
    from acstor.repository.images.withdrawal_rounds import ROUNDS_REF
    from acstor.repository.images.working_set import PREFIX as WORKING_SET_PREFIX
    from acstor.repository.volumes.doorbells import DOORBELL_PREFIX
    from acstor.repository.volumes.heads import HEAD_PREFIX

    known = {kind.name for kind in REF_KINDS}
    assert known >= {
        HOST_PREFIX, DECISION_REF, RING_GENERATION_REF, RING_REF, TERM_REF, PINS_REF,
        GENERATION_REF, INDEX_REF, REGISTRY_PREFIX, USAGE_PREFIX, ROUNDS_REF,
        WORKING_SET_PREFIX, BOOT_PROFILE_PREFIX, DOORBELL_PREFIX, HEAD_PREFIX,
        REVOCATION_PREFIX,
    }  # fmt: skip
    assert len(known) == len(REF_KINDS)
