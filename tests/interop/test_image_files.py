"""Image files of versions, read by QEMU's tools."""

import json
import pathlib
import random
import shutil
import subprocess

import pytest

from acstor.origin import memory
from acstor.repository.reading.disk_reader import DiskReader
from acstor.repository.reading.image_files import ImageFormat, image_file, pieces
from testbed.doubles.memory_overlay import MemoryOverlay
from tests.unit.repository.images import CHUNK_SIZE, chunk, image_id, open_repository, register

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="there is no qemu-img")

MIB = 1 << 20


def qemu_img(*arguments: str) -> str:
    done = subprocess.run(
        ["qemu-img", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def saved(disk: DiskReader, path: pathlib.Path) -> pathlib.Path:
    """Write a disk as an image file, of the format that the name ends in."""
    with path.open("wb") as out:
        for piece in pieces(image_file(disk, ImageFormat(path.suffix[1:]))):
            out.write(piece)
    return path


def test_stored_disk_is_what_qemu_reads(tmp_path: pathlib.Path) -> None:
    repository = open_repository(memory.MemoryOrigin())
    numbers = random.Random(3).choices((0, 0, 1, 2, 3), k=400)
    content = b"".join(map(chunk, numbers)) + chunk(9)[:512]
    register(repository, 0, content)
    record = repository.get_image(image_id(0)).record
    manifest = repository.load_manifest(record.manifest)
    overlay = MemoryOverlay({5 * CHUNK_SIZE + 512: b"w" * 1024, 40 * CHUNK_SIZE: 60 * CHUNK_SIZE})
    disk = DiskReader(repository.origin, record.size_bytes, manifest, overlay)
    raw = saved(disk, tmp_path / "disk.raw")
    written = bytearray(content)
    written[5 * CHUNK_SIZE + 512 : 5 * CHUNK_SIZE + 1536] = b"w" * 1024
    written[40 * CHUNK_SIZE : 100 * CHUNK_SIZE] = bytes(60 * CHUNK_SIZE)
    assert raw.read_bytes() == written
    qcow2 = saved(disk, tmp_path / "disk.qcow2")
    qemu_img("check", "-f", "qcow2", str(qcow2))
    qemu_img("compare", "-f", "raw", "-F", "qcow2", str(raw), str(qcow2))


@pytest.mark.parametrize("size", [512, 65536, 3 << 30, (2 << 40) + 512])
def test_sparse_disks_of_any_size_are_sound(tmp_path: pathlib.Path, size: int) -> None:
    places = sorted({0, size // 3 // 512 * 512, size - 512})
    overlay = MemoryOverlay({place: place.to_bytes(8).ljust(512, b"!") for place in places})
    disk = DiskReader(memory.MemoryOrigin(), size, None, overlay)
    path = saved(disk, tmp_path / "disk.qcow2")
    report = json.loads(qemu_img("check", "-f", "qcow2", "--output", "json", str(path)))
    assert (report["check-errors"], report.get("leaks", 0)) == (0, 0)
    assert report["image-end-offset"] == path.stat().st_size
    about = json.loads(qemu_img("info", "-f", "qcow2", "--output", "json", str(path)))
    assert about["virtual-size"] == size
    found = json.loads(qemu_img("map", "-f", "qcow2", "--output", "json", str(path)))
    data = sum(extent["length"] for extent in found if extent["data"])
    assert data <= len(places) * 65536
    for place in places:
        read = subprocess.run(
            ["qemu-io", "-f", "qcow2", "-r", "-c", f"read -v {place} 8", str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        assert place.to_bytes(8).hex() == "".join(read.split(":")[1].split()[:8])
