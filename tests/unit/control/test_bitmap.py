import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.control import bitmap


@given(st.sets(st.integers(0, 999)))
def test_bitmap_survives_the_wire(chunks: set[int]) -> None:
    raw = bytearray(bitmap.bitmap_len(1000))
    for chunk in chunks:
        raw[chunk // 8] |= 1 << chunk % 8
    assert bitmap.decode(bitmap.encode(bytes(raw)), 1000) == raw


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
        bitmap.decode(text, 11)
