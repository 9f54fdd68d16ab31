"""One suite for volumes and snapshots over every kind of origin."""

import concurrent.futures
import dataclasses
import pathlib
import random
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.repository import FORMAT_VERSION, Format, Repository
from acstor.repository.upgrade import upgrade
from acstor.repository.volumes.durability import Durability, DurabilityClass, Region
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.ownership import LogPosition
from acstor.repository.volumes.record import DiskState
from acstor.repository.volumes.states import VolumeRecordState, state_of
from acstor.repository.volumes.store import NewVolume, PushedState, VolumeStore
from tests.compliance.origins import VOLUME_ORIGINS
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, register
from tests.unit.repository.volumes.hosts import FencedOwnerError, Owner, content_of

GIB = 1 << 30


@pytest.fixture(params=sorted(VOLUME_ORIGINS))
def origin(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[base.Origin]:
    opened = VOLUME_ORIGINS[request.param](tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def store(origin: base.Origin) -> VolumeStore:
    return VolumeStore(Repository.init(origin, CHUNK_SIZE), wait=lambda seconds: None)


def new(size_bytes: int = GIB, **fields: object) -> NewVolume:
    return NewVolume(str(uuid.uuid4()), size_bytes, **fields)  # type: ignore[arg-type]


def owner_of(store: VolumeStore, origin: base.Origin, volume_id: str, host: str = "a") -> Owner:
    """Return the host as owner of a volume."""
    store.allow_host(volume_id, host)
    owner = Owner(store, origin, volume_id, host, random.Random(5))
    owner.acquire()
    return owner


# Creating, deleting


def test_new_volume_is_empty_and_nobodys(store: VolumeStore) -> None:
    durability = Durability(DurabilityClass.WRITE_BACK)
    made = store.create(new(name="home", durability=durability, metadata={"a": "b"}))
    found = store.get(made.id)
    assert found == made
    assert found.record.disk == DiskState()
    assert (found.record.size_bytes, found.record.name) == (GIB, "home")
    assert (found.record.durability, found.record.metadata) == (durability, {"a": "b"})
    assert (found.record.owner, found.record.hosts, found.record.epoch) == (None, (), 0)
    assert state_of(found.record) is VolumeRecordState.AVAILABLE
    assert [volume.id for volume in store.list()] == [made.id]


def test_id_is_used_once_at_a_time_and_log_names_never_again(store: VolumeStore) -> None:
    wanted = new()
    first = store.create(wanted)
    with pytest.raises(exception.ConflictError, match="exists already"):
        store.create(wanted)
    store.delete(wanted.id)
    again = store.create(wanted)
    assert again.record.next >> 16 != first.record.next >> 16


@pytest.mark.parametrize("size_bytes", [0, -512, 100, (1 << 30) * CHUNK_SIZE + 512])
def test_bad_size_is_refused(store: VolumeStore, size_bytes: int) -> None:
    with pytest.raises(exception.InvalidError):
        store.create(new(size_bytes))
    assert list(store.list()) == []


def test_what_is_not_there_is_not_found(store: VolumeStore) -> None:
    absent = str(uuid.uuid4())
    for call in (
        lambda: store.get(absent),
        lambda: store.delete(absent),
        lambda: store.snapshot(absent, str(uuid.uuid4())),
        lambda: store.clone(new(), absent),
        lambda: store.create_from_snapshot(new(), absent),
        lambda: store.get_snapshot(absent),
        lambda: store.delete_snapshot(absent),
        lambda: store.revert(absent, absent),
        lambda: store.resize(absent, GIB),
        lambda: store.allow_host(absent, "a"),
        lambda: store.acquire(absent, "a"),
        lambda: store.describe(absent, name="x"),
        lambda: store.rename(absent, str(uuid.uuid4())),
        lambda: store.rename_snapshot(absent, str(uuid.uuid4())),
    ):
        with pytest.raises(exception.NotFoundError):
            call()
    assert store.find(absent) is None
    with pytest.raises(exception.InvalidError, match="no UUID"):
        store.find("../images/x")


def test_volume_of_an_image_shares_its_manifest(store: VolumeStore, origin: base.Origin) -> None:
    repository = Repository.open(origin)
    register(repository, 0, disk(1, 2, 3))
    manifest = repository.get_image(image_id(0)).record.manifest
    made = store.create_from_manifest(new(3 * CHUNK_SIZE), manifest)
    assert made.record.disk == DiskState(manifest)
    with pytest.raises(exception.InvalidError, match="its content has 12288"):
        store.create_from_manifest(new(2 * CHUNK_SIZE), manifest)
    with pytest.raises(exception.ConflictError, match="collected meanwhile"):
        store.create_from_manifest(new(), "ab" * 32)
    assert [volume.id for volume in store.list()] == [made.id]


def test_volume_in_use_is_not_deleted(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    for force in (False, True):
        with pytest.raises(exception.ConflictError, match="attached on a"):
            store.delete(made.id, force=force)
    store.disallow_host(made.id, "a")
    with pytest.raises(exception.ConflictError, match="owned by host a"):
        store.delete(made.id)
    owner.release()
    assert store.delete(made.id).record.owner is None
    assert store.find(made.id) is None


def test_volume_of_a_lost_host_is_deleted_by_force(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    store.disallow_host(made.id, "a")
    assert store.delete(made.id, force=True).record.owner == "a"
    with pytest.raises(exception.NotFoundError):
        owner.release()


# Sharing


def test_snapshot_is_the_state_that_was_pushed(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    owner.write("one ")
    pushed = owner.push()
    owner.write("two ")
    group = str(uuid.uuid4())
    taken = store.snapshot(made.id, str(uuid.uuid4()), pushed, group=group, name="s")
    assert store.get_snapshot(taken.id) == taken
    assert content_of(origin, taken.record.disk) == "one "
    assert (taken.record.volume, taken.record.size_bytes) == (made.id, GIB)
    assert (taken.record.group, taken.record.name) == (group, "s")
    assert [found.id for found in store.list_snapshots(made.id)] == [taken.id]
    assert list(store.list_snapshots(str(uuid.uuid4()))) == []
    with pytest.raises(exception.ConflictError, match="exists already"):
        store.snapshot(made.id, taken.id, pushed)
    owner.release()
    later = store.snapshot(made.id, str(uuid.uuid4()))
    assert content_of(origin, later.record.disk) == "one two "


def test_owned_volume_has_to_be_pushed_first(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    with pytest.raises(exception.ConflictError, match="owned by host a"):
        store.snapshot(made.id, str(uuid.uuid4()))
    with pytest.raises(exception.ConflictError, match="owned by host a"):
        store.clone(new(), made.id)
    assert store.clone(new(), made.id, owner.push()).record.disk == DiskState()


def test_push_whose_log_objects_are_gone_is_refused(
    store: VolumeStore, origin: base.Origin
) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    sequence = owner.write("one ")
    pushed = owner.push()
    origin.delete(layout.log_key(made.id, owner.epoch, sequence))
    with pytest.raises(exception.ConflictError, match="collected meanwhile"):
        store.snapshot(made.id, str(uuid.uuid4()), pushed)
    with pytest.raises(exception.ConflictError, match="collected meanwhile"):
        store.clone(new(), made.id, pushed)
    assert list(store.list_snapshots()) == []
    assert len(list(store.list())) == 1


def test_clones_and_snapshots_outlive_their_source(store: VolumeStore, origin: base.Origin) -> None:
    source = store.create(new())
    owner = owner_of(store, origin, source.id)
    owner.write("one ")
    owner.release()
    taken = store.snapshot(source.id, str(uuid.uuid4()))
    copy = store.clone(new(2 * GIB), source.id)
    restored = store.create_from_snapshot(new(), taken.id)
    store.disallow_host(source.id, "a")
    store.delete(source.id)
    for one in (copy, restored):
        other = owner_of(store, origin, one.id, "b")
        other.write("two ")
        other.release()
        assert content_of(origin, store.get(one.id).record.disk) == "one two "
    assert content_of(origin, store.get_snapshot(taken.id).record.disk) == "one "
    with pytest.raises(exception.InvalidError, match="its content has"):
        store.create_from_snapshot(new(GIB // 2), taken.id)
    with pytest.raises(exception.InvalidError, match="its content has"):
        store.clone(new(GIB), copy.id)


def test_revert_brings_the_snapshot_back(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    owner.write("one ")
    taken = store.snapshot(made.id, str(uuid.uuid4()), owner.push())
    owner.write("two ")
    with pytest.raises(exception.ConflictError, match="owned by host a"):
        store.revert(made.id, taken.id)
    owner.release()
    store.resize(made.id, 2 * GIB)
    after = store.revert(made.id, taken.id).after
    assert content_of(origin, after.disk) == "one "
    assert (after.size_bytes, after.pending, after.content_end) == (2 * GIB, None, None)
    assert after.epoch == owner.epoch + 1, "what the host still has is void"
    owner = owner_of(store, origin, made.id)
    owner.write("three ")
    owner.release()
    assert content_of(origin, store.get(made.id).record.disk) == "one three "
    other = store.create(new())
    with pytest.raises(exception.InvalidError, match=f"of volume {made.id}"):
        store.revert(other.id, taken.id)


def test_revert_to_what_is_gone_changes_nothing(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    sequence = owner.write("one ")
    owner.release()
    taken = store.snapshot(made.id, str(uuid.uuid4()))
    origin.delete(layout.log_key(made.id, owner.epoch, sequence))
    before = store.get(made.id).record
    with pytest.raises(exception.ConflictError, match="collected meanwhile"):
        store.revert(made.id, taken.id)
    after = store.get(made.id).record
    assert dataclasses.replace(after, nonce=before.nonce) == before


def test_renamed_volume_and_snapshot_keep_their_content(
    store: VolumeStore, origin: base.Origin
) -> None:
    made = store.create(new(name="home"))
    owner = owner_of(store, origin, made.id)
    owner.write("one ")
    with pytest.raises(exception.ConflictError, match="attached on a"):
        store.rename(made.id, str(uuid.uuid4()))
    owner.release()
    store.disallow_host(made.id, "a")
    taken = store.snapshot(made.id, str(uuid.uuid4()))
    renamed = store.rename(made.id, str(uuid.uuid4()))
    assert store.find(made.id) is None
    assert renamed.record.name == "home"
    assert content_of(origin, renamed.record.disk) == "one "
    again = store.rename_snapshot(taken.id, str(uuid.uuid4()))
    assert store.find_snapshot(taken.id) is None
    assert again.record.disk == taken.record.disk
    assert store.delete_snapshot(again.id).record.disk == taken.record.disk
    assert list(store.list_snapshots()) == []


# Editing


def test_size_only_grows(store: VolumeStore) -> None:
    made = store.create(new())
    assert store.resize(made.id, 2 * GIB).after.size_bytes == 2 * GIB
    assert store.resize(made.id, 2 * GIB).after.size_bytes == 2 * GIB
    for size_bytes in (GIB, 2 * GIB + 1, (1 << 30) * CHUNK_SIZE + 512):
        with pytest.raises(exception.InvalidError):
            store.resize(made.id, size_bytes)
    assert store.get(made.id).record.size_bytes == 2 * GIB


def test_name_metadata_and_durability_change(store: VolumeStore) -> None:
    made = store.create(new(metadata={"a": "1", "b": "2"}))
    after = store.describe(made.id, name="n", metadata={"a": None, "c": "3"}).after
    assert (after.name, after.metadata) == ("n", {"b": "2", "c": "3"})
    with pytest.raises(exception.InvalidError, match="name is no text"):
        store.describe(made.id, name="x" * 256)
    durability = Durability(DurabilityClass.NONE)
    assert store.set_durability(made.id, durability).after.durability == durability


def test_one_host_at_a_time_except_in_a_migration(store: VolumeStore) -> None:
    made = store.create(new())
    store.allow_host(made.id, "a")
    store.allow_host(made.id, "a")
    with pytest.raises(exception.ConflictError, match="attached on host a"):
        store.allow_host(made.id, "b")
    after = store.begin_standby(made.id, "b").after
    assert (after.hosts, after.is_standby_allowed) == (("a", "b"), True)
    store.allow_host(made.id, "b")
    for third in (store.allow_host, store.begin_standby):
        with pytest.raises(exception.ConflictError):
            third(made.id, "c")
    assert store.end_standby(made.id).after.hosts == ("a", "b")
    store.begin_standby(made.id, "b")
    after = store.disallow_host(made.id, "a").after
    assert (after.hosts, after.is_standby_allowed) == (("b",), False)
    assert store.disallow_host(made.id, "a").after == after
    store.disallow_host(made.id, "b")
    with pytest.raises(exception.InvalidError, match="a host has no name"):
        store.allow_host(made.id, "")


def test_what_never_leaves_its_host_is_not_migrated_under_a_guest(store: VolumeStore) -> None:
    swap = Durability(regions=(Region(DurabilityClass.NONE, partition="swap"),))
    made = store.create(new(durability=swap))
    store.allow_host(made.id, "a")
    with pytest.raises(exception.ConflictError, match="never leave their host"):
        store.begin_standby(made.id, "b")
    store.set_durability(made.id, Durability())
    store.begin_standby(made.id, "b")
    with pytest.raises(exception.ConflictError, match="never leave their host"):
        store.set_durability(made.id, swap)
    store.end_standby(made.id)
    assert store.set_durability(made.id, swap).after.durability == swap


# Owning


def test_owner_gets_writes_and_gives_back(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    with pytest.raises(exception.ConflictError, match="may not attach"):
        store.acquire(made.id, "a")
    owner = owner_of(store, origin, made.id)
    record = store.get(made.id).record
    assert (record.owner, record.epoch, record.content_end) == ("a", 1, None)
    assert state_of(record) is VolumeRecordState.OWNED
    first = owner.write("one ")
    store.advance(made.id, "a", 1, first)
    last = owner.write("two ")
    owner.release()
    record = store.get(made.id).record
    assert record.logs == (LogRange(made.id, 1, first, last),)
    assert (record.owner, record.content_end, record.next) == (None, (1, last), last + 1)
    owner.release()
    assert store.get(made.id).record == record, "releasing twice is releasing once"
    again = owner_of(store, origin, made.id)
    assert (again.epoch, again.following) == (2, last + 2), "the slot between them is the seal"


def test_restarted_owner_goes_on_in_its_epoch(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    owner.write("one ")
    change = store.acquire(made.id, "a", resumed_epoch=owner.epoch)
    assert change.after == change.before
    # The local log is lost: the epoch before, which is its own, is to be sealed.
    again = Owner(store, origin, made.id, "a", random.Random(6))
    again.acquire()
    assert again.epoch == owner.epoch + 1
    assert content_of(origin, again.push().disk) == "one "


def test_second_attachment_is_refused_also_during_a_migration(
    store: VolumeStore, origin: base.Origin
) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    store.begin_standby(made.id, "b")
    with pytest.raises(exception.ConflictError, match="in use on host a"):
        store.acquire(made.id, "b")
    owner.write("one ")
    owner.release()
    target = owner_of(store, origin, made.id, "b")
    assert content_of(origin, target.push().disk) == "one "
    with pytest.raises(exception.ConflictError, match="in use on host b"):
        store.acquire(made.id, "a")


def test_stale_owner_is_fenced_and_loses_nothing_it_acknowledged(
    store: VolumeStore, origin: base.Origin
) -> None:
    made = store.create(new())
    stale = owner_of(store, origin, made.id)
    stale.write("one ")
    stale.write("two ")
    store.disallow_host(made.id, "a")
    fresh = owner_of(store, origin, made.id, "b")
    with pytest.raises(FencedOwnerError):
        stale.write("three ")
    assert content_of(origin, fresh.push().disk) == "one two "
    record = store.get(made.id).record
    assert record.seals == ((1, stale.following),)
    assert fresh.following == stale.following + 1
    calls: list[Callable[[], object]] = [
        stale.release,
        lambda: store.advance(made.id, "a", 1, stale.following),
        lambda: store.announce_fold(made.id, "a", 1, packs=["ab" * 32]),
        lambda: store.give_up_fold(made.id, "a", 1),
        lambda: store.install_fold(made.id, "a", 1, "ab" * 32, LogPosition(made.id, 1, 0)),
        lambda: store.record_takeover(made.id, "a", 1, last=0, seal=1),
    ]
    for call in calls:
        with pytest.raises(exception.FencedError, match="by b in epoch 2"):
            call()


def test_released_epoch_is_fenced_by_the_next_owner(
    store: VolumeStore, origin: base.Origin
) -> None:
    made = store.create(new())
    stale = owner_of(store, origin, made.id)
    stale.write("one ")
    stale.release()
    stale.write("acknowledged by who does not know that the release took effect ")
    again = owner_of(store, origin, made.id)
    with pytest.raises(FencedOwnerError):
        stale.write("three ")
    record = store.get(made.id).record
    assert (record.seals, record.unsealed) == (((1, stale.following),), None)
    assert content_of(origin, again.push().disk) == (
        "one acknowledged by who does not know that the release took effect "
    )


def test_takeover_of_a_takeover_seals_the_epoch_that_was_written(
    store: VolumeStore, origin: base.Origin
) -> None:
    made = store.create(new())
    first = owner_of(store, origin, made.id)
    first.write("one ")
    store.disallow_host(made.id, "a")
    store.allow_host(made.id, "b")
    record = store.acquire(made.id, "b").after
    assert (record.unsealed, record.epoch) == (1, 2)
    assert state_of(record) is VolumeRecordState.TAKING_OVER
    calls: list[Callable[[], object]] = [
        lambda: store.advance(made.id, "b", 2, record.next),
        lambda: store.announce_fold(made.id, "b", 2, packs=["ab" * 32]),
        lambda: store.release(made.id, "b", 2, None),
    ]
    for call in calls:
        with pytest.raises(exception.InvalidError, match="not sealed"):
            call()
    for last, seal in ((record.next - 2, record.next), (record.next, record.next)):
        with pytest.raises(exception.InvalidError, match="does not end"):
            store.record_takeover(made.id, "b", 2, last=last, seal=seal)
    store.disallow_host(made.id, "b")
    third = owner_of(store, origin, made.id, "c")
    assert third.epoch == 3
    assert content_of(origin, third.push().disk) == "one "
    change = store.record_takeover(
        made.id, "c", 3, last=third.following - 2, seal=third.following - 1
    )
    assert change.after == change.before, "recording it twice is recording it once"
    with pytest.raises(exception.InvalidError, match="no unsealed epoch"):
        store.record_takeover(made.id, "c", 3, last=third.following, seal=third.following + 1)


def test_fold_replaces_the_log_by_a_manifest(store: VolumeStore, origin: base.Origin) -> None:
    made = store.create(new())
    owner = owner_of(store, origin, made.id)
    for text in ("one ", "two "):
        owner.write(text)
        owner.fold()
        record = store.get(made.id).record
        assert (record.logs, record.pending, record.next) == ((), None, owner.following)
    owner.write("three ")
    owner.release()
    record = store.get(made.id).record
    assert content_of(origin, record.disk) == "one two three "
    assert len(record.logs) == 1


def test_fold_of_a_part_keeps_the_rest(store: VolumeStore, origin: base.Origin) -> None:
    source = store.create(new())
    owner = owner_of(store, origin, source.id)
    numbers = [owner.write(f"{number} ") for number in range(3)]
    owner.release()
    made = store.clone(new(), source.id)
    epoch = owner_of(store, origin, made.id).epoch
    manifest = "ab" * 32
    position = LogPosition(source.id, 1, numbers[1])
    with pytest.raises(exception.InvalidError, match="not announced"):
        store.install_fold(made.id, "a", epoch, manifest, position)
    store.announce_fold(made.id, "a", epoch, packs=["cd" * 32])
    store.announce_fold(made.id, "a", epoch, packs=["cd" * 32], manifest=manifest)
    with pytest.raises(exception.InvalidError, match="not in the log"):
        store.install_fold(made.id, "a", epoch, manifest, LogPosition(source.id, 1, 0))
    after = store.install_fold(made.id, "a", epoch, manifest, position).after
    assert after.disk == DiskState(manifest, (LogRange(source.id, 1, numbers[2], numbers[2]),))
    change = store.install_fold(made.id, "a", epoch, manifest, position)
    assert change.before == change.after == after, "installing it twice is installing it once"


def test_two_hosts_race_for_a_volume_and_one_wins(store: VolumeStore) -> None:
    """Also where an answer is lost and the call repeated: both never believe that they own it."""
    for _ in range(10):
        made = store.create(new())
        store.allow_host(made.id, "a")
        store.begin_standby(made.id, "b")
        start = threading.Barrier(2)

        def race(host: str, volume_id: str = made.id, start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                store.acquire(volume_id, host)
            except exception.ConflictError:
                return False
            return True

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            outcomes = dict(zip("ab", pool.map(race, "ab"), strict=True))
        winner = store.get(made.id).record.owner
        assert [host for host, is_owner in outcomes.items() if is_owner] == [winner]


def test_concurrent_edits_lose_none(store: VolumeStore) -> None:
    made = store.create(new())

    def edit(number: int) -> None:
        while True:
            try:
                store.describe(made.id, metadata={str(number): "x"})
                return
            except exception.ConflictError:
                continue

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(edit, range(20)))
    assert set(store.get(made.id).record.metadata) == {str(number) for number in range(20)}


# Versions


def test_older_repository_has_volumes_after_its_upgrade(origin: base.Origin) -> None:
    older = Format(str(uuid.uuid4()), CHUNK_SIZE, version=1)
    origin.put_if_absent("format", [older.encode()])
    repository = Repository.open(origin)
    register(repository, 0, disk(1, 2))
    with pytest.raises(exception.UnsupportedError, match="volumes need 2") as refused:
        VolumeStore(repository)
    assert "acstor repository upgrade" in refused.value.hint
    upgraded = upgrade(origin)
    assert upgraded.format == dataclasses.replace(older, version=FORMAT_VERSION)
    assert Repository.open(origin).format == upgraded.format
    assert upgrade(origin).format == upgraded.format
    VolumeStore(upgraded).create(new())
    assert upgraded.find_image(image_id(0)) is not None


def test_answer_to_a_push_is_read_or_refused() -> None:
    volume_id = str(uuid.uuid4())
    logs = [{"volume": volume_id, "epoch": 1, "first": 5, "last": 7}]
    answer = {"epoch": 1, "sequence": 7, "logs": logs, "manifest": None, "size_bytes": GIB}
    wanted = DiskState(None, (LogRange(volume_id, 1, 5, 7),))
    assert PushedState.from_answer(answer) == PushedState(GIB, wanted)
    changes: list[dict[str, object]] = [
        {"size_bytes": None}, {"manifest": "x"}, {"logs": None}, {"logs": [{}]},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(exception.InvalidError, match="answer to a push"):
            PushedState.from_answer({**answer, **change})
