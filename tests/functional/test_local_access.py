"""Access of local users to images and volumes of others: real users, clients and data planes."""

import os
import pathlib
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import (
    TOOL_TIMEOUT,
    Volumes,
    call,
    content,
    open_volume,
    qemu_io,
    state,
)
from testbed.fixtures.hosts import MIB, Cloud, Host, cloud_in

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

READERS = 4242
"""Number of the group of the images; no group of this machine need have it."""
ATTRIBUTES_KEPT = 60
"""Seconds for which the kernel keeps modes of files."""


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    with cloud_in(tmp_path) as cloud:
        yield cloud


# Images


def reads_as(host: Host, name: str, *groups: str) -> bool:
    """Return whether somebody who is nobody, in no group but ``groups``, reads an image.

    Past the directories above the mount, which in a test are their owner's.
    """
    directory = os.open(host.mount, os.O_PATH | os.O_DIRECTORY)
    try:
        user = ["setpriv", "--reuid=65534", "--regid=65534", *groups]
        done = subprocess.run(
            [*user, "head", "-c", "512", f"/proc/self/fd/{directory}/{name}"],
            pass_fds=(directory,), capture_output=True, timeout=TOOL_TIMEOUT, check=False,
        )  # fmt: skip
    finally:
        os.close(directory)
    return done.returncode == 0 and len(done.stdout) == 512


def test_images_are_read_by_their_group_only(cloud: Cloud) -> None:
    host = cloud.add_host(dataplane={"image_group": READERS})
    image = cloud.register(2 * MIB)
    cloud.wait_ready(image)
    name = host.file(image).name
    assert reads_as(host, name, f"--groups={READERS}")
    assert not reads_as(host, name, "--clear-groups")
    assert not reads_as(host, name, f"--groups={READERS + 1}")
    assert host.file(image).read_bytes() == image.content, "root reads"
    assert "may read all images" not in host.log()


def test_images_are_closed_under_a_mount_that_is_taken_over(cloud: Cloud) -> None:
    """An upgrade: the guests of before go on, and strangers are kept out within a minute."""
    host = cloud.add_host(dataplane={"image_group": ""})
    image = cloud.register(2 * MIB)
    cloud.wait_ready(image)
    name = host.file(image).name
    assert reads_as(host, name, "--clear-groups")
    # What the data plane logs reaches the file by a thread of its own.
    wait_for("it is told", lambda: "may read all images" in host.log_path.read_text())
    with host.file(image).open("rb") as guest:
        text = host.config.read_text()
        assert "image_group = \n" in text
        host.config.write_text(text.replace("image_group = \n", f"image_group = {READERS}\n"))
        killed = wait_for("a data plane", host.dataplane_pid)
        host.kill_dataplane()
        host.wait_restarted(killed)
        wait_for(
            "strangers are kept out",
            lambda: not reads_as(host, name, "--clear-groups"),
            ATTRIBUTES_KEPT + 30,
        )
        assert reads_as(host, name, f"--groups={READERS}")
        assert guest.read() == image.content


# Volumes


def nbdinfo(opened: dict[str, Any], name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Ask for an export of a name on the socket of a volume."""
    uri = f"nbd+unix:///{urllib.parse.quote(name)}?socket={opened['socket']}"
    return subprocess.run(
        ["nbdinfo", *options, uri],
        capture_output=True, text=True, timeout=TOOL_TIMEOUT, check=False,
    )  # fmt: skip


def test_volume_is_reached_by_its_token_only(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    """Knowledge that is found in one guest's process opens no volume of another."""
    host, control = cloud.add_host(agent=False), Volumes(cloud)
    volumes = [control.create(MIB, host) for _ in range(2)]
    own, other = (open_volume(host, volume) for volume in volumes)
    assert own["export"] != other["export"]
    assert own["socket"] != other["socket"]
    for opened in (own, other):
        assert volumes[0] not in opened["socket"]
        assert volumes[1] not in opened["socket"]
    assert qemu_io(own, "write -P 1 0 64k").returncode == 0

    listed = nbdinfo(other, "", "--list")
    assert volumes[1] not in listed.stdout
    assert other["export"] not in listed.stdout + listed.stderr
    wrong = ["", volumes[1], own["export"], other["export"][:-1], "disk"]
    begun = time.monotonic()
    for name in wrong:
        assert nbdinfo(other, name).returncode != 0, name
        refused = qemu_io({**other, "export": name}, "read 0 512")
        assert refused.returncode != 0, name
    assert host.metric("acstor_nbd_names_refused", volume=volumes[1]) >= len(wrong)
    assert host.metric("acstor_nbd_names_refused", volume=volumes[0]) == 0
    told = "NBD clients named no export that is served"
    # What the data plane logs reaches the file by a thread of its own.
    wait_for("it is told", lambda: told in host.log_path.read_text())
    said = host.log_path.read_text()
    assert said.count(told) <= 1 + (time.monotonic() - begun) / 60, "once a minute"
    assert own["export"] not in said
    assert other["export"] not in said

    assert nbdinfo(other, other["export"], "--size").stdout.strip() == str(MIB)
    assert content(other, tmp_path / "other") == bytes(MIB)
    assert content(own, tmp_path / "own")[: 64 << 10] == b"\1" * (64 << 10)


def test_token_lasts_as_long_as_the_attachment(cloud: Cloud, tmp_path: pathlib.Path) -> None:
    host, control = cloud.add_host(agent=False), Volumes(cloud)
    volume = control.create(MIB, host)
    opened = open_volume(host, volume)
    assert qemu_io(opened, "write -P 7 0 4k", "flush").returncode == 0
    killed = wait_for("a data plane", host.dataplane_pid)
    host.kill_dataplane()
    host.wait_restarted(killed)
    # QEMU connects again by what it knows, in the backlog of the socket if need be.
    assert content(opened, tmp_path / "killed")[:4096] == b"\7" * 4096
    host.vanish()
    host.start_dataplane()
    wait_for("the volume is served", lambda: state(host, volume) == "serving")
    assert open_volume(host, volume) == opened, "a guest that libvirt starts again has it so"
    assert content(opened, tmp_path / "vanished")[:4096] == b"\7" * 4096

    call(host, "close", volume, force=False)
    again = open_volume(host, volume)
    assert again["export"] != opened["export"]
    assert not pathlib.Path(opened["socket"]).exists()
    assert nbdinfo(again, opened["export"]).returncode != 0
    assert content(again, tmp_path / "again")[:4096] == b"\7" * 4096


def test_volume_that_a_former_release_opened_is_reached_until_it_is_closed(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    host, control = cloud.add_host(agent=False), Volumes(cloud)
    volume = control.create(MIB, host)
    opened = open_volume(host, volume)
    assert qemu_io(opened, "write -P 9 0 4k", "flush").returncode == 0
    host.vanish()
    # As that release leaves it.
    (host.path / "volumes" / "attachments" / f"{volume}.json").unlink()
    socket = pathlib.Path(opened["socket"])
    socket.unlink()
    host.start_dataplane()
    wait_for("the volume is served", lambda: state(host, volume) == "serving")
    former = {**opened, "export": volume, "socket": str(socket.with_name(f"{volume}.sock"))}
    assert open_volume(host, volume) == former
    assert content(former, tmp_path / "former")[:4096] == b"\11" * 4096
    assert nbdinfo(former, "").returncode != 0, "no more than its name"
    call(host, "close", volume, force=False)
    assert volume not in open_volume(host, volume)["export"]
