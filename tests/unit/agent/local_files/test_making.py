"""Local files on a disk: written, read back, finished, removed."""

import os
import pathlib
import stat
import uuid

import pytest

from acstor import exception
from acstor.agent.reconcilers.local_files.making import DiskFileMaker, NoLongerWantedError
from acstor.drivers.nova.image_links.local_directory import (
    LocalDirectory,
    file_name,
    is_whole,
    local_path,
    partial_name,
)
from testbed.doubles.local_files.local_image import (
    CHUNK_SIZE,
    LocalImage,
    MemoryReader,
    make_local_image,
)

IMAGE = make_local_image(str(uuid.UUID(int=1)), "data zero zero data data zero data")


def no_pace(size: int) -> None:
    assert size > 0


class Disk:
    """A directory of base files, and an image to read."""

    def __init__(self, path: pathlib.Path, image: LocalImage = IMAGE) -> None:
        self.base = str(path)
        self.reader = MemoryReader(image.disk)
        self.directory = LocalDirectory(self.base)
        self.maker = DiskFileMaker(self.directory, lambda _: self.reader)
        self.path = pathlib.Path(local_path(self.base, image.id))
        self.partial = self.path.with_name(partial_name(image.id))


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Disk:
    return Disk(tmp_path)


def make(disk: Disk, image: LocalImage = IMAGE) -> None:
    disk.maker.write(image.id, image.content, no_pace)
    assert disk.maker.is_right(partial_name(image.id), image.content, no_pace)
    disk.maker.finish(image.id)


@pytest.mark.parametrize(
    "chunks", ["data", "zero", "zero zero data", "data data zero", "data zero"]
)
def test_file_has_exactly_the_bytes_of_the_image(tmp_path: pathlib.Path, chunks: str) -> None:
    image = make_local_image(str(uuid.UUID(int=2)), chunks)
    disk = Disk(tmp_path, image)
    make(disk, image)
    assert disk.path.read_bytes() == image.disk
    assert is_whole(disk.base, image.id)
    assert disk.maker.is_right(file_name(image.id), image.content, no_pace)


def test_file_is_sparse_and_for_everybody_to_read(disk: Disk) -> None:
    make(disk)
    status = disk.path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o444
    assert status.st_size == len(IMAGE.disk)
    assert status.st_blocks * 512 <= 4 * CHUNK_SIZE + CHUNK_SIZE // 2
    assert os.listdir(disk.directory.path) == [file_name(IMAGE.id)]
    assert disk.reader.is_closed


def test_half_a_file_has_another_name(disk: Disk) -> None:
    disk.maker.write(IMAGE.id, IMAGE.content, no_pace)
    assert os.listdir(disk.directory.path) == [partial_name(IMAGE.id)]
    assert not is_whole(disk.base, IMAGE.id)
    assert disk.directory.images() == frozenset()


def test_wrong_bytes_are_never_written(disk: Disk) -> None:
    disk.reader.disk[4 * CHUNK_SIZE] ^= 1
    with pytest.raises(exception.CorruptError, match="manifest"):
        disk.maker.write(IMAGE.id, IMAGE.content, no_pace)
    assert not disk.path.exists()


def test_image_of_another_size_is_refused(disk: Disk) -> None:
    disk.reader.size_bytes += 512
    with pytest.raises(exception.CorruptError, match="bytes in the mount"):
        disk.maker.write(IMAGE.id, IMAGE.content, no_pace)


@pytest.mark.parametrize("chunk", range(7))
def test_each_changed_chunk_is_found(disk: Disk, chunk: int) -> None:
    """Holes as well: what is not zero any more is not the image."""
    disk.maker.write(IMAGE.id, IMAGE.content, no_pace)
    with disk.partial.open("r+b") as file:
        file.seek(chunk * CHUNK_SIZE + 100)
        file.write(b"damage")
    assert not disk.maker.is_right(partial_name(IMAGE.id), IMAGE.content, no_pace)


@pytest.mark.parametrize("size", [0, 512, len(IMAGE.disk) - 512, len(IMAGE.disk) + 512])
def test_cut_or_longer_file_is_found(disk: Disk, size: int) -> None:
    disk.maker.write(IMAGE.id, IMAGE.content, no_pace)
    os.truncate(disk.partial, size)
    assert not disk.maker.is_right(partial_name(IMAGE.id), IMAGE.content, no_pace)


def test_zeros_that_are_written_are_as_good_as_a_hole(disk: Disk) -> None:
    disk.maker.write(IMAGE.id, IMAGE.content, no_pace)
    with disk.partial.open("r+b") as file:
        file.seek(CHUNK_SIZE)
        file.write(bytes(CHUNK_SIZE + 100))
    assert disk.maker.is_right(partial_name(IMAGE.id), IMAGE.content, no_pace)


def test_work_that_is_not_wanted_any_more_ends_at_the_next_piece(disk: Disk) -> None:
    def refuse(size: int) -> None:
        raise NoLongerWantedError

    with pytest.raises(NoLongerWantedError):
        disk.maker.write(IMAGE.id, IMAGE.content, refuse)
    assert disk.reader.is_closed


def test_partial_file_of_a_killed_process_is_replaced(disk: Disk) -> None:
    disk.directory.make(None)
    disk.partial.write_bytes(b"half")
    make(disk)
    assert disk.path.read_bytes() == IMAGE.disk


def test_group_that_reads_images_alone_reads_local_files(disk: Disk) -> None:
    """The directory keeps the others out: libvirt gives files away."""
    disk.reader.group = os.getegid()
    make(disk)
    status = os.stat(disk.directory.path)
    assert stat.S_IMODE(status.st_mode) == 0o750
    assert status.st_gid == os.getegid()
    disk.reader.group = None
    make(disk)
    assert stat.S_IMODE(os.stat(disk.directory.path).st_mode) == 0o755


def test_link_in_the_place_of_the_directory_is_not_followed(
    disk: Disk, tmp_path: pathlib.Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "acstor").symlink_to(elsewhere)
    with pytest.raises(NotADirectoryError):
        disk.maker.write(IMAGE.id, IMAGE.content, no_pace)
    assert os.listdir(elsewhere) == []


def test_finished_file_is_made_young(disk: Disk) -> None:
    """Nova's image cache manager removes what is old and unused."""
    make(disk)
    os.utime(disk.path, (0, 0))
    assert disk.maker.refresh(IMAGE.id, len(IMAGE.disk))
    assert disk.path.stat().st_mtime > 1e9
    assert not disk.maker.refresh(IMAGE.id, 512)
    disk.maker.remove(file_name(IMAGE.id))
    disk.maker.remove(file_name(IMAGE.id))
    assert not disk.maker.refresh(IMAGE.id, len(IMAGE.disk))
    assert disk.maker.names() == []


def test_space_is_that_of_the_file_system(disk: Disk, tmp_path: pathlib.Path) -> None:
    space = disk.maker.space()
    assert 0 <= space.free_bytes <= space.total_bytes
    assert (
        DiskFileMaker(LocalDirectory(str(tmp_path / "none")), lambda _: disk.reader).names() == []
    )
