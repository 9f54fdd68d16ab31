"""Garbage collection on its own: what is condemned, deleted, lifted, refused."""

import pytest

from acstor import exception
from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.gc import claim
from acstor.repository.gc.condemnation import State, Tombstone, Tombstones
from acstor.repository.gc.garbage import Collector, Report
from acstor.repository.gc.marking import Marked, Marker
from acstor.repository.images import usage
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Repository
from acstor.repository.verification import Verifier
from testbed.fixtures.usage_records import write_usage
from tests.unit.repository.images import disk, image_id, open_repository, read_back, register


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=[INDEX_VERSION, COMPRESSED_VERSION], ids=["plain", "compressed"])
def repository(request: pytest.FixtureRequest) -> Repository:
    return open_repository(memory.MemoryOrigin(), request.param)


def collect(repository: Repository, clock: Clock, host: str = "a", grace: float = 60.0) -> Report:
    return Collector(repository, host, grace, clock).collect()


def object_count(repository: Repository) -> int:
    return len(list(repository.origin.list())) - 1


def test_referenced_objects_are_left_alone(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3, 4, 5))
    clock = Clock()
    for _ in range(3):
        report = collect(repository, clock)
        clock.now += 1000
    assert (report.referenced, report.condemned, report.deleted) == (3, 0, 0)
    assert read_back(repository, 0) == disk(1, 2, 3, 4, 5)


def test_removed_image_is_deleted_after_the_grace_period(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3, 4, 5))
    register(repository, 1, disk(5, 6))
    repository.remove_image(image_id(0))
    clock = Clock()
    report = collect(repository, clock)
    assert (report.condemned, report.deleted) == (2, 0), "one pack and the manifest"
    clock.now += 59
    report = collect(repository, clock)
    assert (report.condemned, report.waiting, report.deleted) == (0, 2, 0)
    clock.now += 1
    report = collect(repository, clock)
    assert report.deleted == 2
    assert report.bytes_freed > 4 * 4096
    assert list(repository.origin.list_refs("gc/")) == []
    assert read_back(repository, 1) == disk(5, 6)
    assert Verifier(repository).verify().damages == []


def test_times_of_other_hosts_are_not_used(repository: Repository) -> None:
    register(repository, 0, disk(1))
    repository.remove_image(image_id(0))
    ahead, behind = Clock(), Clock()
    ahead.now, behind.now = 1e9, 0.0
    collect(repository, ahead, "ahead")
    assert collect(repository, behind, "behind").waiting == 2
    behind.now += 60
    ahead.now -= 1e8
    assert collect(repository, ahead, "ahead").deleted == 0, "a clock set back starts anew"
    assert collect(repository, behind, "behind").deleted == 2


def test_object_referenced_again_is_lifted(repository: Repository) -> None:
    register(repository, 0, disk(1, 2))
    image = repository.get_image(image_id(0))
    repository.remove_image(image_id(0))
    clock = Clock()
    assert collect(repository, clock).condemned == 2
    name = layout.image_ref(image.id)
    repository.origin.swap_ref(name, None, image.record.encode())
    clock.now += 1000
    report = collect(repository, clock)
    assert (report.lifted, report.deleted) == (2, 0)
    assert read_back(repository, 0) == disk(1, 2)


def test_interrupted_deletion_is_finished(repository: Repository) -> None:
    register(repository, 0, disk(1, 2))
    repository.remove_image(image_id(0))
    (key,) = repository.origin.list("packs/")
    name = str(layout.name_of(key))
    tombstones = Tombstones(repository.origin)
    assert tombstones.change(None, Tombstone(name, key, State.CONDEMNED, {}))
    found = tombstones.find(name)
    assert found is not None
    sealed = Tombstone(name, key, State.DELETING, {}, token=None)
    assert tombstones.change(found, sealed)
    assert not tombstones.rescue(name)
    assert collect(repository, Clock()).deleted == 1
    assert tombstones.find(name) is None


def forge_deletion(repository: Repository) -> list[str]:
    """Mark every pack and manifest as being deleted, as the key of a host allows; return keys."""
    found = []
    for prefix in (layout.PACK_PREFIX, layout.MANIFEST_PREFIX):
        for key in repository.origin.list(prefix):
            name = str(layout.name_of(key))
            forged = Tombstone(name, key, State.DELETING, {}).encode()
            repository.origin.swap_ref(layout.condemned_ref(name), None, forged)
            found.append(key)
    return found


def test_tombstone_deletes_nothing_that_is_referred_to(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3, 4, 5))
    keys = forge_deletion(repository)
    clock = Clock()
    for _ in range(2):
        report = collect(repository, clock)
        assert (report.deleted, report.waiting) == (0, len(keys))
        clock.now += 1000
    assert read_back(repository, 0) == disk(1, 2, 3, 4, 5)
    repository.remove_image(image_id(0))
    assert collect(repository, clock).deleted == len(keys)
    assert list(repository.origin.list_refs("gc/")) == []


def test_tombstone_that_is_gone_after_the_marking_deletes_nothing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was forged, and taken away before a publisher looked for it."""
    register(repository, 0, disk(1, 2, 3))
    image = repository.get_image(image_id(0))
    repository.remove_image(image_id(0))
    forge_deletion(repository)
    real = Marker.mark

    def mark(marker: Marker) -> Marked:
        marked = real(marker)
        for name in list(repository.origin.list_refs("gc/")):
            ref = repository.origin.get_ref(name)
            assert ref is not None
            repository.origin.swap_ref(name, ref.token, None)
        repository.origin.swap_ref(layout.image_ref(image.id), None, image.record.encode())
        manifest = repository.load_manifest(image.record.manifest)
        assert claim.claim(repository.origin, manifest) == set()
        return marked

    monkeypatch.setattr(Marker, "mark", mark)
    assert collect(repository, Clock()).deleted == 0
    assert read_back(repository, 0) == disk(1, 2, 3)


def test_registration_does_not_rely_on_what_is_being_deleted(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3))
    former = set(forge_deletion(repository))
    assert register(repository, 0, disk(1, 2, 3)).status == "repaired"
    repository.remove_image(image_id(0))
    register(repository, 1, disk(1, 2, 3))
    assert collect(repository, Clock()).deleted == len(former)
    assert former.isdisjoint(repository.origin.list())
    assert read_back(repository, 1) == disk(1, 2, 3)


def test_unknown_transition_is_refused(repository: Repository) -> None:
    name = "0" * 64
    fresh = Tombstone(name, layout.pack_key(name), State.DELETING, {})
    with pytest.raises(exception.InternalError):
        Tombstones(repository.origin).change(None, fresh)


@pytest.mark.parametrize("damage", ["record", "manifest", "missing manifest", "newer record"])
def test_nothing_is_collected_when_an_image_cannot_be_read(
    repository: Repository, damage: str
) -> None:
    register(repository, 0, disk(1, 2))
    register(repository, 1, disk(3))
    repository.remove_image(image_id(1))
    image = repository.get_image(image_id(0))
    key = layout.manifest_key(image.record.manifest)
    content = bytearray(repository.origin.get(key, 1 << 20))
    if damage == "record":
        repository.origin.swap_ref(layout.image_ref(image.id), image.token, b"{")
    elif damage == "newer record":
        newer = image.record.encode().replace(b'"version": 1', b'"version": 2')
        repository.origin.swap_ref(layout.image_ref(image.id), image.token, newer)
    else:
        repository.origin.delete(key)
        if damage == "manifest":
            content[100] ^= 1
            repository.origin.put_if_absent(key, [content])
    before = object_count(repository)
    for _ in range(3):
        with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
            collect(repository, Clock(), grace=0.0)
    assert object_count(repository) == before
    assert list(repository.origin.list_refs("gc/")) == []


def test_malformed_tombstone_is_named(repository: Repository) -> None:
    repository.origin.swap_ref(layout.condemned_ref("ab" * 32), None, b"nonsense")
    with pytest.raises(exception.CorruptError, match="abab"):
        collect(repository, Clock())


def test_unreadable_usage_record_stops_the_collection(repository: Repository) -> None:
    repository.origin.swap_ref("usage/h1", None, b"nonsense")
    with pytest.raises(exception.CorruptError, match="host h1"):
        collect(repository, Clock())


def test_manifest_that_a_host_names_is_kept_without_an_image(repository: Repository) -> None:
    """The agent was away when its guest's image was removed, and stays away."""
    clock = Clock()
    register(repository, 0, disk(1, 2, 3))
    image = repository.get_image(image_id(0))
    write_usage(repository.origin, "h1", manifests={image.record.manifest: image.id})
    repository.remove_image(image.id)
    for _ in range(3):
        report = collect(repository, clock)
        clock.now += 10 * 86400
    assert (report.hosts, report.condemned, report.deleted) == (1, 0, 0)
    usage.forget_usage(repository.origin, "h1")
    collect(repository, clock)
    clock.now += 10 * 86400
    assert collect(repository, clock).deleted == 2


def test_manifest_that_is_gone_stops_no_collection(
    repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    write_usage(repository.origin, "h1", manifests={"ab" * 32: image_id(0)})
    collect(repository, Clock())
    assert "host h1 has manifest abab" in caplog.text
