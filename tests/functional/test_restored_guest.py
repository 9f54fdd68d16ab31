"""A guest boots from a repository that was restored from its backup."""

import functools
import pathlib
import subprocess

import pytest

from testbed import processes
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import BIN, Host, cloud_in
from testbed.fixtures.tiny_guest import MEMORY_MIB, build_tiny_guest, content_checks
from testbed.guest.build import GuestImage
from testbed.run_directory import DEFAULT_ROOT

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(600)]

BOOT_TIMEOUT_S = 300.0
KERNEL_LINE = "root=/dev/vda ro console=ttyS0 quiet nokaslr mitigations=off cryptomgr.notests"


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> GuestImage:
    return build_tiny_guest(DEFAULT_ROOT / "guests", tmp_path / "guest", seed=11)


@pytest.fixture
def console(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "console"
    path.touch()
    return path


def offers(host: Host, image_id: str) -> bool:
    return host.file(image_id).exists()


def copy(config: pathlib.Path, url: str, *options: str) -> None:
    command = [str(BIN / "acstor"), "--config-file", str(config), "repository", "copy", url]
    processes.run([*command, *options], timeout_s=240)


def boot(guest: GuestImage, disk: pathlib.Path, console: pathlib.Path) -> str:
    """Boot from a disk, of which only a temporary layer is written; return the digest read."""
    command = [
        processes.require("qemu-system-x86_64"), "-accel", "tcg", "-m", str(MEMORY_MIB),
        "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}",
        "-kernel", str(guest.kernel), "-initrd", str(guest.initrd), "-append", KERNEL_LINE,
        "-drive", f"file={disk},format=raw,if=virtio,snapshot=on",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as machine:
        try:
            (first, *_) = wait_for(
                "the guest has read its files",
                lambda: content_checks(console.read_text(errors="replace")),
                BOOT_TIMEOUT_S,
            )
        finally:
            machine.kill()
    return first.digest


def test_guest_boots_from_what_was_restored(
    guest: GuestImage, console: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with cloud_in(tmp_path) as cloud:
        first = cloud.add_host()
        image_id = cloud.register_file(guest.disk)
        cloud.wait_ready(image_id)
        backup = tmp_path / "backup"
        backup.mkdir()
        copy(first.config, f"posix://{backup}")
        first.stop()
        cloud.origin.rename(tmp_path / "origin.before-restore")
        cloud.origin.mkdir()
        config = tmp_path / "backup.conf"
        config.write_text(
            first.config.read_text().replace(f"posix://{cloud.origin}", f"posix://{backup}")
        )
        copy(config, f"posix://{cloud.origin}", "--restore", "--verify", "all")

        # Another one, which has nothing of the image yet.
        second = cloud.add_host()
        wait_for("the image is offered", functools.partial(offers, second, image_id))
        assert boot(guest, second.file(image_id), console) == guest.content_digest
        status = second.status()
        assert status is not None
        assert status["tiers"]["origin"]["bytes"] > 0
