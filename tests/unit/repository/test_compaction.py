"""Compaction on its own: what is moved, what becomes of it, who still finds it."""

import contextlib
from collections.abc import Sequence

import pytest

from acstor import exception
from acstor.origin import base, memory
from acstor.repository import accounting, layout, moved_packs, pack_reader, upgrade
from acstor.repository.gc import claim, compaction_record
from acstor.repository.gc.compaction import Compactor, Report
from acstor.repository.gc.compaction_plan import (
    BATCH_COUNT,
    Candidate,
    Limits,
    Plan,
    Reason,
    _chosen,
)
from acstor.repository.gc.condemnation import State, Tombstone
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.marking import Marked, Marker
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Repository
from acstor.repository.verification import Verifier
from testbed.fixtures.usage_records import write_usage
from tests.unit.repository import interleaving
from tests.unit.repository.images import (
    CHUNK_SIZE,
    disk,
    image_id,
    open_repository,
    read_back,
    register,
)

LIMITS = Limits(pack_size=4 * CHUNK_SIZE)
FULL = (1, 2, 3, 4, 5, 6, 7, 8)
"""Chunks of two packs."""
KEPT = (1, 5)
"""Chunks of them that are needed in the end, one of each."""


@pytest.fixture
def repository() -> Repository:
    """Return a repository with one image, which needs a quarter of each of two packs."""
    return sparse(memory.MemoryOrigin())


def sparse(origin: base.Origin) -> Repository:
    made = open_repository(origin)
    register(made, 0, disk(*FULL))
    register(made, 1, disk(*KEPT))
    made.remove_image(image_id(0))
    return made


def collect(repository: Repository, count: int = 3) -> None:
    for _ in range(count):
        Collector(repository, "w", 0.0, clock=lambda: 1.0).collect()


def compact(repository: Repository, host: str = "a", limits: Limits = LIMITS) -> Report:
    return Compactor(repository, host, limits).compact()


def packs(repository: Repository) -> set[str]:
    return {str(layout.name_of(key)) for key in repository.origin.list(layout.PACK_PREFIX)}


def moved(repository: Repository) -> set[str]:
    return set(moved_packs.list_moved(repository.origin))


def stored_bytes(repository: Repository) -> int:
    return sum(map(repository.origin.size, repository.origin.list(layout.PACK_PREFIX)))


def damages(repository: Repository) -> list[str]:
    return [damage.what for damage in Verifier(repository).verify().damages]


def test_needed_chunks_outlive_their_packs(repository: Repository) -> None:
    before, manifest = packs(repository), repository.get_image(image_id(1)).record
    report = compact(repository)
    assert (report.moved, report.packs, report.damaged, report.overtaken) == (2, 1, 0, 0)
    assert moved(repository) == before
    assert read_back(repository, 1) == disk(*KEPT)
    was_stored = stored_bytes(repository)
    collect(repository)
    assert packs(repository).isdisjoint(before)
    assert len(packs(repository)) == 1
    assert stored_bytes(repository) < was_stored / 3
    assert report.bytes_to_free == was_stored - stored_bytes(repository)
    assert read_back(repository, 1) == disk(*KEPT)
    assert repository.get_image(image_id(1)).record == manifest
    assert damages(repository) == []
    assert list(repository.origin.list_refs(layout.COMPACTION_PREFIX)) == []
    assert compact(repository).moved == 0


def test_moved_packs_go_with_their_users(repository: Repository) -> None:
    compact(repository)
    collect(repository)
    repository.remove_image(image_id(1))
    collect(repository, 4)
    assert list(repository.origin.list()) == ["format"]
    assert list(repository.origin.list_refs("gc/")) == []


def test_pack_and_list_are_kept_while_a_user_needs_what_was_not_moved(
    repository: Repository,
) -> None:
    before = packs(repository)
    compact(repository)
    # As a registration does that has read the tables of the packs before they were moved.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(moved_packs, "list_moved", lambda objects: [])
        patched.setattr(layout, "MOVED_PREFIX", "elsewhere/")
        register(repository, 2, disk(2, 3))
    collect(repository)
    assert len(packs(repository) & before) == 1, "the one of which only what was moved is needed"
    for number, content in ((1, disk(*KEPT)), (2, disk(2, 3))):
        assert read_back(repository, number) == content
    assert damages(repository) == []
    repository.remove_image(image_id(2))
    collect(repository)
    assert packs(repository).isdisjoint(before)
    assert read_back(repository, 1) == disk(*KEPT)


def test_registration_shares_the_copies_and_not_what_was_moved(repository: Repository) -> None:
    before = packs(repository)
    compact(repository)
    report = register(repository, 2, disk(1, 2, 5))
    assert report.new == 1, "chunk 2 was not copied"
    manifest = repository.load_manifest(report.manifest)
    assert before.isdisjoint(pack.hex() for pack in manifest.packs())


def test_attached_manifest_keeps_what_was_moved(repository: Repository) -> None:
    image = repository.get_image(image_id(1))
    attached = {image.record.manifest: image_id(1)}
    write_usage(repository.origin, "host-1", manifests=attached)
    repository.remove_image(image_id(1))
    assert compact(repository).moved == 2
    collect(repository)
    assert len(packs(repository)) == 1
    assert len(moved(repository)) == 2
    write_usage(repository.origin, "host-1", manifests={})
    collect(repository)
    assert not packs(repository)
    assert not moved(repository)


def test_older_repository_is_not_compacted() -> None:
    older = open_repository(memory.MemoryOrigin(), COMPRESSED_VERSION)
    with pytest.raises(exception.UnsupportedError, match="compaction needs 7") as raised:
        compact(older)
    assert "upgrade" in str(raised.value.hint)


def test_packs_of_version_1_become_packs_of_the_class_of_their_users() -> None:
    origin = memory.MemoryOrigin()
    older = open_repository(origin, INDEX_VERSION)
    register(older, 0, disk(*FULL))
    register(older, 1, disk(*KEPT))
    repository = upgrade.upgrade(origin)
    repository.remove_image(image_id(0))
    assert compact(repository).moved == 2
    collect(repository)
    (name,) = packs(repository)
    found = pack_reader.read_pack(origin, bytes.fromhex(name))
    assert found.version == pack_reader.STORED_VERSION
    assert read_back(repository, 1) == disk(*KEPT)
    assert damages(repository) == []


def test_damaged_pack_is_not_moved(repository: Repository) -> None:
    (first, *_others) = sorted(packs(repository))
    key = layout.pack_key(first)
    content = bytearray(repository.origin.get(key, 1 << 20))
    for at in range(4096, 4096 + 4 * CHUNK_SIZE, 512):
        content[at] ^= 1
    repository.origin.delete(key)
    repository.origin.put_if_absent(key, [content])
    report = compact(repository)
    assert (report.moved, report.damaged) == (1, 1)
    assert first not in moved(repository)


class UnsoundCopies(memory.MemoryOrigin):
    """An origin that stores something else once it is asked to."""

    is_bad = False

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        if self.is_bad and key.startswith(layout.PACK_PREFIX):
            self.is_bad = False
            content = bytearray(b"".join(map(bytes, buffers)))
            for at in range(4096, 4096 + CHUNK_SIZE, 64):
                content[at] ^= 1
            buffers = [content]
        return super().put_if_absent(key, buffers)


@pytest.mark.parametrize("pack_size", [4, 1], ids=["at the end", "between"])
def test_packs_stay_whose_copies_are_unsound(pack_size: int) -> None:
    """Whichever new pack it is: the packs with chunks in it are left, and the others moved."""
    origin = UnsoundCopies()
    repository = sparse(origin)
    before = packs(repository)
    plan = Compactor(repository, "a", LIMITS).plan()
    compactor = Compactor(repository, "a", Limits(pack_size=pack_size * CHUNK_SIZE))
    joined = [plan.candidates]
    origin.is_bad = True
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Plan, "batches", lambda self, limits: iter(joined))
        report = compactor.compact(plan)
    unsound = 2 if pack_size > 1 else 1
    assert (report.moved, report.damaged) == (2 - unsound, unsound)
    assert len(moved(repository) & before) == 2 - unsound
    for pack in moved(repository):
        assert len(moved_packs.load_moved(origin, bytes.fromhex(pack))) == 1
    check_afterwards(repository)


def test_chunks_are_moved_again_and_only_as_often_as_readers_follow() -> None:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(*FULL))
    register(repository, 1, disk(1))
    repository.remove_image(image_id(0))
    for hops in range(1, moved_packs.HOPS_MAX + 1):
        # Joined with others of which nothing is needed afterwards.
        register(repository, 2, disk(50 + 4 * hops, 51 + 4 * hops, 52 + 4 * hops, 53 + 4 * hops))
        register(repository, 3, disk(50 + 4 * hops))
        repository.remove_image(image_id(2))
        assert compact(repository).moved >= 1
        collect(repository)
        assert read_back(repository, 1) == disk(1)
        repository.remove_image(image_id(3))
        collect(repository)
        assert read_back(repository, 1) == disk(1)
        assert damages(repository) == []
    assert compact(repository).moved == 0
    assert read_back(repository, 1) == disk(1)
    repository.remove_image(image_id(1))
    collect(repository, 5)
    assert list(repository.origin.list()) == ["format"]


def candidate(name: int, live: int, size: int = 100 << 20) -> Candidate:
    chunk_bytes = size - 5000
    return Candidate(bytes([name]) * 32, "image", size, chunk_bytes, chunk_bytes * live // 100, [])


def chosen(candidates: Sequence[Candidate], **limits: float) -> list[int]:
    return [one.pack[0] for one in _chosen(candidates, Limits(**limits))]  # type: ignore[arg-type]


def test_packs_of_the_lowest_share_are_chosen_until_enough_is_freed() -> None:
    candidates = [candidate(1, 60), candidate(2, 20), candidate(3, 70), *map(full, range(10, 17))]
    assert chosen(candidates) == [2]
    assert chosen(candidates, dead_share=0.05) == [2, 1]
    assert chosen(candidates, dead_share=0.01) == [2, 1], "of the third too much is needed"
    assert chosen(candidates, dead_share=0.2) == []
    assert chosen(candidates, live_share_max=0.1) == []


def full(name: int) -> Candidate:
    return candidate(name, 100)


def test_small_packs_are_joined_from_ten_on() -> None:
    small = [candidate(name, 100, 1 << 20) for name in range(1, 11)]
    assert chosen(small[:9]) == []
    assert chosen(small) == list(range(1, 11))
    assert {one.reason for one in _chosen(small, Limits())} == {Reason.SMALL}


def test_batches_are_of_one_class_and_fill_a_pack() -> None:
    size = 30 << 20
    some = [candidate(name, 100, size) for name in range(1, 5)]
    other = Candidate(bytes(32), "volume", size, size, size, [])
    batches = list(Plan((*some, other)).batches(Limits()))
    assert [len(batch) for batch in batches] == [2, 2, 1]


def test_batches_have_as_many_packs_as_a_record_names() -> None:
    tiny = Candidate(bytes(32), "volume", 5000, 100, 100, [])
    batches = list(Plan((tiny,) * 10_000).batches(Limits()))
    assert [len(batch) for batch in batches] == [BATCH_COUNT, BATCH_COUNT, 10_000 - 2 * BATCH_COUNT]
    assert BATCH_COUNT < compaction_record.PACKS_MAX


def test_accounts_add_up_whatever_has_moved(repository: Repository) -> None:
    register(repository, 2, disk(5, 9))

    def check() -> accounting.Space[object]:
        space = accounting.account(repository)
        unique = sum(one.unique_bytes for one in space.owners)
        assert space.stored_bytes == stored_bytes(repository)
        assert space.stored_bytes == space.live_bytes + space.garbage_bytes + space.overhead_bytes
        assert unique == 2 * CHUNK_SIZE, "chunks 1 and 9"
        assert space.live_bytes == 3 * CHUNK_SIZE
        return space  # type: ignore[return-value]

    before = check()
    compact(repository)
    between = check()
    assert between.garbage_bytes > before.garbage_bytes
    collect(repository)
    after = check()
    assert after.garbage_bytes <= CHUNK_SIZE


def test_damage_after_a_move_is_found(repository: Repository) -> None:
    compact(repository)
    collect(repository)
    assert damages(repository) == []
    (pack,) = packs(repository)
    key = layout.pack_key(pack)
    content = bytearray(repository.origin.get(key, 1 << 20))
    repository.origin.delete(key)
    found = Verifier(repository).verify().damages
    assert {(damage.image, damage.chunk) for damage in found} == {
        (image_id(1), 0), (image_id(1), 1)
    }  # fmt: skip
    content[4096] ^= 1
    repository.origin.put_if_absent(key, [content])
    found = [damage for damage in Verifier(repository).verify().damages if damage.image]
    assert [damage.image for damage in found] == [image_id(1)]


def test_damaged_list_is_found_and_stops_collections(repository: Repository) -> None:
    compact(repository)
    collect(repository)
    name = min(moved(repository))
    key = layout.moved_key(name)
    content = bytearray(repository.origin.get(key, 1 << 20))
    content[70] ^= 1
    repository.origin.delete(key)
    repository.origin.put_if_absent(key, [content])
    found = Verifier(repository).verify().damages
    assert name in {damage.pack for damage in found}
    assert image_id(1) in {damage.image for damage in found}
    with pytest.raises(exception.CorruptError, match=key):
        collect(repository)


def test_claim_takes_the_copies_of_a_pack_that_is_being_deleted(repository: Repository) -> None:
    origin = repository.origin
    manifest = repository.load_manifest(repository.get_image(image_id(1)).record.manifest)
    compact(repository)
    copies = packs(repository) - {pack.hex() for pack in manifest.packs()}
    first = manifest.packs()[0]
    going = Tombstone(first.hex(), layout.pack_key(first.hex()), State.DELETING, {})
    origin.swap_ref(layout.condemned_ref(first.hex()), None, going.encode())
    names = {**{pack: layout.pack_key(pack) for pack in copies}}
    names[layout.moved_name(first.hex())] = layout.moved_key(first.hex())
    for name, key in names.items():
        condemned = Tombstone(name, key, State.CONDEMNED, {})
        origin.swap_ref(layout.condemned_ref(name), None, condemned.encode())
    assert claim.claim(origin, manifest, is_of_hosts=False) == set()
    assert set(origin.list_refs("gc/")) == {layout.condemned_ref(first.hex())}
    origin.delete(layout.pack_key(copies.pop()))
    assert claim.claim(origin, manifest, is_of_hosts=False) == {first}


@pytest.mark.parametrize("is_deleted", [False, True], ids=["going", "gone"])
@pytest.mark.parametrize("is_broken", [False, True], ids=["right", "broken"])
def test_pack_is_kept_while_another_collection_deletes_its_copies(
    repository: Repository, is_deleted: bool, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seal a copy at the last moment, as a collector does that has looked long before."""
    before, origin = packs(repository), repository.origin
    compact(repository)
    (copy,) = packs(repository) - before
    collect(repository, 1)  # condemns what was moved
    mark = Marker.mark

    def mark_and_stand_still(self: Marker) -> Marked:
        marked = mark(self)
        going = Tombstone(copy, layout.pack_key(copy), State.DELETING, {})
        token = origin.swap_ref(layout.condemned_ref(copy), None, going.encode())
        if is_deleted:
            origin.delete(layout.pack_key(copy))
            origin.swap_ref(layout.condemned_ref(copy), token, None)
        return marked

    with monkeypatch.context() as patched:
        patched.setattr(Marker, "mark", mark_and_stand_still)
        if is_broken:
            patched.setattr(Collector, "_is_dispensable", lambda self, name: True)
        collect(repository, 1)
    origin.delete(layout.pack_key(copy))
    if is_broken:
        with pytest.raises(exception.NotFoundError):
            read_back(repository, 1)
    else:
        assert packs(repository) == before
        assert read_back(repository, 1) == disk(*KEPT)


def test_record_of_a_compaction_keeps_what_it_names(repository: Repository) -> None:
    record = compaction_record.OwnRecord(repository.origin, "b")
    made = bytes.fromhex("ab" * 32)
    record.begin([])
    record.announce(made)
    repository.origin.put_if_absent(layout.pack_key(made.hex()), [b"to be"])
    collect(repository)
    assert made.hex() in packs(repository)
    record.end()
    collect(repository)
    assert made.hex() not in packs(repository)


def test_later_compaction_of_a_host_ends_the_earlier_one(repository: Repository) -> None:
    records = [compaction_record.OwnRecord(repository.origin, "a") for _ in range(2)]
    records[0].begin([])
    records[1].begin([])
    with pytest.raises(exception.ConflictError, match="another compaction"):
        records[0].check_current()
    with pytest.raises(exception.ConflictError, match="another compaction"):
        records[0].announce(bytes(32))
    records[1].check_current()
    records[1].end()
    assert not compaction_record.forget_compaction(repository.origin, "a")


def test_killed_compaction_changes_no_content() -> None:
    steps = 0
    while True:
        repository = sparse(memory.MemoryOrigin())
        actor = interleaving.Actor(
            "compact", lambda inner: compact(Repository.open(inner)), repository.origin
        )
        for _ in range(steps):
            if not actor.is_done:
                actor.step()
        is_over = actor.is_done
        if not is_over:
            actor.kill()
        assert actor.error is None
        check_afterwards(repository)
        if is_over:
            break
        steps += 1
    assert steps > 30


def check_afterwards(repository: Repository) -> None:
    """Check content and garbage after a compaction that has ended anyhow."""
    assert read_back(repository, 1) == disk(*KEPT)
    collect(repository)
    assert read_back(repository, 1) == disk(*KEPT)
    compact(repository)
    collect(repository)
    assert read_back(repository, 1) == disk(*KEPT)
    assert damages(repository) == []
    assert len(packs(repository)) <= 2
    assert list(repository.origin.list_refs(layout.COMPACTION_PREFIX)) == []


@pytest.mark.parametrize(
    "error", [exception.UnavailableError("away"), KeyboardInterrupt()], ids=["away", "interrupted"]
)
def test_compaction_that_fails_leaves_its_copies_to_collections(
    repository: Repository, error: BaseException
) -> None:
    before = packs(repository)

    def fail(size: int) -> None:
        raise error

    with pytest.raises(type(error)):
        Compactor(repository, "a", LIMITS, pace=fail).compact()
    assert list(repository.origin.list_refs(layout.COMPACTION_PREFIX)) == []
    collect(repository)
    assert packs(repository) == before
    with contextlib.suppress(exception.AcstorError):
        compact(repository)
    assert read_back(repository, 1) == disk(*KEPT)
