"""Sets of chunks against plain ones, and what is none."""

import base64
import pathlib
import tracemalloc
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acstor import exception
from acstor.control import bitmap
from acstor.control.chunk_set import (
    BITMAP_CHUNKS_MAX,
    CHUNK_COUNT_MAX,
    SPAN_CHUNKS,
    SPANS_MAX,
    SPANS_VERSION,
    ChunkSet,
    len_max,
)

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "chunk-spans-v1.bin"
LARGE = CHUNK_COUNT_MAX
SMALL = 1000
RECORD = 4 + SPAN_CHUNKS // 8

counts = st.sampled_from([1, 11, SMALL, SPAN_CHUNKS, 40_000, BITMAP_CHUNKS_MAX + 1, LARGE])


@st.composite
def sets_of_a_disk(draw: st.DrawFn) -> tuple[int, set[int], set[int]]:
    count = draw(counts)
    near = st.integers(0, min(count, 3 * SPAN_CHUNKS) - 1)
    some = st.sets(st.one_of(near, st.integers(0, count - 1)), max_size=40)
    return count, draw(some), draw(some)


def test_form_by_span_requires_new_version() -> None:
    assert SPANS_VERSION == 1
    golden = GOLDEN.read_bytes()
    found = ChunkSet.from_bytes(golden, LARGE)
    assert set(found) == {0, 1, 9, 4096, (1 << 29) + 5, LARGE - 1}
    assert found.to_bytes() == golden


@given(sets_of_a_disk())
@example((LARGE, set(), {LARGE - 1}))
def test_sets_are_as_plain_ones(case: tuple[int, set[int], set[int]]) -> None:
    count, plain, other_plain = case
    one, other = ChunkSet.of(plain, count), ChunkSet.of(other_plain, count)
    assert list(one) == sorted(plain)
    assert (len(one), bool(one)) == (len(plain), bool(plain))
    for found, expected in (
        (one | other, plain | other_plain),
        (one & other, plain & other_plain),
        (one - other, plain - other_plain),
    ):
        assert found == ChunkSet.of(expected, count)
        assert ChunkSet.from_bytes(found.to_bytes(), count) == found
        assert ChunkSet.decode(found.encode(), count) == found


def test_disk_that_has_a_bitmap_keeps_it() -> None:
    raw = ChunkSet.of({0, 9}, 11).to_bytes()
    assert raw == b"\x01\x02"
    assert len(ChunkSet.of({0}, BITMAP_CHUNKS_MAX).to_bytes()) == BITMAP_CHUNKS_MAX // 8
    assert len(ChunkSet.of({0}, BITMAP_CHUNKS_MAX + 1).to_bytes()) == 16 + RECORD


def test_union_of_too_many_spans_keeps_what_was_there() -> None:
    known = ChunkSet.of((number * SPAN_CHUNKS for number in range(1, SPANS_MAX)), LARGE)
    fresh = ChunkSet.of({0, SPAN_CHUNKS + 1, LARGE - 1}, LARGE)
    merged = known | fresh
    assert len(merged.spans) == SPANS_MAX
    assert set(merged) == set(known) | {0, SPAN_CHUNKS + 1}
    assert len(merged.to_bytes()) == len_max(LARGE)
    assert set(merged | fresh) == set(merged)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "%",
        base64.b64encode(b"no zlib").decode(),
        bitmap.encode(bytes(1)),
        bitmap.encode(bytes(3)),
        bitmap.encode(bytes(1 << 24)),
        bitmap.encode(b"\0\x08"),
        base64.b64encode(zlib.compress(bytes(2))[:-1]).decode(),
        base64.b64encode(zlib.compress(bytes(2)) + b"more").decode(),
    ],
)
def test_what_is_no_bitmap_of_this_many_chunks_is_refused(text: str) -> None:
    with pytest.raises(exception.CorruptError, match="chunks"):
        ChunkSet.decode(text, 11)


def edited(at: int, byte: int) -> bytes:
    content = bytearray(GOLDEN.read_bytes())
    content[at] = byte
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes"),
        (bytes(RECORD), "begin"),
        (edited(8, 2), "version 2"),
        (edited(12, 5), "5 spans"),
        (edited(15, 255), "spans in"),
        (edited(16, 1), "order"),
        (edited(16 + RECORD + 4, 0), "empty"),
        (edited(16 + 3 * RECORD + 2, 255), "past the last"),
        (GOLDEN.read_bytes() + b"\0", "4 spans"),
        (GOLDEN.read_bytes()[:-1], "4 spans"),
    ],
)
def test_what_is_no_set_by_span_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(exception.CorruptError, match=reason):
        ChunkSet.from_bytes(content, LARGE)


@given(st.binary(max_size=2 * RECORD), st.booleans())
def test_any_bytes_are_a_set_or_refused(tail: bytes, is_headed: bool) -> None:
    count = len(tail) // RECORD
    header = b"ACSTSPAN" + SPANS_VERSION.to_bytes(4, "little") + count.to_bytes(4, "little")
    content = header + tail[: count * RECORD] if is_headed else tail
    try:
        found = ChunkSet.from_bytes(content, LARGE)
    except exception.CorruptError:
        return
    assert found.to_bytes() == content


def test_text_of_a_hostile_host_costs_no_memory_by_the_size_of_the_disk() -> None:
    bomb = bitmap.encode(bytes(LARGE // 8))
    tracemalloc.start()
    with pytest.raises(exception.CorruptError):
        ChunkSet.decode(bomb, LARGE)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3 * len_max(LARGE)
