"""Inspection: bad images get a clear refusal, good ones do not."""

import dataclasses
import json
import pathlib
import shutil
import struct
import subprocess
from typing import Any

import pytest
from oslo_utils.imageutils import format_inspector

from acstor import exception
from acstor.repository.images import inspection
from acstor.repository.source import qemu

pytestmark = pytest.mark.skipif(not shutil.which("qemu-nbd"), reason="qemu-utils is missing")

SIZE = 1 << 20
TIMEOUT = 30.0


def qemu_img(folder: pathlib.Path, *arguments: str) -> None:
    subprocess.run(["qemu-img", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def master_boot_record(*partition_types: int) -> bytes:
    """Return a boot sector with one partition entry per type."""
    sector = bytearray(512)
    for number, kind in enumerate(partition_types):
        entry = struct.pack("<B3sB3sII", 0, b"\0\2\0", kind, b"\xff\xff\xff", 1, 100)
        sector[446 + 16 * number : 462 + 16 * number] = entry
    sector[510:512] = b"\x55\xaa"
    return bytes(sector)


def disk(head: bytes) -> bytes:
    return head + bytes(SIZE - len(head))


def iso() -> bytes:
    descriptor = b"\x01CD001\x01" + bytes(73) + struct.pack("<I", 16) + struct.pack(">I", 16)
    descriptor += bytes(128 - len(descriptor)) + struct.pack("<H", 2048) + struct.pack(">H", 2048)
    return disk(bytes(32768) + descriptor)


def inspect(path: pathlib.Path, declared: str, disk_size_max: int | None = None) -> int:
    limits = inspection.SizeLimits(disk_size_max)
    source = inspection.open_source(str(path), declared, TIMEOUT, limits)
    source.close()
    return source.size_bytes


@pytest.mark.parametrize(
    "content",
    [disk(b"plain"), disk(b""), disk(master_boot_record(0x83)), disk(master_boot_record(0xEE))],
    ids=["plain", "zeros", "MBR", "GPT"],
)
@pytest.mark.parametrize("declared", ["raw", "qcow2"])
def test_good_disk_is_accepted(tmp_path: pathlib.Path, content: bytes, declared: str) -> None:
    (tmp_path / "raw").write_bytes(content)
    qemu_img(tmp_path, "convert", "-f", "raw", "-O", "qcow2", "raw", "qcow2")
    assert inspect(tmp_path / declared, declared) == SIZE


def test_iso_is_accepted_as_iso(tmp_path: pathlib.Path) -> None:
    (tmp_path / "image").write_bytes(iso())
    assert inspect(tmp_path / "image", "iso") == SIZE
    with pytest.raises(exception.ImageRefusedError, match="its content is iso") as refusal:
        inspect(tmp_path / "image", "raw")
    assert "--disk-format iso" in refusal.value.hint


def test_iso_that_boots_from_a_stick_too_is_accepted_as_iso(tmp_path: pathlib.Path) -> None:
    """It has a partition table in front; Nova takes it for an ISO image."""
    content = bytearray(iso())
    content[:512] = master_boot_record(0xEE)
    (tmp_path / "image").write_bytes(content)
    assert inspect(tmp_path / "image", "iso") == SIZE
    with pytest.raises(exception.ImageRefusedError, match="its content is iso"):
        inspect(tmp_path / "image", "raw")


@pytest.mark.parametrize("actual", ["qcow2", "vmdk", "vdi", "vhdx", "qed", "luks"])
def test_other_content_declared_as_raw_is_refused(tmp_path: pathlib.Path, actual: str) -> None:
    (tmp_path / "raw").write_bytes(disk(b"plain"))
    if actual == "luks":
        # qemu-img calibrates its key derivation, which fails on a busy machine.
        header = b"LUKS\xba\xbe\x00\x01" + b"aes".ljust(32, b"\0") + b"xts-plain64".ljust(32, b"\0")
        (tmp_path / "image").write_bytes(header.ljust(1 << 20, b"\0"))
    else:
        qemu_img(tmp_path, "convert", "-f", "raw", "-O", actual, "raw", "image")
    with pytest.raises(exception.ImageRefusedError, match=f"its content is {actual}") as refusal:
        inspect(tmp_path / "image", "raw")
    assert refusal.value.exit_status == 3


def test_raw_declared_as_qcow2_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "image").write_bytes(disk(b"plain"))
    with pytest.raises(exception.ImageRefusedError, match="its content is raw"):
        inspect(tmp_path / "image", "qcow2")


@pytest.mark.parametrize("nested", ["qcow2", "vmdk", "vdi", "qed"])
def test_image_nested_in_qcow2_is_refused(tmp_path: pathlib.Path, nested: str) -> None:
    (tmp_path / "raw").write_bytes(disk(b"plain"))
    qemu_img(tmp_path, "convert", "-f", "raw", "-O", nested, "raw", "inner")
    qemu_img(tmp_path, "convert", "-f", "raw", "-O", "qcow2", "inner", "image")
    with pytest.raises(exception.ImageRefusedError, match=f"its content is {nested}"):
        inspect(tmp_path / "image", "qcow2")


def test_content_that_only_qemu_recognises_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "raw").write_bytes(disk(b"plain"))
    qemu_img(tmp_path, "convert", "-f", "raw", "-O", "parallels", "raw", "image")
    with pytest.raises(exception.ImageRefusedError, match="QEMU takes it for parallels"):
        inspect(tmp_path / "image", "raw")
    qemu_img(tmp_path, "convert", "-f", "raw", "-O", "qcow2", "image", "outer")
    with pytest.raises(exception.ImageRefusedError, match="QEMU takes it for parallels"):
        inspect(tmp_path / "outer", "qcow2")


def test_backing_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "base").write_bytes(disk(b"plain"))
    qemu_img(tmp_path, "create", "-f", "qcow2", "-b", "base", "-F", "raw", "image")
    with pytest.raises(exception.ImageRefusedError, match="backing"):
        inspect(tmp_path / "image", "qcow2")


def test_data_file_is_refused(tmp_path: pathlib.Path) -> None:
    qemu_img(tmp_path, "create", "-f", "qcow2", "-o", "data_file=data", "image", "1M")
    with pytest.raises(exception.ImageRefusedError, match=r"data_file|data file"):
        inspect(tmp_path / "image", "qcow2")


@pytest.mark.parametrize(
    "content",
    [
        disk(master_boot_record()),
        disk(master_boot_record(0xEE, 0x83)),
        disk(bytes(446) + b"garbage, and more." * 3 + bytes(10) + b"\x55\xaa"),
    ],
    ids=["no partition", "hybrid GPT", "garbage"],
)
def test_unsafe_partition_table_is_refused_as_nova_does(
    tmp_path: pathlib.Path, content: bytes
) -> None:
    (tmp_path / "image").write_bytes(content)
    with pytest.raises(exception.ImageRefusedError, match="unsafe"):
        inspect(tmp_path / "image", "raw")


def test_empty_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "image").write_bytes(b"")
    with pytest.raises(exception.ImageRefusedError):
        inspect(tmp_path / "image", "raw")


def test_damaged_qcow2_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "raw").write_bytes(disk(b"plain"))
    qemu_img(tmp_path, "convert", "-f", "raw", "-O", "qcow2", "raw", "image")
    content = bytearray((tmp_path / "image").read_bytes())
    content[40:48] = struct.pack(">Q", 0xFFFF_FFFF_FFFF_0000)
    (tmp_path / "image").write_bytes(content)
    with pytest.raises(exception.ImageRefusedError):
        inspect(tmp_path / "image", "qcow2")


def test_unknown_format_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "image").write_bytes(disk(b"plain"))
    with pytest.raises(exception.InvalidError, match="vmdk"):
        inspect(tmp_path / "image", "vmdk")


def test_json_file_name_in_an_image_is_not_opened(tmp_path: pathlib.Path) -> None:
    """A backing file given as a json: URL must not be followed either."""
    (tmp_path / "base").write_bytes(disk(b"plain"))
    qemu_img(tmp_path, "create", "-f", "qcow2", "-b", "base", "-F", "raw", "image")
    reference = {"driver": "file", "filename": str(tmp_path / "base")}
    qemu_img(
        tmp_path, "rebase", "-u", "-f", "qcow2", "-F", "raw",
        "-b", f"json:{json.dumps({'driver': 'raw', 'file': reference})}", "image",
    )  # fmt: skip
    with pytest.raises(exception.ImageRefusedError):
        inspect(tmp_path / "image", "qcow2")


@pytest.mark.parametrize("size", ["1T", "1P"])
def test_disk_larger_than_allowed_is_refused_by_its_header(
    tmp_path: pathlib.Path, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is small; no tool is asked about its content."""
    qemu_img(tmp_path, "create", "-f", "qcow2", "image", size)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(exception.DiskTooLargeError, match="more than disk_size_max = ") as refusal:
        inspect(tmp_path / "image", "qcow2", (1 << 40) - 1)
    assert "[registrar] disk_size_max" in refusal.value.hint


def test_disk_larger_than_manifests_have_it_is_refused_by_its_header(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the operator allows; no tool is asked about its content."""
    qemu_img(tmp_path, "create", "-f", "qcow2", "image", "1T")
    monkeypatch.setenv("PATH", "")
    limits = inspection.SizeLimits(1 << 41, (1 << 40) - 1)
    with pytest.raises(exception.DiskTooLargeError, match="that a manifest can have") as refusal:
        inspection.open_source(str(tmp_path / "image"), "qcow2", TIMEOUT, limits)
    assert "no option" in refusal.value.hint


def test_size_that_is_allowed_is_the_disks(tmp_path: pathlib.Path) -> None:
    qemu_img(tmp_path, "create", "-f", "qcow2", "image", "1T")
    assert inspect(tmp_path / "image", "qcow2", 1 << 40) == 1 << 40


def test_raw_file_larger_than_allowed_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "image").write_bytes(disk(b"plain"))
    assert inspect(tmp_path / "image", "raw", SIZE) == SIZE
    with pytest.raises(exception.DiskTooLargeError):
        inspect(tmp_path / "image", "raw", SIZE - 1)


@pytest.mark.parametrize("lie", [0, 1])
def test_size_is_looked_at_again_where_the_header_is_read_otherwise(
    tmp_path: pathlib.Path, lie: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU's answers count too: after its description, and when its server says the size."""
    qemu_img(tmp_path, "create", "-f", "qcow2", "image", str(2 * SIZE))
    monkeypatch.setattr(format_inspector.QcowInspector, "virtual_size", property(lambda self: SIZE))
    if lie:
        honest = qemu.describe

        def describe(*arguments: Any) -> qemu.ImageDescription:
            described = honest(*arguments)
            return dataclasses.replace(described, size_bytes=SIZE)

        monkeypatch.setattr(qemu, "describe", describe)
    with pytest.raises(exception.DiskTooLargeError):
        inspect(tmp_path / "image", "qcow2", SIZE)
