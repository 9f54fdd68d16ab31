"""Disks as QEMU has them: overlays at rest, and of a machine that runs and writes meanwhile.

Content is compared with what ``qemu-img convert`` makes of the same moment.
"""

import hashlib
import os
import pathlib
import random
import subprocess

import pytest

from acstor import exception
from acstor.agent.captures.sources.at_rest import open_at_rest
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.sources.nbd_disk import NbdDisk
from testbed.fixtures.qmp import Qemu

MIB = 1 << 20
SIZE = 16 * MIB
CLUSTER = 64 << 10


def run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)


def written(path: pathlib.Path, *commands: str) -> None:
    """Have qemu-io write to an image."""
    options = [option for command in commands for option in ("-c", command)]
    run("qemu-io", "-f", "qcow2", *options, str(path))


@pytest.fixture
def overlay(tmp_path: pathlib.Path) -> pathlib.Path:
    """An overlay with data, zeros and a discarded cluster of its own, on a base with data."""
    base, top = tmp_path / "base", tmp_path / "disk"
    content = bytearray(random.Random(1).randbytes(SIZE // 2)) + bytes(SIZE // 2)
    base.write_bytes(content)
    run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(top))
    written(
        top,
        f"write -P 17 {CLUSTER} {CLUSTER}",
        f"write -P 18 {10 * CLUSTER + 512} 512",
        f"write -z {3 * CLUSTER} {2 * CLUSTER}",
        f"discard {6 * CLUSTER} {CLUSTER}",
        f"write -P 19 {SIZE - CLUSTER} {CLUSTER}",
    )
    return top


def content_of(source: DiskSource) -> bytes:
    content = bytearray(source.size_bytes)
    for offset in range(0, len(content), MIB):
        source.read_into(offset, memoryview(content)[offset : offset + MIB])
    return bytes(content)


def converted(path: pathlib.Path) -> str:
    """Return the digest of a disk, as qemu-img reads it."""
    target = path.with_name("converted")
    run("qemu-img", "convert", "-U", "-f", "qcow2", "-O", "raw", str(path), str(target))
    return hashlib.sha256(target.read_bytes()).hexdigest()


def check_extents(source: DiskSource, base: bytes) -> set[int]:
    """Check that extents cover the disk and tell the truth; return the disk's own clusters."""
    own: set[int] = set()
    content, position = content_of(source), 0
    for extent in source.extents():
        assert extent.start == position < extent.end
        position = extent.end
        piece = content[extent.start : extent.end]
        if extent.is_zero:
            assert not any(piece)
        if not extent.is_own:
            below = base[extent.start : extent.end].ljust(len(piece), b"\0")
            assert piece == below
        else:
            own.update(range(extent.start // CLUSTER, -(-extent.end // CLUSTER)))
    assert position == source.size_bytes
    return own


def test_overlay_at_rest_is_read_with_its_layers(overlay: pathlib.Path) -> None:
    base = overlay.with_name("base").read_bytes()
    source = open_at_rest("vda", str(overlay), "qcow2")
    try:
        assert source.size_bytes == SIZE
        assert hashlib.sha256(content_of(source)).hexdigest() == converted(overlay)
        own = check_extents(source, base)
        assert own == {1, 3, 4, 6, 10, SIZE // CLUSTER - 1}
        source.check_unchanged()
        written(overlay, "write -P 1 0 512")
        with pytest.raises(exception.ConflictError, match="written to"):
            source.check_unchanged()
    finally:
        source.close()


def test_guest_may_start_while_its_disk_is_read(overlay: pathlib.Path) -> None:
    source = open_at_rest("vda", str(overlay), "qcow2")
    try:
        # QEMU would refuse to open an image that somebody has locked.
        written(overlay, "write -P 2 0 512")
    finally:
        source.close()


def test_unlinked_disk_is_read_by_its_pin(overlay: pathlib.Path) -> None:
    wanted = converted(overlay)
    pin = overlay.with_name("pin")
    os.link(overlay, pin)
    overlay.unlink()
    source = open_at_rest("vda", str(pin), "qcow2")
    try:
        assert hashlib.sha256(content_of(source)).hexdigest() == wanted
    finally:
        source.close()


def test_raw_disk_is_read_with_its_holes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.truncate(SIZE)
        file.seek(4 * MIB)
        file.write(b"content")
    source = open_at_rest("vda", str(path), "raw")
    try:
        assert content_of(source) == path.read_bytes()
        assert check_extents(source, b"") != set()
        assert source.check_unchanged() is None
        with path.open("r+b") as file:
            file.write(b"other")
        os.utime(path, ns=(1, 1))
        with pytest.raises(exception.ConflictError):
            source.check_unchanged()
    finally:
        source.close()


def test_what_is_no_disk_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.NotFoundError):
        open_at_rest("vda", str(tmp_path / "none"), "raw")
    with pytest.raises(exception.UnsupportedError, match="vmdk"):
        open_at_rest("vda", str(tmp_path / "none"), "vmdk")
    odd = tmp_path / "odd"
    odd.write_bytes(b"x")
    with pytest.raises(exception.UnsupportedError, match="512"):
        open_at_rest("vda", str(odd), "raw")
    with pytest.raises(exception.UnavailableError):
        open_at_rest("vda", str(odd), "qcow2")
    (tmp_path / "link").symlink_to(odd)
    with pytest.raises(exception.UnavailableError):
        open_at_rest("vda", str(tmp_path / "link"), "raw")


class Machine:
    """A machine with an overlay as its disk, backed up as libvirt does it."""

    def __init__(self, folder: pathlib.Path, overlay: pathlib.Path) -> None:
        self.folder = folder
        self.socket = str(folder / "nbd.sock")
        self.qemu = Qemu(folder)
        self.ask(
            "blockdev-add",
            {
                "driver": "qcow2",
                "node-name": "disk",
                "discard": "unmap",
                "file": {"driver": "file", "filename": str(overlay), "discard": "unmap"},
            },
        )

    def ask(self, command: str, arguments: dict[str, object] | None = None) -> object:
        answer = self.qemu.execute({"execute": command, "arguments": arguments or {}})
        assert "return" in answer, answer
        return answer["return"]

    def io(self, command: str) -> None:
        """Have the machine's disk written to, as its guest would."""
        node = "top" if "top" in self.nodes else "disk"
        answer = self.ask("human-monitor-command", {"command-line": f'qemu-io {node} "{command}"'})
        assert "error" not in str(answer).lower(), answer

    @property
    def nodes(self) -> set[str]:
        found = self.ask("query-named-block-nodes", {"flat": True})
        assert isinstance(found, list)
        return {str(node["node-name"]) for node in found}

    def begin_backup(self) -> None:
        """Do what libvirt does for a backup in pull mode (qemu_backup.c), and add the layers."""
        scratch = self.folder / "scratch"
        run("qemu-img", "create", "-q", "-f", "qcow2", str(scratch), str(SIZE))
        self.ask(
            "blockdev-add",
            {
                "driver": "qcow2",
                "node-name": "scratch",
                "backing": "disk",
                "file": {"driver": "file", "filename": str(scratch)},
            },
        )
        server = {"addr": {"type": "unix", "data": {"path": self.socket}}, "max-connections": 8}
        self.ask("nbd-server-start", server)
        backup = {"device": "disk", "target": "scratch", "sync": "none", "job-id": "backup"}
        self.ask("transaction", {"actions": [{"type": "blockdev-backup", "data": backup}]})
        self.ask(
            "block-export-add",
            {
                "id": "acstor-vda",
                "type": "nbd",
                "node-name": "scratch",
                "name": "acstor-vda",
                "writable": False,
                "allocation-depth": True,
            },
        )

    def open(self) -> NbdDisk:
        return NbdDisk("vda", self.socket, "acstor-vda", own_depth=2, tells_layers=True)


def test_running_disk_is_of_the_moment_of_the_backup(
    overlay: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Stamps are written and discarded before, between and after the looks at the map."""
    machine = Machine(tmp_path, overlay)
    try:
        # Not flushed: the tables of the image are in QEMU's memory only.
        machine.io(f"write -P 33 {20 * CLUSTER} {CLUSTER}")
        machine.io(f"write -P 34 {40 * CLUSTER + 4096} 4096")
        machine.io(f"discard {CLUSTER} {CLUSTER}")
        machine.begin_backup()
        wanted = bytearray(overlay.with_name("base").read_bytes())
        for pattern, start, length in (
            (18, 10 * CLUSTER + 512, 512),
            (0, 3 * CLUSTER, 2 * CLUSTER),
            (0, 6 * CLUSTER, CLUSTER),
            (19, SIZE - CLUSTER, CLUSTER),
            (33, 20 * CLUSTER, CLUSTER),
            (34, 40 * CLUSTER + 4096, 4096),
            (0, CLUSTER, CLUSTER),
        ):
            wanted[start : start + length] = bytes([pattern]) * length
        # Written, and discarded, after the moment: none of it may be seen.
        for number in (20, 10, 3, 50, 60, SIZE // CLUSTER - 1):
            machine.io(f"write -P 99 {number * CLUSTER} {CLUSTER}")
        for number in (40, 20, 70):
            machine.io(f"discard {number * CLUSTER} {CLUSTER}")
        source = machine.open()
        base = overlay.with_name("base").read_bytes()
        own = check_extents(source, base)
        assert own >= {1, 3, 4, 6, 10, 20, 40, SIZE // CLUSTER - 1}
        machine.io(f"write -P 98 {80 * CLUSTER} {CLUSTER}")
        machine.io(f"discard {10 * CLUSTER} {CLUSTER}")
        assert content_of(source) == bytes(wanted)
        assert check_extents(source, base) >= own
        source.close()
    finally:
        machine.qemu.stop()


@pytest.mark.parametrize("seed", range(4))
def test_no_stamp_of_later_is_seen_and_none_of_before_is_missed(
    overlay: pathlib.Path, tmp_path: pathlib.Path, seed: int
) -> None:
    """A writer stamps and discards at random places all the while, as the disk is read."""
    choice = random.Random(seed)
    machine = Machine(tmp_path, overlay)
    clusters = SIZE // CLUSTER
    try:
        base = overlay.with_name("base").read_bytes()
        reading = hashlib.sha256()

        def disturb(count: int, stamp: int) -> None:
            for _ in range(count):
                start = choice.randrange(clusters * 16) * (CLUSTER // 16)
                length = min(choice.choice((4096, 8192, CLUSTER, 2 * CLUSTER)), SIZE - start)
                verb = choice.choice((f"write -P {stamp}", f"write -P {stamp}", "discard"))
                machine.io(f"{verb} {start} {length}")

        disturb(40, 50)
        machine.begin_backup()
        source = machine.open()
        before = content_of(source)
        content = bytearray(SIZE)
        for number in range(clusters):
            if number % 16 == 0:
                disturb(2, 200)
            start = number * CLUSTER
            source.read_into(start, memoryview(content)[start : start + CLUSTER])
            reading.update(content[start : start + CLUSTER])
        assert bytes([200]) * 512 not in bytes(content)
        assert bytes(content) == before
        own = check_extents(source, base)
        unlike = {
            number
            for number in range(clusters)
            if before[number * CLUSTER : (number + 1) * CLUSTER]
            != base[number * CLUSTER : (number + 1) * CLUSTER]
        }
        assert unlike <= own
        source.close()
    finally:
        machine.qemu.stop()
