"""Objects that volumes and snapshots keep from garbage collection, and those they do not."""

import pathlib
import random
import uuid

import pytest

from acstor import exception
from acstor.origin import base, memory, posix
from acstor.repository import layout
from acstor.repository.gc.condemnation import Tombstones
from acstor.repository.gc.garbage import Collector, Report
from acstor.repository.gc.log_coverage import RUN_LENGTH_MAX, LogCoverage, uncovered_runs
from acstor.repository.repository import Repository
from acstor.repository.volumes.log_range import SEQUENCE_MAX, LogRange
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register
from tests.unit.repository.volumes.hosts import Owner, content_of

VOLUME, CLONE, SNAPSHOT = (str(uuid.UUID(int=number)) for number in (50, 51, 52))


@pytest.fixture(params=["memory", "posix"])
def repository(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Repository:
    in_memory = request.param == "memory"
    return open_repository(memory.MemoryOrigin() if in_memory else posix.PosixOrigin(str(tmp_path)))


@pytest.fixture
def store(repository: Repository) -> VolumeStore:
    return VolumeStore(repository)


@pytest.fixture
def owner(store: VolumeStore, repository: Repository) -> Owner:
    """A volume that a host owns, with three log objects."""
    store.create(NewVolume(VOLUME, CHUNK_SIZE))
    store.allow_host(VOLUME, "a")
    owner = Owner(store, repository.origin, VOLUME, "a", random.Random(3))
    owner.acquire()
    for word in ("one ", "two ", "three "):
        owner.write(word)
    return owner


def collect(repository: Repository, times: int = 1, now: float = 0.0) -> Report:
    for _ in range(times):
        report = Collector(repository, "a", 60.0, clock=lambda: now).collect()
    return report


def collect_all(repository: Repository) -> int:
    """Collect until everything unneeded is gone; return how many objects that were."""
    collect(repository)
    return collect(repository, now=1000.0).deleted


def log_keys(origin: base.Origin) -> list[str]:
    return sorted(origin.list(layout.VOLUME_LOG_PREFIX))


def test_open_log_is_left_alone(repository: Repository, owner: Owner) -> None:
    report = collect(repository)
    assert (report.volumes, report.log_objects, report.condemned) == (1, 3, 0)
    assert collect_all(repository) == 0
    assert content_of(repository.origin, owner.push().disk) == "one two three "


def test_folded_log_is_deleted_after_the_grace_period(repository: Repository, owner: Owner) -> None:
    owner.fold()
    report = collect(repository)
    assert (report.condemned, report.deleted) == (1, 0), "one tombstone for all three"
    (name,) = Tombstones(repository.origin).names()
    assert name.startswith(f"{VOLUME}.00000001.")
    report = collect(repository, now=59.0)
    assert (report.condemned, report.waiting, report.deleted) == (0, 1, 0)
    report = collect(repository, now=60.0)
    assert (report.deleted, report.bytes_freed) == (3, len("one two three "))
    assert log_keys(repository.origin) == []
    assert not Tombstones(repository.origin).names()
    owner.write("four ")
    assert content_of(repository.origin, owner.push().disk) == "one two three four "


def test_snapshot_keeps_what_the_volume_has_folded(
    repository: Repository, store: VolumeStore, owner: Owner
) -> None:
    store.snapshot(VOLUME, SNAPSHOT, owner.push())
    owner.fold()
    report = collect(repository)
    assert (report.snapshots, report.condemned) == (1, 0)
    store.delete_snapshot(SNAPSHOT)
    assert collect_all(repository) == 3


def test_clone_saves_condemned_log_objects(
    repository: Repository, store: VolumeStore, owner: Owner
) -> None:
    pushed = owner.push()
    owner.fold()
    assert collect(repository).condemned == 1
    store.clone(NewVolume(CLONE, CHUNK_SIZE), VOLUME, pushed)
    assert not Tombstones(repository.origin).names()
    assert collect_all(repository) == 0
    assert content_of(repository.origin, store.get(CLONE).record.disk) == "one two three "


def test_clone_of_what_is_being_deleted_is_refused(
    repository: Repository, store: VolumeStore, owner: Owner
) -> None:
    pushed = owner.push()
    owner.fold()
    assert collect_all(repository) == 3
    with pytest.raises(exception.ConflictError, match="collected meanwhile"):
        store.clone(NewVolume(CLONE, CHUNK_SIZE), VOLUME, pushed)
    assert store.find(CLONE) is None


def test_seal_stays_as_long_as_the_volume(
    repository: Repository, store: VolumeStore, owner: Owner
) -> None:
    store.disallow_host(VOLUME, "a")
    store.allow_host(VOLUME, "b")
    fresh = Owner(store, repository.origin, VOLUME, "b", random.Random(4))
    fresh.acquire()
    fresh.fold()
    late = layout.log_key(VOLUME, 1, owner.following + 1)
    repository.origin.put_if_absent(late, [b"what a stale owner stored behind the seal"])
    assert collect_all(repository) == 4
    assert log_keys(repository.origin) == [layout.log_key(VOLUME, 1, owner.following)]
    fresh.release()
    store.disallow_host(VOLUME, "b")
    store.delete(VOLUME)
    collect_all(repository)
    assert list(repository.origin.list()) == ["format"]


def test_no_folder_is_left_of_a_deleted_volume(tmp_path: pathlib.Path) -> None:
    repository = open_repository(posix.PosixOrigin(str(tmp_path)))
    store = VolumeStore(repository)
    store.create(NewVolume(VOLUME, CHUNK_SIZE))
    store.allow_host(VOLUME, "a")
    for word in ("one ", "two "):
        owner = Owner(store, repository.origin, VOLUME, "a", random.Random(3))
        owner.acquire()
        owner.write(word)
        owner.release()
    store.disallow_host(VOLUME, "a")
    store.delete(VOLUME)
    assert collect_all(repository) == 3, "two writes, and the seal between them"
    assert list((tmp_path / "volume-log").iterdir()) == []


def test_volume_keeps_the_chunks_of_a_removed_image(
    repository: Repository, store: VolumeStore
) -> None:
    register(repository, 0, disk(1, 2, 3))
    manifest = repository.get_image(image_id(0)).record.manifest
    store.create_from_manifest(NewVolume(VOLUME, 3 * CHUNK_SIZE), manifest)
    repository.remove_image(image_id(0))
    assert collect(repository).referenced == 2
    assert collect_all(repository) == 0
    store.delete(VOLUME)
    assert collect_all(repository) == 2


def test_given_up_fold_is_collected(repository: Repository, owner: Owner) -> None:
    pack, manifest = "ab" * 32, "cd" * 32
    owner.announce([pack], manifest)
    repository.origin.put_if_absent(layout.pack_key(pack), [b"a pack"])
    assert collect_all(repository) == 0, "its manifest is not stored yet"
    owner.store.give_up_fold(VOLUME, "a", owner.epoch)
    assert collect_all(repository) == 1


@pytest.mark.parametrize("name", [layout.volume_ref(VOLUME), layout.snapshot_ref(SNAPSHOT)])
def test_unreadable_record_stops_the_collection(
    repository: Repository, store: VolumeStore, owner: Owner, name: str
) -> None:
    store.snapshot(VOLUME, SNAPSHOT, owner.push())
    collect(repository)
    ref = repository.origin.get_ref(name)
    assert ref is not None
    repository.origin.swap_ref(name, ref.token, b"nonsense")
    with pytest.raises(exception.CorruptError, match="is malformed"):
        collect_all(repository)
    assert len(log_keys(repository.origin)) == 3


def test_missing_manifest_stops_the_collection(
    repository: Repository, store: VolumeStore, owner: Owner
) -> None:
    owner.fold()
    manifest = store.get(VOLUME).record.manifest
    assert manifest is not None
    repository.origin.delete(layout.manifest_key(manifest))
    with pytest.raises(exception.CorruptError, match=f"manifest of volume {VOLUME} is missing"):
        collect(repository)
    assert len(log_keys(repository.origin)) == 3


def test_runs_have_no_gaps_and_an_end() -> None:
    coverage = LogCoverage()
    coverage.add([LogRange(VOLUME, 1, 3, 4), LogRange(VOLUME, 2, 7, SEQUENCE_MAX)])
    coverage.add([LogRange(VOLUME, 1, 5, 5)])
    present = [(VOLUME, 1, number) for number in (1, 2, 3, 4, 5, 6, 8)]
    present += [(VOLUME, 2, number) for number in (5, 6, 7, 9)] + [(CLONE, 1, 6)]
    assert uncovered_runs(present, coverage) == [
        LogRange(VOLUME, 1, 1, 2),
        LogRange(VOLUME, 1, 6, 6),
        LogRange(VOLUME, 1, 8, 8),
        LogRange(VOLUME, 2, 5, 6),
        LogRange(CLONE, 1, 6, 6),
    ]
    many = [(CLONE, 1, number) for number in range(RUN_LENGTH_MAX + 2)]
    assert [len(run) for run in uncovered_runs(many, coverage)] == [RUN_LENGTH_MAX, 2]
    for first, last, is_covered in ((1, 2, False), (2, 3, True), (5, 9, True), (6, 9, False)):
        assert coverage.intersects(LogRange(VOLUME, 1, first, last)) is is_covered
