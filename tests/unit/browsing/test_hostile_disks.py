"""Disks that are damaged, lie about themselves, or were another disk before."""

import binascii
import contextlib
import os
import pathlib
import struct
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.browsing.disk_files import DiskFiles
from acstor.browsing.session import Session
from testbed.doubles.readable_disk import ReadableDiskInMemory
from testbed.fixtures.file_systems import make_ext4

SECTOR = 512


@contextlib.contextmanager
def files_of(disk: bytes) -> Iterator[DiskFiles]:
    """Return the files of a disk."""
    with contextlib.closing(Session(ReadableDiskInMemory(disk), 120)) as session:
        yield DiskFiles(session)


PROTECTIVE = struct.pack("<4xB3xII", 0xEE, 1, 0xFFFFFFFF)
"""Entry of an MBR that stands before a GPT."""


def gpt(disk: bytes, header_at: int, table_at: int, first: int, last: int) -> bytes:
    """Return a disk with a table of one partition.

    :param header_at: sector of the header; so are the others.
    """
    entry = b"\x01" * 32 + struct.pack("<QQQ", first, last, 0) + bytes(72)
    head = struct.pack("<8sIIIIQQQQ", b"EFI PART", 1 << 16, 92, 0, 0, header_at, 1, 34, 100)
    head += bytes(16) + struct.pack("<QIII", table_at, 1, len(entry), binascii.crc32(entry))
    head = head[:16] + struct.pack("<I", binascii.crc32(head)) + head[20:]
    written = bytearray(disk)
    for at, content in ((header_at, head), (table_at, entry)):
        written[at * SECTOR : at * SECTOR + len(content)] = content
    return bytes(written)


def test_disk_that_is_cut_off_is_damaged_not_away(ext4_disk: bytes) -> None:
    with (
        files_of(ext4_disk[: 600 << 10]) as files,
        pytest.raises(exception.UnsupportedError, match="damaged"),
    ):
        list(files.archive(0, "/", 1 << 30))


@pytest.mark.parametrize(("first", "last"), [(34, (1 << 55) - 1), (1 << 54, 1 << 54)])
def test_partition_that_lies_about_its_place_is_listed(first: int, last: int) -> None:
    disk = bytearray(1 << 20)
    disk[446:462], disk[510:512] = PROTECTIVE, b"\x55\xaa"
    with files_of(gpt(bytes(disk), 1, 2, first, last)) as files:
        [found] = files.partitions()
    assert (found.number, found.start) == (1, first * SECTOR)
    assert not found.is_readable


def test_table_of_an_earlier_use_does_not_hide_the_one_in_use(ext4_disk: bytes) -> None:
    disk = bytearray(bytes(1 << 20) + ext4_disk + bytes(1 << 20))
    disk[446:462] = struct.pack("<4xB3xII", 0x83, 2048, len(ext4_disk) // SECTOR)
    disk[510:512] = b"\x55\xaa"
    last = len(disk) // SECTOR - 1
    with files_of(gpt(bytes(disk), last, last - 32, 4000, 5000)) as files:
        assert [one.is_readable for one in files.partitions()] == [True]


def test_directories_with_names_in_an_old_encoding_are_compared(tmp_path: pathlib.Path) -> None:
    # Each of these bytes is five of a frame: two backslashes, x, and its digits.
    part = os.fsdecode(b"\xe9" * 240)
    directory = tmp_path.joinpath("tree", part, part, part)
    directory.mkdir(parents=True)
    for number in range(256):
        (directory / f"{part}{number:03}").touch()
    with files_of(make_ext4(tmp_path / "tree", tmp_path / "image", "8M")) as files:
        assert len(list(files.walk(0, "/"))) == 256 + 3 + 1
