"""A guest that boots from an image that was split, and mounts by its fstab."""

import hashlib
import pathlib
import shutil
import subprocess

import pytest

from acstor.repository.progress import Progress
from acstor.splitting import splitting, table
from testbed import processes
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.split_images import ROOT_UUID, debugfs, make_image, make_root, run
from testbed.guest.build import build_guest
from testbed.guest.recipe import GuestRecipe
from testbed.run_directory import DEFAULT_ROOT

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

BOOT_TIMEOUT_S = 200.0
MEMORY_MIB = 192
KERNEL_LINE = f"root=UUID={ROOT_UUID} ro console=ttyS0 quiet nokaslr mitigations=off"
PATHS = ("/home=write-back@600", "/var/cache=none", "/var/cache/apt/archives=write-through")
INIT = """\
#!/bin/busybox sh
export PATH=/usr/sbin:/bin
/bin/busybox mount -o remount,rw /
/bin/busybox --install -s /bin
mount -a && echo "all mounted"
grep -E ' (/|/home|/var/.*) ext' /proc/mounts
for path in /var/cache/large /var/cache/apt/archives/one.deb; do sha256sum $path; done
echo written by the guest >/home/user/written && sync
echo "split guest done"
poweroff -f
"""


def test_guest_mounts_what_was_split(tmp_path: pathlib.Path) -> None:
    guest = build_guest(GuestRecipe(), DEFAULT_ROOT / "guests")
    root = make_root(tmp_path)
    for name in ("bin", "sbin", "dev", "proc", "sys", "run"):
        (root / name).mkdir()
    shutil.copyfile(processes.require("busybox"), root / "bin/busybox")
    (root / "sbin/init").write_text(INIT)
    for name in ("bin/busybox", "sbin/init"):
        (root / name).chmod(0o755)
    image, output = make_image(tmp_path, root=root), tmp_path / "out.qcow2"
    rules = table.combine(map(table.parse_option, PATHS))
    request = splitting.Request(str(image.path), "raw", str(output), "qcow2", rules)
    plan = splitting.split(request, Progress())

    said = boot(guest.kernel, guest.initrd, output, tmp_path / "console")
    assert "all mounted" in said
    mounts = [line.split()[:3] for line in said.splitlines() if " ext" in line and " rw" in line]
    assert [point for _, point, _ in mounts] == ["/", *(one.rule.path for one in plan.partitions)]
    assert len({device for device, _, _ in mounts}) == 4
    for path in ("var/cache/large", "var/cache/apt/archives/one.deb"):
        digest = hashlib.sha256((root / path).read_bytes()).hexdigest()
        assert f"{digest}  /{path}" in said
    raw = tmp_path / "raw"
    run("qemu-img", "convert", "-O", "raw", str(output), str(raw))
    home = plan.partitions[0].start
    assert debugfs(raw, home, "cat /user/written") == "written by the guest\n"
    assert debugfs(raw, image.root_start, "ls -p /home").count("\n/") <= 2


def boot(
    kernel: pathlib.Path, initrd: pathlib.Path, disk: pathlib.Path, console: pathlib.Path
) -> str:
    """Boot from a disk until the guest has done its work; return what it said."""
    console.touch()
    command = [
        processes.require("qemu-system-x86_64"), "-accel", "tcg", "-m", str(MEMORY_MIB),
        "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}",
        "-kernel", str(kernel), "-initrd", str(initrd), "-append", KERNEL_LINE,
        "-drive", f"file={disk},format=qcow2,if=virtio",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as machine:
        try:
            wait_for("the guest has powered off", lambda: _has_ended(machine), BOOT_TIMEOUT_S)
        finally:
            machine.kill()
    said = console.read_text(errors="replace")
    assert "split guest done" in said
    return said


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None
