"""The index of images: its states, its writers beside one another, killed and without an answer."""

import dataclasses
import json
import pathlib
import threading

import pytest

from acstor import exception
from acstor.origin.base import REF_SIZE_MAX
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.registrar.index_upkeep import LEFT_AFTER, IndexUpkeep
from acstor.repository.images import image_index
from acstor.repository.images.image_index import (
    CHANGES_MAX,
    INDEX_REF,
    INDEX_VERSION,
    OPEN_MAX,
    ImageIndex,
    ImageIndexWriter,
)
from tests.unit.repository.images import disk, image_id, open_repository, register

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden/image-index-v1.json"


def image(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def changed(index: ImageIndex, generation: int) -> set[str]:
    """Return the images that changed since, where that is known."""
    found = index.changed_since(generation)
    assert found is not None
    return set(found)


def read(origin: MemoryOrigin | FaultyOrigin) -> ImageIndex:
    ref = origin.get_ref(INDEX_REF)
    assert ref is not None
    return ImageIndex.parse(ref.content)


def test_golden_file() -> None:
    content = GOLDEN.read_bytes()
    index = ImageIndex.parse(content)
    assert INDEX_VERSION == 1
    assert index.encode() == content, "bump INDEX_VERSION"
    assert changed(index, 6) == {"75d745ee-6122-4977-8a4e-8b187136749e"}
    assert changed(index, 4) == {image_id for _, image_id in index.changes}
    assert index.changed_since(3) is None
    assert index.changed_since(8) is None


def test_golden_file_with_a_statement() -> None:
    """Programs of releases before ignore the field, and lose it when they write."""
    content = GOLDEN.with_name("image-index-v1-stated.json").read_bytes()
    index = ImageIndex.parse(content)
    assert index.encode() == content, "bump INDEX_VERSION"
    assert index.statement == GOLDEN.with_name("index-statement-v1.json").read_text()
    bare = ImageIndex.parse(GOLDEN.read_bytes())
    assert index == dataclasses.replace(bare, statement=index.statement)
    assert index.closed("00112233445566aa", image(3)).statement == index.statement
    assert index.opened("11", image(3)).statement == index.statement


@pytest.mark.parametrize("statement", [7, None, ["a"], "a" * 5000])
def test_what_can_be_no_statement_is_none(statement: object) -> None:
    fields = json.loads(GOLDEN.read_bytes()) | {"statement": statement}
    assert ImageIndex.parse(json.dumps(fields).encode()).statement is None


def test_longest_index_can_be_read_again() -> None:
    index = ImageIndex.new()
    for number in range(CHANGES_MAX):
        index = index.closed("", image(number))
    for number in range(OPEN_MAX):
        index = index.opened(f"{number:016x}", image(number))
    assert ImageIndex.parse(index.encode()) == index
    assert len(index.encode()) <= image_index.SIZE_MAX <= REF_SIZE_MAX
    with pytest.raises(exception.ExhaustedError, match="under way"):
        index.opened("one more", image(0))


def test_changes_that_are_forgotten_are_all_that_may_have_changed() -> None:
    index = ImageIndex.new()
    for number in range(CHANGES_MAX + 3):
        index = index.closed("", image(number))
    assert index.changed_since(2) is None
    assert changed(index, 3) == {image(number) for number in range(3, CHANGES_MAX + 3)}


def test_image_that_changes_often_forgets_no_other() -> None:
    index = ImageIndex.new().closed("", image(1))
    for _ in range(2 * CHANGES_MAX):
        index = index.closed("", image(2))
    assert changed(index, 0) == {image(1), image(2)}


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1"}, {"id": ""}, {"id": 7}, {"generation": -1}, {"generation": 6},
        {"forgotten": 6}, {"changes": [[6]]}, {"changes": [[7, image(1)], [6, image(2)]]},
        {"changes": [[6, "../etc"]]}, {"open": []}, {"open": {"nonce": "no uuid"}},
        {"open": {f"{number}": image(1) for number in range(OPEN_MAX + 1)}},
    ],
)  # fmt: skip
def test_malformed_index_is_refused(change: dict[str, object]) -> None:
    fields = json.loads(GOLDEN.read_bytes()) | change
    with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
        ImageIndex.parse(json.dumps(fields).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"7", b" " * (2 << 20)])
def test_nonsense_is_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        ImageIndex.parse(content)


def test_image_is_open_while_it_is_changed_and_noted_after_it() -> None:
    origin = MemoryOrigin()
    with ImageIndexWriter(origin, is_kept=True).changing(image(1)):
        during = read(origin)
    after = read(origin)
    assert set(during.open.values()) == {image(1)}
    assert (after.open, after.changes) == ({}, ((during.generation + 1, image(1)),))


def test_doorbell_is_rung_when_a_change_is_complete() -> None:
    origin = MemoryOrigin()
    heard: list[int] = []
    ImageIndexWriter(origin, is_kept=True).ensure()
    origin.doorbell().listen(lambda: heard.append(read(origin).generation))
    heard.clear()
    before = read(origin).generation
    with ImageIndexWriter(origin, is_kept=True).changing(image(1)):
        assert heard == []
    assert heard == [before + 1]
    with (
        pytest.raises(exception.UnavailableError),
        ImageIndexWriter(origin, is_kept=True).changing(image(1)),
    ):
        raise exception.UnavailableError("the answer was lost")
    assert heard == [before + 1, before + 2]


def test_change_that_failed_is_noted_too() -> None:
    origin = MemoryOrigin()
    with (
        pytest.raises(exception.UnavailableError),
        ImageIndexWriter(origin, is_kept=True).changing(image(1)),
    ):
        raise exception.UnavailableError("the answer was lost")
    assert changed(read(origin), 0) == {image(1)}


def test_nothing_is_changed_where_it_cannot_be_noted() -> None:
    fault = Fault(Operation.SWAP_REF, Effect.ERROR)
    origin = FaultyOrigin(MemoryOrigin(), [fault])
    changed = []
    with (
        pytest.raises(exception.UnavailableError, match=INDEX_REF),
        ImageIndexWriter(origin, is_kept=True).changing(image(1)),
    ):
        changed.append(1)
    assert not changed


def test_writers_beside_one_another_lose_no_change() -> None:
    origin = MemoryOrigin()
    begin = threading.Barrier(4)

    def write(number: int) -> None:
        begin.wait()
        for step in range(5):
            with ImageIndexWriter(origin, is_kept=True).changing(image(10 * number + step)):
                pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {image(10 * number + step) for number in range(4) for step in range(5)}
    assert changed(read(origin), 0) == expected
    assert read(origin).open == {}


def test_registering_and_removing_are_noted() -> None:
    origin = MemoryOrigin()
    repository = open_repository(origin)
    register(repository, 0, disk(1))
    first = read(origin)
    assert changed(first, 0) == {image_id(0)}
    repository.remove_image(image_id(0))
    assert changed(read(origin), first.generation) == {image_id(0)}


def test_repository_of_an_older_version_gets_no_index() -> None:
    origin = MemoryOrigin()
    with ImageIndexWriter(origin, is_kept=False).changing(image(1)):
        pass
    assert origin.get_ref(INDEX_REF) is None


def test_change_that_its_writer_left_is_closed_by_the_registrar() -> None:
    origin = MemoryOrigin()
    writer = ImageIndexWriter(origin, is_kept=True)
    killed = writer.changing(image(1))
    killed.__enter__()
    now = [0.0]
    upkeep = IndexUpkeep(writer, lambda: now[0])
    assert upkeep.keep() == 0
    now[0] += LEFT_AFTER - 1
    with writer.changing(image(2)):
        assert upkeep.keep() == 0
        now[0] += 1
        assert upkeep.keep() == 1
        assert set(read(origin).open.values()) == {image(2)}
    # It was only slow: it notes its change all the same.
    before = read(origin).generation
    killed.__exit__(None, None, None)
    assert changed(read(origin), before) == {image(1)}


@pytest.mark.parametrize("content", [b"{}", b"nonsense"])
def test_registrar_begins_a_malformed_index_anew(content: bytes) -> None:
    origin = MemoryOrigin()
    origin.swap_ref(INDEX_REF, None, content)
    IndexUpkeep(ImageIndexWriter(origin, is_kept=True)).keep()
    assert read(origin).generation == 1


def test_newer_index_is_left_alone() -> None:
    origin = MemoryOrigin()
    content = json.dumps(json.loads(GOLDEN.read_bytes()) | {"version": 2}).encode()
    origin.swap_ref(INDEX_REF, None, content)
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        IndexUpkeep(ImageIndexWriter(origin, is_kept=True)).keep()
    ref = origin.get_ref(INDEX_REF)
    assert ref is not None
    assert ref.content == content
