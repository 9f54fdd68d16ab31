"""Orders of chunks, as both languages write them."""

import pathlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.control import rank_list
from acstor.control.chunk_set import CHUNK_COUNT_MAX
from acstor.control.rank_list import CHUNKS_MAX, ORDERS_MAX, VERSION, decode, encode

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "rank-list-v1.bin"
LAST = CHUNK_COUNT_MAX - 1
ORDERS = ((0, 1, 2, 900, 901, 5, LAST, 3), (LAST, 0, 64, 63))
GOOD = encode([(3, 4, 70)])


def test_rank_list_version_requires_update() -> None:
    assert VERSION == 1
    golden = GOLDEN.read_bytes()
    assert decode(golden, CHUNK_COUNT_MAX) == ORDERS
    assert encode(ORDERS) == golden


def test_usual_boot_takes_two_kilobytes() -> None:
    # 815 chunks in runs of five, which lie some thousand chunks apart.
    order = [start + chunk for start in range(0, 163 * 4001, 4001) for chunk in range(5)]
    assert len(encode([order])) < 2 << 10


def edited(at: int, byte: int) -> bytes:
    return GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes"),
        (edited(0, ord("x")), "begin"),
        (edited(8, 2), "version 2"),
        (edited(12, 4), "4 of them"),
        (edited(12, 2), "within one"),
        (edited(12, 0), "left over"),
        (edited(16, 0), "0 chunks"),
        (edited(16, 200), "200 chunks in 4 bytes"),
        (edited(20, 1), "chunk -1"),
        (edited(21, 1), "twice"),
        (edited(23, 0x80), "damaged"),
        (edited(23, 0), "damaged"),
        (GOOD + b"\0", "left over"),
        (GOOD[:-1], "damaged"),
        (GOOD[:16] + struct.pack("<I", CHUNKS_MAX + 1) + bytes(1 << 20), "16385 chunks"),
        (GOOD[:16] + b"\1\0\0\0" + b"\xff" * 9, "damaged"),
    ],
)
def test_what_is_no_order_of_the_disk_is_corrupt(content: bytes, reason: str) -> None:
    with pytest.raises(exception.CorruptError) as caught:
        decode(content, 71)
    assert reason in str(caught.value)


def test_chunk_past_the_last_is_corrupt() -> None:
    assert decode(GOOD, 71) == ((3, 4, 70),)
    with pytest.raises(exception.CorruptError, match="chunk 70"):
        decode(GOOD, 70)


def test_length_is_bounded() -> None:
    most = [tuple(range(LAST, LAST - 2 * CHUNKS_MAX, -2))] * ORDERS_MAX
    content = encode(most)
    assert len(content) <= rank_list.len_max()
    assert decode(content, CHUNK_COUNT_MAX) == tuple(most)


chunks = st.one_of(st.integers(0, 300), st.integers(LAST - 300, LAST))
orders = st.lists(st.lists(chunks, min_size=1, max_size=30, unique=True), max_size=ORDERS_MAX)


@given(orders)
def test_form_says_what_the_plain_orders_do(plain: list[list[int]]) -> None:
    assert decode(encode(plain), CHUNK_COUNT_MAX) == tuple(tuple(order) for order in plain)


@given(orders, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4))
def test_damage_is_corrupt_or_other_orders_of_the_disk(
    plain: list[list[int]], damage: list[tuple[int, int]]
) -> None:
    content = bytearray(encode(plain))
    for at, byte in damage:
        content[at % len(content)] = byte
    try:
        found = decode(bytes(content), CHUNK_COUNT_MAX)
    except exception.CorruptError:
        return
    assert encode(found) == content
