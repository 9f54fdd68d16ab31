"""Archives that are whole, and others that were broken off."""

import io
import tarfile

import pytest

from acstorclient.archive_end import ArchiveEnd


def whole_archive() -> bytes:
    """Return an archive, most of it zeros; two blocks end it, and nothing follows as of Python."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT) as written:
        for name, size in (("zeros", 5000), ("empty", 0), ("x" * 150, 512)):
            member = tarfile.TarInfo(name)
            member.size = size
            written.addfile(member, io.BytesIO(bytes(size)))
        length = written.offset
    return sink.getvalue()[: length + 1024]


@pytest.mark.parametrize("step", [1, 511, 512, 513, 1 << 20])
def test_end_is_found_however_it_comes(step: int) -> None:
    content, end = whole_archive(), ArchiveEnd()
    for at in range(0, len(content), step):
        assert not end.is_reached
        end.take(content[at : at + step])
    assert end.is_reached


def test_archive_that_is_cut_off_anywhere_has_no_end() -> None:
    content = whole_archive()
    for length in range(0, len(content), 256):
        end = ArchiveEnd()
        end.take(content[:length])
        assert not end.is_reached, length


def test_length_as_a_binary_number_is_passed() -> None:
    head = bytearray(512)
    head[0:1], head[124:136] = b"a", b"\x80" + (1000).to_bytes(11, "big")
    end = ArchiveEnd()
    end.take(bytes(head) + bytes(1024))
    assert not end.is_reached, "that is content"
    end.take(bytes(1024))
    assert end.is_reached


def test_what_is_no_archive_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        ArchiveEnd().take(b"x" * 512)
