"""The commands of the removal guide, run as they are written, on disks as Nova makes them."""

import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest

from acstor.control.server import AdminServer, Method
from acstor.dataplane.volumes.clean_proof import CleanProof, CleanReason
from acstor.dataplane.volumes.files import VolumeFiles
from testbed.fixtures.documents import SOURCE, block
from testbed.fixtures.hosts import MIB, make_image

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="needs qemu-img")

PAGE = SOURCE / "admin" / "removal.rst"
IMAGE = "3d7a52a0-4c1e-4f0e-9d39-2f8b8b1f7a11"
VOLUME = "0b8cf0b6-1d6d-4d5a-9b6e-2f6f3a1f0c11"
PROGRAM = """#!{python}
import sys
from acstor.cli import app, dataplane, volume_aside
program = app.Application()
program.command_manager.add_command("dataplane volumes", dataplane.ListVolumes)
program.command_manager.add_command("volume aside list", volume_aside.ListAside)
sys.exit(program.run(["--config-file", "{folder}/acstor.conf", *sys.argv[1:]]))
"""


class Instance:
    """An overlay whose base file is a link, and what its guest sees."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.images = folder / "images"
        self.base = folder / "instances" / "_base"
        self.disk = folder / "instances" / "instance" / "disk"
        for path in (self.images, self.base, self.disk.parent):
            path.mkdir(parents=True)
        self.raw = self.images / f"{IMAGE}.raw"
        make_image(self.raw, 16 * MIB, 7)
        self.link = self.base / hashlib.sha1(IMAGE.encode()).hexdigest()
        self.link.symlink_to(self.raw)
        options = f"backing_file={self.link},backing_fmt=raw"
        qemu("qemu-img", "create", "-f", "qcow2", "-o", options, str(self.disk), "32M")
        for offset in random.Random(3).sample(range(0, 32 * MIB, 65536), 40):
            qemu("qemu-io", "-c", f"write -P 0x5a {offset} 4096", str(self.disk))

    def seen(self) -> str:
        """Return the digest of all that the guest sees."""
        copy = self.disk.with_suffix(".copy")
        qemu("qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(self.disk), str(copy))
        return hashlib.sha256(copy.read_bytes()).hexdigest()


def qemu(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def run_block(caption: str, **values: object) -> subprocess.CompletedProcess[str]:
    """Run a block with its example values replaced; every command must succeed."""
    text = block(PAGE, caption).text
    for name, value in values.items():
        text, count = re.subn(rf"(?m)^{name}=.*$", f"{name}={value}", text)
        assert count == 1, name
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("volumes", "aside", "closed", "is_running"),
    [
        ([], [], [], True),
        ([VOLUME], [], [], True),
        ([], [f"{VOLUME}.1"], [], True),
        ([], [], [VOLUME], True),
        ([], [], [], False),
    ],
)
def test_host_with_writes_of_volumes_is_not_cleaned_up(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    volumes: list[str],
    aside: list[str],
    closed: list[str],
    is_running: bool,
) -> None:
    """The commands of the page, with the real programs' classes, against a data plane's answers."""
    opened = [{"volume": one, "state": "serving", "error": None} for one in volumes]
    logs = [
        {"name": one, "volume": VOLUME, "why": "", "put_aside_at": None, "bytes": 1, "path": "/"}
        for one in aside
    ]
    methods: dict[str, Method] = {
        "volume.list": lambda params: opened,
        "volume.list_aside": lambda params: logs,
    }
    server = AdminServer(str(tmp_path / "admin.sock"), methods)
    if is_running:
        server.start()
    program = tmp_path / "acstor"
    program.write_text(PROGRAM.format(python=sys.executable, folder=tmp_path))
    program.chmod(0o755)
    (tmp_path / "acstor.conf").write_text(
        f"[origin]\nurl = posix://{tmp_path}\n[dataplane]\nadmin_socket = {tmp_path}/admin.sock\n"
    )
    files = VolumeFiles(str(tmp_path / "volumes"))
    for volume in closed:
        files.make(volume)
        files.keep_clean(CleanProof(volume, CleanReason.RELEASED))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    try:
        result = run_block("no volume is left", logs=tmp_path / "volumes")
    finally:
        server.stop()
    is_safe = is_running and not volumes and not aside and not closed
    assert ("no volume is left" in result.stdout) is is_safe, result.stderr
    assert is_running or "admin.sock" in result.stderr


def test_base_file_of_novas_own_takes_the_place_of_the_link(tmp_path: pathlib.Path) -> None:
    instance = Instance(tmp_path)
    before = instance.seen()
    result = run_block("base file", image=IMAGE, images=instance.images, base=instance.base)
    assert result.returncode == 0, result.stderr
    assert not instance.link.is_symlink()
    assert os.listdir(instance.base) == [instance.link.name]
    assert instance.link.stat().st_mode & 0o777 == 0o644
    shutil.rmtree(instance.images)  # nothing of ACStor is left
    assert instance.seen() == before


def test_flattened_instance_needs_no_base_file(tmp_path: pathlib.Path) -> None:
    instance = Instance(tmp_path)
    before = instance.seen()
    result = run_block("flatten", disk=instance.disk)
    assert result.returncode == 0, result.stderr
    assert "No errors were found" in result.stdout
    assert "backing file" not in result.stdout
    shutil.rmtree(instance.images)
    instance.link.unlink()
    assert instance.seen() == before


def test_running_instance_is_not_flattened(tmp_path: pathlib.Path) -> None:
    instance = Instance(tmp_path)
    before = instance.seen()
    running = subprocess.Popen(
        ["qemu-io", str(instance.disk)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("length\n")
        running.stdin.flush()
        assert "32 MiB" in running.stdout.readline()  # it has the disk open
        result = run_block("flatten", disk=instance.disk)
    finally:
        running.communicate("quit\n", timeout=60)
    assert result.returncode != 0
    assert 'Failed to get "write" lock' in result.stderr
    assert instance.seen() == before
