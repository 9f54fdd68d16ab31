"""Versions keep what they refer to: collections, accounts, verification, copies."""

import dataclasses

import pytest

from acstor import exception
from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.accounting import account, account_owners
from acstor.repository.copying.copier import Copier, CopySettings
from acstor.repository.gc.garbage import Collector, Report
from acstor.repository.repository import Repository
from acstor.repository.verification import Verifier
from acstor.repository.versions import view
from acstor.repository.versions.captures import Stored
from acstor.repository.versions.record import DiskKind, DiskName
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.repository.versions.view import StoredAs
from acstor.repository.versions.whole_capture import BytesDisk, WholeCapture, WholeRequest
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register
from tests.unit.repository.versions.captures import NumberedDisk, numbers_of, store_of, take
from tests.unit.repository.versions.records import HOUR, NOON, SERVER, VOLUME, captured, version_id

BASE = (1, 2, 3, 4, 5, 6, 0, 0)
FIRST, SECOND = (20, 2, 3, 4, 5, 6, 0, 0), (20, 21, 3, 4, 5, 6, 0, 0)
ID = version_id(1)


@pytest.fixture
def store() -> VersionStore:
    """Return the store of a repository with two versions, whose image is withdrawn."""
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(*BASE))
    base = repository.get_image(image_id(0)).record.manifest
    store = store_of(repository)
    take(store, 2, NumberedDisk(SECOND), take(store, 1, NumberedDisk(FIRST), base))
    repository.remove_image(image_id(0))
    return store


def collect(store: VersionStore) -> Report:
    for _ in range(3):
        report = Collector(store.repository, "host", 0.0, clock=lambda: 1.0).collect()
    return report


def content(store: VersionStore, number: int) -> list[int]:
    manifest = store.get(version_id(number)).record.manifest
    assert manifest is not None
    return numbers_of(store.repository.origin, manifest)


# Collections


def test_versions_are_roots(store: VersionStore) -> None:
    report = collect(store)
    assert (report.versions, report.condemned, report.waiting) == (2, 0, 0)
    assert content(store, 1) == list(FIRST)
    assert content(store, 2) == list(SECOND)


def test_a_child_keeps_the_manifest_of_a_deleted_parent(store: VersionStore) -> None:
    store.delete(ID)
    collect(store)
    assert content(store, 2) == list(SECOND)


def test_a_condemned_version_is_a_root_until_its_last_use(store: VersionStore) -> None:
    store.begin_use(ID, "image/1")
    store.delete(ID)
    store.delete(version_id(2))
    collect(store)
    assert content(store, 1) == list(FIRST)
    store.end_use(ID, "image/1")
    collect(store)
    assert list(store.repository.origin.list(layout.PACK_PREFIX)) == []
    assert list(store.repository.origin.list(layout.MANIFEST_PREFIX)) == []


def test_what_a_capture_has_named_stays(store: VersionStore) -> None:
    origin, pack = store.repository.origin, "ab" * 32
    store.begin(version_id(3), captured())
    store.announce(version_id(3), "h1", [pack], "cd" * 32)
    origin.put_if_absent(layout.pack_key(pack), [b"any"])
    origin.put_if_absent(layout.pack_key("ef" * 32), [b"any"])
    report = collect(store)
    assert origin.exists(layout.pack_key(pack))
    assert not origin.exists(layout.pack_key("ef" * 32))
    assert report.versions == 3
    store.abandon(version_id(3))
    collect(store)
    assert not origin.exists(layout.pack_key(pack))


def test_a_missing_manifest_stops_collections(store: VersionStore) -> None:
    manifest = store.get(ID).record.manifest
    assert manifest is not None
    store.repository.origin.delete(layout.manifest_key(manifest))
    with pytest.raises(exception.CorruptError, match=f"manifest of version {ID} is missing") as one:
        collect(store)
    assert one.value.hint == f"restore it, or delete version {ID}"


def test_a_damaged_record_stops_collections(store: VersionStore) -> None:
    name = layout.version_ref(ID)
    ref = store.repository.origin.get_ref(name)
    assert ref is not None
    store.repository.origin.swap_ref(name, ref.token, b"{}")
    with pytest.raises(exception.CorruptError, match=f"record of version {ID}"):
        collect(store)


# Accounts


def test_unique_and_shared_bytes_add_up(store: VersionStore) -> None:
    space = account(store.repository)
    used = {one.owner.id: (one.used_bytes, one.unique_bytes) for one in space.owners}
    # A delta needs all that its base names, what it has replaced included.
    assert used == {
        ID: (7 * CHUNK_SIZE, 0),
        version_id(2): (8 * CHUNK_SIZE, CHUNK_SIZE),
    }
    assert sum(unique for _, unique in used.values()) + 7 * CHUNK_SIZE == space.live_bytes
    parts = space.overhead_bytes + space.live_bytes + space.garbage_bytes
    assert parts == space.stored_bytes
    by_project = account_owners(store.repository, lambda one: store.get(one.id).record.project)
    assert [one.owner for one in by_project.owners] == ["a project"]
    assert by_project.owners[0].unique_bytes == space.live_bytes


def test_parts_are_of_their_version(store: VersionStore) -> None:
    store.begin(version_id(3), captured())
    request = WholeRequest(version_id(3), "h1", BytesDisk(b"variables" * 999), SERVER)
    part = WholeCapture(store, 4 * CHUNK_SIZE, workers=0).store(request)
    store.note_part(version_id(3), "h1", nvram=part.manifest, vtpm=part.manifest)
    store.commit(version_id(3), "h1", Stored(None))
    owners = {one.owner.id: one for one in account(store.repository).owners}
    assert owners[version_id(3)].unique_bytes == owners[version_id(3)].used_bytes > 0
    report = Verifier(store.repository).verify()
    assert (report.versions, report.damages) == (3, [])


# Verification


def test_verification_names_damaged_versions(store: VersionStore) -> None:
    report = Verifier(store.repository).verify()
    assert (report.versions, report.damages) == (2, [])
    pack = store.get(ID).record.packs[0]
    store.repository.origin.delete(layout.pack_key(pack))
    damages = Verifier(store.repository).verify().damages
    assert {(one.version, one.part, one.chunk) for one in damages} == {
        (ID, "disk", 0),
        (version_id(2), "disk", 0),
    }


def test_a_capture_is_not_verified(store: VersionStore) -> None:
    store.begin(version_id(3), captured())
    report = Verifier(store.repository).verify()
    assert (report.versions, report.damages) == (2, [])


# Copies


def test_a_copy_has_its_versions(store: VersionStore) -> None:
    store.begin(version_id(3), captured())
    collect(store)
    destination = memory.MemoryOrigin()
    report = Copier(store.repository, destination, CopySettings(workers=1)).copy()
    assert (report.versions, report.is_complete, report.damages) == (3, True, {})
    copied = store_of(Repository.open(destination))
    assert content(copied, 1) == list(FIRST)
    assert content(copied, 2) == list(SECOND)
    assert copied.get(version_id(3)).record.state is VersionState.CAPTURED
    assert set(destination.list(layout.PACK_PREFIX)) == set(
        store.repository.origin.list(layout.PACK_PREFIX)
    )


# The list with Cinder's snapshots


def test_snapshots_are_shown_as_versions_and_stored_once(store: VersionStore) -> None:
    volumes = VolumeStore(store.repository)
    volumes.create(NewVolume(VOLUME, CHUNK_SIZE))
    snapshot = volumes.snapshot(VOLUME, version_id(9), name="nightly", group="a group")
    origin = store.repository.origin
    shown = {one.id: one for one in view.list_shown(origin)}
    assert set(shown) == {ID, version_id(2), snapshot.id}
    found = shown[snapshot.id]
    assert (found.stored_as, found.disk) == (
        StoredAs.SNAPSHOT,
        DiskName(DiskKind.VOLUME, VOLUME),
    )
    assert (found.name, found.group, found.is_restorable) == ("nightly", "a group", True)
    assert view.find_shown(origin, snapshot.id) == found
    assert list(store.list_ids()) == [ID, version_id(2)]
    report = collect(store)
    assert (report.versions, report.snapshots) == (2, 1)


def test_what_is_deleted_is_not_shown(store: VersionStore) -> None:
    origin = store.repository.origin
    store.begin_use(ID, "image/1")
    store.delete(ID)
    assert view.find_shown(origin, ID) is None
    assert [one.id for one in view.list_shown(origin)] == [version_id(2)]
    assert view.find_shown(origin, version_id(7)) is None


def test_a_capture_is_shown_with_its_age(store: VersionStore) -> None:
    store.begin(version_id(3), captured())
    found = view.find_shown(store.repository.origin, version_id(3))
    assert found is not None
    assert (found.state, found.is_restorable) == (VersionState.CAPTURED, False)
    assert found.age(NOON + HOUR) == HOUR


def test_snapshots_without_a_time_are_damaged(store: VersionStore) -> None:
    volumes = VolumeStore(store.repository)
    volumes.create(NewVolume(VOLUME, CHUNK_SIZE))
    snapshot = volumes.snapshot(VOLUME, version_id(9))
    broken = dataclasses.replace(snapshot.record, created_at="once")
    with pytest.raises(exception.CorruptError, match="snapshot"):
        view.show_snapshot(dataclasses.replace(snapshot, record=broken))


def test_groups_are_whole_with_all_their_disks(store: VersionStore) -> None:
    group = version_id(15)
    for number, device in ((3, "vdb"), (4, "vda")):
        name = DiskName(DiskKind.INSTANCE, SERVER, device)
        record = captured(disk=name, group=group, group_size=2)
        store.begin(version_id(number), record)
    store.commit(version_id(4), "h1", Stored(None))
    (found,) = view.groups_of(store.list())
    assert [one.record.disk.device for one in found.versions] == ["vda", "vdb"]
    assert (found.id, found.size, found.is_whole) == (group, 2, False)
    store.commit(version_id(3), "h1", Stored(None))
    assert view.groups_of(store.list())[0].is_whole
    store.delete(version_id(4))
    assert not view.groups_of(store.list())[0].is_whole
