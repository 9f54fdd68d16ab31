"""Disks read into spools and stored: what is kept is what is unlike the version before."""

import dataclasses
import os
import pathlib
import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acstor import exception
from acstor.agent.captures import storing
from acstor.agent.captures.orders import HeldCapture, HeldDisk, HeldMoment
from acstor.agent.captures.parents import Comparison, find_comparison, scope_of
from acstor.agent.captures.reading import Pace, read_disk
from acstor.agent.captures.room import Room
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.spool import SpooledDisk, SpoolWriter
from acstor.agent.captures.storing import CommitSettings, Committer
from acstor.origin import memory
from acstor.rate_limit import RateLimit
from acstor.repository.disk_manifest import PagedManifest
from acstor.repository.images.usage import base_name
from acstor.repository.repository import Repository
from acstor.repository.versions.record import Consistency
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.versions.host_capture.request import VersionFields
from testbed.doubles.memory_disk import FaultyDisk, MemoryDisk
from tests.unit.agent.captures.guests import request_of
from tests.unit.repository.images import (
    CHUNK_SIZE,
    chunk,
    disk,
    image_id,
    open_repository,
    register,
)
from tests.unit.repository.versions.captures import SETTINGS, numbers_of, store_of
from tests.unit.repository.versions.records import NOON

BASE = (1, 2, 3, 4, 5, 6, 0, 0)
BACKING = f"/var/lib/nova/instances/_base/{base_name(image_id(0))}"
NO_PACE = Pace(RateLimit(0), RateLimit(0))


@pytest.fixture
def store() -> VersionStore:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(*BASE))
    return store_of(repository)


def overlay(own: Mapping[int, int], base: tuple[int, ...] = BASE) -> MemoryDisk:
    """Return a disk that has some chunks of its own, 0: zeros of its own."""
    return MemoryDisk(
        "vda",
        len(BASE),
        {index: chunk(number) if number else None for index, number in own.items()},
        {index: chunk(number) for index, number in enumerate(base) if number},
        block_size=CHUNK_SIZE,
    )


def compare(store: VersionStore, parent: str | None = None) -> Comparison | None:
    size = len(BASE) * CHUNK_SIZE
    return find_comparison(store, size, parent, image_id(0), BACKING)


def hold(
    folder: pathlib.Path,
    source: DiskSource,
    comparison: Comparison | None,
    pace: Pace = NO_PACE,
    room: int = 1 << 30,
) -> tuple[str, SpoolWriter]:
    """Read a disk; return the folder of its spool."""
    path = folder / source.device
    path.mkdir(parents=True)
    writer = SpoolWriter(
        str(path),
        CHUNK_SIZE,
        source.size_bytes,
        is_whole=comparison is None,
        reserve=Room(str(path), room, 0.0).reserve,
    )
    try:
        read_disk(source, writer, comparison, CHUNK_SIZE, None, pace)
        writer.finish()
    finally:
        writer.close()
    return str(path), writer


def commit(
    store: VersionStore,
    folder: pathlib.Path,
    task: str,
    source: MemoryDisk,
    parent: str | None = None,
) -> str:
    """Take a version of a disk on a host; return its id."""
    comparison = compare(store, parent)
    _, writer = hold(folder, source, comparison)
    request = request_of(task=task, parents={"vda": parent} if parent else {})
    held = HeldDisk(
        "vda",
        request.version_id("vda"),
        source.size_bytes,
        writer.held_bytes,
        is_whole=comparison is None,
        parent=None if comparison is None else comparison.parent.digest,
        parent_version=None if comparison is None else comparison.version,
    )
    moment = HeldMoment(NOON, Consistency.CRASH, "", (held,))
    Committer(store, "h1", CommitSettings(SETTINGS)).commit(
        HeldCapture(request, moment, str(folder))
    )
    return request.version_id("vda")


def content_of(store: VersionStore, version: str) -> list[int]:
    record = store.get(version).record
    assert record.state is VersionState.COMMITTED
    assert record.manifest is not None
    return numbers_of(store.repository.origin, record.manifest)


def task(number: int) -> str:
    return image_id(1000 + number)


def test_only_own_chunks_are_read_and_only_changed_ones_are_kept(
    store: VersionStore, tmp_path: pathlib.Path
) -> None:
    source = overlay({1: 20, 2: 3, 3: 0})
    path, writer = hold(tmp_path, source, compare(store))
    assert source.read_bytes == 2 * CHUNK_SIZE  # of zeros nothing is read
    assert writer.chunks == 1
    found = SpooledDisk(path)
    extents = [(one.start // CHUNK_SIZE, one.is_zero) for one in found.extents()]
    assert extents == [(1, False), (3, True)]
    found.close()


def test_version_has_the_content_of_the_disk(store: VersionStore, tmp_path: pathlib.Path) -> None:
    version = commit(store, tmp_path, task(1), overlay({0: 20, 4: 0, 7: 21}))
    assert content_of(store, version) == [20, 2, 3, 4, 0, 6, 0, 21]
    record = store.get(version).record
    assert (record.parent, record.base_image, record.group) == (None, image_id(0), task(1))
    assert record.is_restorable


def test_version_on_a_version_stores_what_changed_since(
    store: VersionStore, tmp_path: pathlib.Path
) -> None:
    first = commit(store, tmp_path / "1", task(1), overlay({0: 20, 1: 21}))
    second = commit(store, tmp_path / "2", task(2), overlay({0: 20, 1: 22, 5: 23}), first)
    assert content_of(store, second) == [20, 22, 3, 4, 5, 23, 0, 0]
    record = store.get(second).record
    assert record.parent == first
    assert record.delta is not None
    assert record.delta.stored_chunks == 2


def test_rebuilt_disk_loses_what_the_version_before_had(
    store: VersionStore, tmp_path: pathlib.Path
) -> None:
    first = commit(store, tmp_path / "1", task(1), overlay({0: 20, 6: 21}))
    source = overlay({2: 22})
    second = commit(store, tmp_path / "2", task(2), source, first)
    assert content_of(store, second) == [1, 2, 22, 4, 5, 6, 0, 0]
    assert source.read_bytes < source.size_bytes


def test_disk_on_another_base_is_read_as_a_whole(
    store: VersionStore, tmp_path: pathlib.Path
) -> None:
    size = len(BASE) * CHUNK_SIZE
    assert find_comparison(store, size, None, image_id(0), "/other/base") is None
    assert find_comparison(store, size, None, image_id(9), BACKING) is None
    assert find_comparison(store, size - 512, None, image_id(0), BACKING) is None
    first = commit(store, tmp_path / "1", task(1), overlay({0: 20}))
    found = find_comparison(store, size, first, image_id(0), "/other/base")
    assert found is not None
    assert found.unlike_base is None
    source = overlay({}, base=(9, 2, 3, 4, 5, 6, 0, 10))
    path, _ = hold(tmp_path, source, found)
    spooled = SpooledDisk(path)
    read = [one.start // CHUNK_SIZE for one in spooled.extents() if not one.is_zero]
    assert read == [0, 7]
    spooled.close()


def test_disk_without_a_known_base_is_stored_as_a_whole(
    store: VersionStore, tmp_path: pathlib.Path
) -> None:
    source = overlay({0: 20})
    _, writer = hold(tmp_path, source, None)
    request = request_of(task=task(1), base_image=None)
    held = HeldDisk(
        "vda", request.version_id("vda"), source.size_bytes, writer.held_bytes, is_whole=True
    )
    moment = HeldMoment(NOON, Consistency.FS, "", (held,))
    Committer(store, "h1", CommitSettings(SETTINGS)).commit(
        HeldCapture(request, moment, str(tmp_path))
    )
    version = request.version_id("vda")
    assert content_of(store, version) == [20, 2, 3, 4, 5, 6, 0, 0]
    assert store.get(version).record.consistency is Consistency.FS


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.integers(0, len(BASE) - 1), st.integers(0, 12), max_size=8),
        min_size=1,
        max_size=4,
    )
)
def test_chain_of_versions_has_the_contents_of_the_disk(
    tmp_path_factory: pytest.TempPathFactory, overlays: list[dict[int, int]]
) -> None:
    """Each overlay is another one: nothing is carried over but by the version before."""
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(*BASE))
    store, parent = store_of(repository), None
    for number, own in enumerate(overlays):
        folder = tmp_path_factory.mktemp("capture")
        parent = commit(store, folder, task(number), overlay(own), parent)
        wanted = [own.get(index, BASE[index]) for index in range(len(BASE))]
        assert content_of(store, parent) == wanted


def test_names_have_the_scope_of_the_base_image(store: VersionStore) -> None:
    assert scope_of(store, request_of()) is None
    image = store.repository.get_image(image_id(0))
    scoped = dataclasses.replace(
        image, record=dataclasses.replace(image.record, dedup_scope="ab" * 16)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repository, "find_image", lambda self, image_id: scoped)
        assert scope_of(store, request_of()) == "ab" * 16
        assert scope_of(store, request_of(base_image=None)) is None
        asked = VersionFields("p", dedup_scope="cd" * 16)
        assert scope_of(store, request_of(version=asked)) == "cd" * 16


def test_commit_may_be_repeated(store: VersionStore, tmp_path: pathlib.Path) -> None:
    source = overlay({0: 20})
    commit(store, tmp_path, task(1), source)
    done: list[str] = []
    request = request_of(task=task(1))
    held = HeldDisk("vda", request.version_id("vda"), source.size_bytes, 0, is_whole=False)
    moment = HeldMoment(NOON, Consistency.CRASH, "", (held,))
    settings = CommitSettings(SETTINGS, on_committed=done.append)
    Committer(store, "h1", settings).commit(HeldCapture(request, moment, "/nowhere"))
    assert done == [request.version_id("vda")]


def test_held_version_keeps_what_it_is_compared_with(
    store: VersionStore, tmp_path: pathlib.Path
) -> None:
    comparison = compare(store)
    assert comparison is not None
    request = request_of()
    held = HeldDisk(
        "vda", request.version_id("vda"), 1 << 20, 0, False, comparison.parent.digest, None
    )
    moment = HeldMoment(NOON, Consistency.CRASH, "", (held,))
    storing.begin(store, request, moment, "h1")
    storing.begin(store, request, moment, "h1")
    record = store.get(held.version).record
    assert (record.state, record.is_restorable) == (VersionState.CAPTURED, False)
    assert record.pending is not None
    assert record.pending.disk.manifest == comparison.parent.digest
    storing.abandon(store, moment, "h1")
    storing.abandon(store, moment, "h1")
    assert store.find(held.version) is None


def test_nvram_comes_with_the_first_disk(store: VersionStore, tmp_path: pathlib.Path) -> None:
    (tmp_path / storing.NVRAM).write_bytes(b"variables")
    _, writer = hold(tmp_path, overlay({0: 20}), compare(store))
    comparison = compare(store)
    assert comparison is not None
    request = request_of()
    held = HeldDisk(
        "vda",
        request.version_id("vda"),
        len(BASE) * CHUNK_SIZE,
        writer.held_bytes,
        False,
        comparison.parent.digest,
        None,
        has_nvram=True,
    )
    moment = HeldMoment(NOON, Consistency.CRASH, "", (held,))
    committer = Committer(store, "h1", CommitSettings(SETTINGS))
    committer.commit(HeldCapture(request, moment, str(tmp_path)))
    record = store.get(held.version).record
    assert record.nvram is not None
    assert isinstance(store.repository.load_manifest(record.nvram), PagedManifest)
    assert record.nvram != record.manifest


def test_disk_that_was_written_to_is_refused(store: VersionStore, tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.ConflictError, match="written to"):
        hold(tmp_path, FaultyDisk(overlay({0: 20}), is_changed=True), compare(store))


def test_disk_that_cannot_be_read_leaves_no_whole_spool(
    store: VersionStore, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(exception.UnavailableError):
        hold(tmp_path, FaultyDisk(overlay({0: 20}), reads_before=0), compare(store))
    with pytest.raises(exception.NotFoundError, match="not whole"):
        SpooledDisk(str(tmp_path / "vda"))


def test_full_folder_is_said_clearly(store: VersionStore, tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.ExhaustedError, match=r"\[captures\] capacity"):
        hold(tmp_path, overlay({0: 20, 1: 21}), compare(store), room=CHUNK_SIZE + 200)


def test_reserve_of_the_file_system_is_left_free(tmp_path: pathlib.Path) -> None:
    found = os.statvfs(tmp_path)
    free_percent = 100 * found.f_bavail / found.f_blocks
    room = Room(str(tmp_path), 1 << 40, free_percent)
    with pytest.raises(exception.ExhaustedError, match="reserve"):
        room.reserve(1)
    Room(str(tmp_path), 1 << 40, 0.0).reserve(1)


def test_reading_is_paced_and_told_of(store: VersionStore, tmp_path: pathlib.Path) -> None:
    waits: list[float] = []
    told: list[tuple[int, int]] = []
    checks: list[None] = []
    pace = Pace(
        RateLimit(CHUNK_SIZE, clock=lambda: 0.0),
        RateLimit(0),
        lambda: checks.append(None),
        lambda done, total: told.append((done, total)),
        waits.append,
    )
    hold(tmp_path, overlay({0: 20, 4: 21}), compare(store), pace)
    assert told == [(CHUNK_SIZE, 2 * CHUNK_SIZE), (2 * CHUNK_SIZE, 2 * CHUNK_SIZE)]
    assert len(waits) >= 1
    assert len(checks) >= 4


def test_disk_whose_layers_are_not_told_is_read_as_a_whole(
    store: VersionStore, tmp_path: pathlib.Path
) -> None:
    source = overlay({0: 20})
    source.tells_layers = False
    path, writer = hold(tmp_path, source, compare(store))
    assert source.read_bytes == 6 * CHUNK_SIZE
    assert writer.chunks == 1
    found = SpooledDisk(path)
    assert len(found.digests) == 1
    found.close()


def test_damaged_spools_are_found(store: VersionStore, tmp_path: pathlib.Path) -> None:
    path, _ = hold(tmp_path, overlay({0: 20, 1: 21}), compare(store))
    data, index = pathlib.Path(path, "data"), pathlib.Path(path, "index")
    good = data.read_bytes()
    data.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    found = SpooledDisk(path)
    buffer = memoryview(bytearray(2 * CHUNK_SIZE))
    with pytest.raises(exception.CorruptError, match="damaged"):
        found.scan(0, buffer, CHUNK_SIZE)
    found.close()
    data.write_bytes(good[:CHUNK_SIZE])
    with pytest.raises(exception.CorruptError):
        SpooledDisk(path)
    data.write_bytes(good)
    whole = index.read_bytes()
    for size in (0, 10, 64, len(whole) - 48):
        index.write_bytes(whole[:size])
        with pytest.raises(exception.NotFoundError):
            SpooledDisk(path)
    index.write_bytes(whole[:8] + b"\x02" + whole[9:])
    with pytest.raises(exception.UnsupportedError):
        SpooledDisk(path)
    rng = random.Random(1)
    for _ in range(50):
        at = rng.randrange(len(whole))
        index.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        try:
            SpooledDisk(path).close()
        except exception.AcstorError:
            continue


def test_spool_has_the_bytes_of_its_page(tmp_path: pathlib.Path) -> None:
    writer = SpoolWriter(str(tmp_path), 4096, 5 * 4096, is_whole=True)
    writer.take_chunk(1, b"\x11" * 32, memoryview(b"a" * 4096))
    writer.take_zeros(3, 5)
    writer.finish()
    golden = pathlib.Path(__file__).parents[3] / "golden" / "capture-spool-v1.index"
    assert (tmp_path / "index").read_bytes() == golden.read_bytes()
    assert (tmp_path / "data").read_bytes() == b"a" * 4096
