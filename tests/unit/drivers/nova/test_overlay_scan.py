"""Base files that overlays use: qcow2 headers, read without trusting them."""

import json
import os
import pathlib
import random
import shutil
import struct
import subprocess

import pytest

from acstor.drivers.nova.image_links import overlay_scan
from acstor.drivers.nova.image_links.base_names import base_name
from acstor.drivers.nova.image_links.qcow2_header import read_backing_names
from testbed.fixtures.nova_host import NovaHost, make_overlay
from tests.unit.drivers.nova.conftest import IMAGE, OTHER

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")


def header(
    *, version: int = 3, offset: int = 104, size: int = 5, cluster_bits: int = 16, name: bytes = b""
) -> bytes:
    head = struct.pack(">4sIQII", b"QFI\xfb", version, offset, size, cluster_bits)
    return head.ljust(104, b"\0") + name


@pytest.mark.parametrize("compat", ["0.10", "1.1"])
def test_name_that_qemu_wrote_is_read(tmp_path: pathlib.Path, compat: str) -> None:
    overlay = tmp_path / "disk"
    make_overlay(overlay, "/some/where/base")
    amend = ["qemu-img", "amend", "-f", "qcow2", "-o", f"compat={compat}", str(overlay)]
    subprocess.run(amend, check=False, timeout=30)
    assert read_backing_names(str(overlay)) == ["/some/where/base"]


def test_relative_name_is_relative_to_the_overlay(tmp_path: pathlib.Path) -> None:
    make_overlay(tmp_path / "disk", "../_base/x")
    assert read_backing_names(str(tmp_path / "disk")) == [str(tmp_path.parent / "_base/x")]


def test_json_name_is_understood(tmp_path: pathlib.Path) -> None:
    """Names that libvirt and QEMU write after block jobs are understood."""
    description = {"driver": "raw", "file": {"driver": "file", "filename": "/i/_base/x"}}
    name = b"json:" + json.dumps(description).encode()
    (tmp_path / "disk").write_bytes(header(size=len(name), name=name))
    assert read_backing_names(str(tmp_path / "disk")) == ["/i/_base/x"]
    name = b'json:{"driver":"raw","file.filename":"file:/i/_base/y"}'
    (tmp_path / "disk").write_bytes(header(size=len(name), name=name))
    assert read_backing_names(str(tmp_path / "disk")) == ["/i/_base/y"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"QFI\xfb",
        b"plain raw disk".ljust(4096, b"\0"),
        header(version=1, name=b"/base"),
        header(version=4, name=b"/base"),
        header(size=0),
        header(size=1024, name=b"/".ljust(1024, b"a")),
        header(size=0xFFFFFFFF, name=b"/base"),
        header(offset=0xFFFFFFFFFFFFFFFF, name=b"/base"),
        header(offset=8, name=b"/base"),
        header(offset=1 << 20, name=b"/base".ljust(2 << 20, b"\0")),
        header(cluster_bits=63, name=b"/base"),
        header(cluster_bits=0, name=b"/base"),
        header(size=5, name=b"/ba"),
        header(size=5, name=b"/b\0se"),
        header(size=10, name=b"json:{[[[["),
        header(size=12, name=b'json:["/x"]}'),
    ],
)
def test_damaged_header_names_nothing(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "disk").write_bytes(content)
    assert read_backing_names(str(tmp_path / "disk")) == []


def test_random_headers_are_survived(tmp_path: pathlib.Path) -> None:
    rng = random.Random(7)
    for _ in range(500):
        content = bytearray(header(name=b"/base"))
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(4, len(content))] = rng.randrange(256)
        (tmp_path / "disk").write_bytes(content)
        for name in read_backing_names(str(tmp_path / "disk")):
            assert len(name) < 2048


def test_deep_json_is_survived(tmp_path: pathlib.Path) -> None:
    name = b"json:" + b'{"file":' * 120
    (tmp_path / "disk").write_bytes(header(size=len(name), name=name))
    assert read_backing_names(str(tmp_path / "disk")) == []


def test_neither_links_nor_pipes_are_opened(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_backing_names(str(tmp_path / "pipe")) == []
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises(OSError, match="symbolic links"):
        read_backing_names(str(tmp_path / "link"))


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("64b8a1c8-51c1-4d0c-8b80-3f4d1b8ef1a1", "disk"),
        ("64b8a1c8-51c1-4d0c-8b80-3f4d1b8ef1a1_resize", "disk"),
        ("64b8a1c8-51c1-4d0c-8b80-3f4d1b8ef1a1_del", "disk"),
        ("64b8a1c8-51c1-4d0c-8b80-3f4d1b8ef1a1", "disk.rescue"),
        ("instance-0000002a", "disk"),
        ("snapshots/tmpabc", "0123.delta"),
    ],
)
def test_overlay_is_found_wherever_nova_has_it(nova: NovaHost, directory: str, name: str) -> None:
    """Hazard 6: resize, rescue, delete and live snapshot included."""
    nova.add_overlay(IMAGE, directory, name)
    found = overlay_scan.scan(nova.settings)
    assert found.is_complete
    assert found.used_names == {base_name(IMAGE)}
    assert found.overlay_count == 1


def test_overlay_of_a_regular_base_file_needs_no_link(nova: NovaHost) -> None:
    nova.base.mkdir()
    nova.link(IMAGE).write_bytes(bytes(512))
    nova.link(OTHER).symlink_to("/images/gone.raw")
    nova.add_overlay(IMAGE)
    nova.add_overlay(OTHER)
    found = overlay_scan.scan(nova.settings)
    assert found.used_names == {base_name(OTHER)}
    assert found.overlay_count == 2


@pytest.mark.parametrize(
    ("backing", "is_other"),
    [
        ("{base}/" + "a" * 64, True),
        ("{base}/" + "0" * 128, True),
        ("{base}/" + "a" * 40, False),
        ("{base}/" + "a" * 40 + "_20", False),
        ("{base}/swap_512", False),
        ("{base}/ephemeral_1_0706d66", False),
        ("/elsewhere/" + "a" * 64, False),
    ],
)
def test_base_file_by_another_digest_is_told(nova: NovaHost, backing: str, is_other: bool) -> None:
    path = backing.format(base=nova.base)
    nova.add_overlay(IMAGE)
    nova.add_overlay(IMAGE, backing=path)
    found = overlay_scan.scan(nova.settings)
    assert found.other_digest == (os.path.basename(path) if is_other else None)
    assert base_name(IMAGE) in found.used_names
    assert found.is_complete


def test_base_files_themselves_are_not_looked_into(nova: NovaHost) -> None:
    """A look at them would go through our own mount."""
    nova.base.mkdir()
    make_overlay(nova.base / "swap_1", str(nova.link(IMAGE)))
    assert overlay_scan.scan(nova.settings).used_names == frozenset()


def test_links_and_other_files_are_left_alone(nova: NovaHost, tmp_path: pathlib.Path) -> None:
    make_overlay(tmp_path / "elsewhere", str(nova.link(IMAGE)))
    instance = nova.instances / "i"
    instance.mkdir()
    (instance / "disk").symlink_to(tmp_path / "elsewhere")
    (instance / "disk.config").write_bytes(b"config drive")
    os.mkfifo(instance / "console.fifo")
    (nova.instances / "compute_nodes").write_text("{}")
    (nova.instances / "linked").symlink_to(tmp_path)
    found = overlay_scan.scan(nova.settings)
    assert found.is_complete
    assert found.used_names == frozenset()


def test_what_cannot_be_read_makes_the_scan_incomplete(
    nova: NovaHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova.add_overlay(IMAGE)

    def fail(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(overlay_scan, "read_backing_names", fail)
    found = overlay_scan.scan(nova.settings)
    assert not found.is_complete
    assert "Permission denied" in str(found.problem)


def test_absent_instances_path_is_no_proof_that_nothing_is_in_use(nova: NovaHost) -> None:
    nova.instances.rmdir()
    assert not overlay_scan.scan(nova.settings).is_complete


def test_files_that_vanish_meanwhile_are_no_problem(
    nova: NovaHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = nova.add_overlay(IMAGE)

    def vanish(path: str) -> list[str]:
        overlay.unlink(missing_ok=True)
        return read_backing_names(path)

    monkeypatch.setattr(overlay_scan, "read_backing_names", vanish)
    found = overlay_scan.scan(nova.settings)
    assert found.is_complete
    assert found.used_names == frozenset()


def test_number_of_files_is_bounded(nova: NovaHost) -> None:
    nova.add_overlay(IMAGE)
    nova.add_overlay(IMAGE)
    assert not overlay_scan.scan(nova.settings, files_max=1).is_complete
    assert overlay_scan.scan(nova.settings, files_max=2).is_complete


def test_pinned_disk_of_a_server_that_is_gone_needs_its_base(nova: NovaHost) -> None:
    """Its last state is to be captured: without the base file that cannot be read."""
    folder = pathlib.Path(nova.settings.pins_directory, "server", "pin")
    folder.mkdir(parents=True)
    make_overlay(folder / "vda", str(nova.link(IMAGE)))
    found = overlay_scan.scan(nova.settings)
    assert found.users == {base_name(IMAGE): ("server",)}
    assert found.is_complete
