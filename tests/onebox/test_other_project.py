"""Harm that an ordinary user of another project can do to everybody else: none.

One who uploads images, has a server, and writes; and one who got hold of QEMU's group on a host.
"""

import contextlib
import functools
import os
import pathlib
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import openstack.exceptions
import pytest

from acstor.origin.posix import PosixOrigin
from testbed import exception
from testbed.fixtures.anonymous_memory import watched
from testbed.fixtures.cloud_api import CloudApi, Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.guest_console import GuestWriter
from testbed.fixtures.instances import Instance, instances_of
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.small_logs import small_logs
from testbed.fixtures.volume_api import VolumeApi
from testbed.fixtures.volume_types import volume_types_of
from testbed.fixtures.volumes import GIB, THROUGH, Volumes, console, volumes_of
from testbed.onebox.configuration import acstor

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox, pytest.mark.disruptive,
]  # fmt: skip

MIB = 1 << 20
MALLORY = "mallory"
REGISTRAR = "acstor-registrar"
GROWTH_MAX = 5 * MIB
"""Largest growth of a data plane's own memory, whatever images describe."""
REGISTRAR_MEMORY_KIB_MAX = 300 << 10
QUOTA = 32 * MIB
LOG_DISK = 2 * QUOTA + 8 * MIB
"""Room for the quotas of two volumes, as the guide says, and nothing to spare."""
SMALL_LOGS = {"quota_bytes": str(QUOTA), "segment_bytes": str(MIB)}
STRANGER = 64999
"""User of no name."""
IMAGE_SIZE = 16 * MIB
RESERVE_MAX = 90
"""Per cent: the largest reserve that can be configured."""
RESERVE_MARGIN = 3
"""Per cent of the disk that others may free meanwhile."""


@pytest.fixture(scope="module")
def mallory(whole_box: RunningBox) -> Iterator[CloudApi]:
    """The cloud as the user of another project sees it."""
    with whole_box.other_project(MALLORY) as api:
        yield api


@pytest.fixture(scope="module")
def public(whole_box: RunningBox, tiny: Template) -> Iterator[Template]:
    """An image of the administrator that everybody may use."""
    images = (tiny.kernel_id, tiny.ramdisk_id, tiny.id)
    for image in images:
        whole_box.api.set_image_property(image, "visibility", "public")
    yield tiny
    for image in images:
        whole_box.api.set_image_property(image, "visibility", "shared")


@pytest.fixture(scope="module")
def host(whole_box: RunningBox, tiny: Template) -> Iterator[ComputeHost]:
    """The host of both guests, whose logs have no more room than they need."""
    with small_logs(whole_box.hosts[0], LOG_DISK, SMALL_LOGS) as found:
        whole_box.wait_settled()
        whole_box.wait_planted(tiny.id)
        yield found
    whole_box.wait_settled()
    whole_box.wait_planted(tiny.id)


@pytest.fixture(scope="module")
def guests(
    whole_box: RunningBox, host: ComputeHost, public: Template, mallory: CloudApi
) -> Iterator[tuple[Instance, Instance]]:
    """The administrator's guest and Mallory's, which asked to be on the same host."""
    with instances_of(whole_box) as made, instances_of(whole_box, mallory) as others:
        (victim,) = made.request(public, host=host)
        victim.wait()
        (attacker,) = others.request(public, beside=victim)
        attacker.wait()
        assert attacker.host.name == host.name
        for server in (victim, attacker):
            server.checked(boot=1)
        yield victim, attacker


@pytest.fixture
def upload(box: RunningBox, mallory: CloudApi, tmp_path: pathlib.Path) -> Callable[..., str]:
    """Uploads an image of random content as Mallory; returns its id."""

    def uploaded(name: str, size: int = IMAGE_SIZE, **properties: str) -> str:
        path = tmp_path / name
        path.write_bytes(os.urandom(size))
        image = mallory.upload_image(name, path, properties=properties)
        box.delete_later(image)
        return image

    return uploaded


# Images


def offered(host: ComputeHost, image: str) -> bool:
    return host.base_kind(image) == "link"


def test_image_that_a_stranger_names_as_kernel_stays_on_the_hosts(
    box: RunningBox, public: Template, mallory: CloudApi, upload: Callable[..., str]
) -> None:
    naming = upload("naming", kernel_id=public.id, ramdisk_id=public.id)
    box.wait_registry(naming, {"registered"})
    mallory.set_image_property(naming, "visibility", "community")
    with pytest.raises(openstack.exceptions.ForbiddenException):
        mallory.set_image_property(naming, "visibility", "public")
    box.wait_compared()
    entry = box.registry_entry(public.id)
    assert entry is not None
    assert entry["state"] == "registered", entry["reason"]
    assert all(offered(host, public.id) for host in box.hosts)


def test_disks_of_a_tebibyte_are_refused_and_cost_nobody_anything(
    box: RunningBox, tiny: Template, mallory: CloudApi, tmp_path: pathlib.Path
) -> None:
    """A few hundred KiB with data at both ends; another project's image is registered meanwhile."""
    log_start = box.controller.log_size(REGISTRAR)
    left_before = box.registrar_metric("acstor_registrar_registrations", outcome="left")
    bombs: dict[str, str] = {}
    with watched(*(host.dataplane_pid() for host in box.hosts)) as memories:
        for size, last in (("1T", "1023G"), ("1P", "1023T")):
            path = tmp_path / size
            create = ["qemu-img", "create", "-q", "-f", "qcow2", str(path), size]
            write = ["qemu-io", "-f", "qcow2", "-c", "write -q -P 1 0 64k"]
            for command in (create, [*write, "-c", f"write -q -P 2 {last} 64k", str(path)]):
                subprocess.run(command, check=True, timeout=60)
            bombs[size] = mallory.upload_image(f"bomb-{size}", path, disk_format="qcow2")
            box.delete_later(bombs[size])
        other = box.fresh(tiny)
        box.wait_planted(other.id)
        for size, bomb in bombs.items():
            entry = box.wait_registry(bomb, {"left", "registered", "failed"})
            assert entry["state"] == "left", (size, entry)
            assert "more than disk_size_max = " in entry["reason"]
        box.wait_compared()
        growth = {one.name: memory.growth for one, memory in zip(box.hosts, memories, strict=True)}
    print(f"RssAnon of the data planes grew by {growth}")
    assert max(growth.values()) <= GROWTH_MAX
    said = box.controller.log(REGISTRAR, log_start)
    for size, bomb in bombs.items():
        assert f"image {bomb} (bomb-{size}) was not registered (left): the disk in" in said
        assert not any(host.exists(host.base_path(bomb)) for host in box.hosts)
    left = box.registrar_metric("acstor_registrar_registrations", outcome="left")
    assert left - left_before >= len(bombs)
    registrar = box.controller.service_pid(REGISTRAR)
    status = pathlib.Path(f"/proc/{registrar}/status").read_text()
    assert int(status.split("VmHWM:")[1].split()[0]) < REGISTRAR_MEMORY_KIB_MAX


def pinned_bytes(host: ComputeHost, image: str) -> int:
    found = [each for each in host.ask("image.list") or [] if each["id"] == image]
    return int(found[0]["pinned_bytes"]) if found else 0


def test_pin_of_an_ordinary_user_is_ignored_and_told_once(
    box: RunningBox, mallory: CloudApi, upload: Callable[..., str]
) -> None:
    log_start = box.controller.log_size(REGISTRAR)
    pinned = upload("pinned", acstor_pin="true", visibility="private")
    plain = upload("plain", visibility="private")
    for image in (pinned, plain):
        box.wait_registry(image, {"registered"})
        box.wait_planted(image)
    mallory.set_image_property(pinned, "visibility", "community")
    box.wait_compared()
    entry = box.wait_registry(pinned, {"registered"})
    assert (entry["pin"], entry["pin_ignored"]) == (False, True)
    said = box.controller.log(REGISTRAR, log_start)
    assert said.count(f"the pin of image {pinned} is ignored") == 1
    for host in box.hosts:
        # Of every image its ends are kept, of a pinned one all of it.
        are_kept = functools.partial(pinned_bytes, host, plain)
        kept = wait_for(f"{host.name} keeps the ends of {plain}", are_kept, interval=0.5)
        assert kept < IMAGE_SIZE
        wait_for(
            f"{host.name} keeps as much of {pinned}",
            lambda: pinned_bytes(host, pinned) == kept,  # noqa: B023
            interval=0.5,
        )


def test_snapshot_of_an_ordinary_users_server_is_left_to_nova(
    box: RunningBox, guests: tuple[Instance, Instance], mallory: CloudApi
) -> None:
    _, attacker = guests
    snapshot = mallory.compute.create_server_image(attacker.id, "snapshot").id
    box.delete_later(snapshot)
    box.wait_image_active(snapshot)
    entry = box.wait_registry(snapshot, {"left", "registered", "failed"})
    assert entry["state"] == "left"
    assert "image_type=snapshot" in entry["reason"]
    found = mallory.image(snapshot)
    assert found is not None
    assert found["owner"] == mallory.connection.current_project_id
    assert not any(host.exists(host.base_path(snapshot)) for host in box.hosts)
    attacker.wait()


# Disks


def test_images_take_nothing_of_the_origin_that_is_kept_for_volumes(
    box: RunningBox,
    guests: tuple[Instance, Instance],
    volumes: Volumes,
    upload: Callable[..., str],
) -> None:
    """The origin is as full as images may make it: they wait, and what guests write gets in."""
    space = PosixOrigin(str(box.directory.shared / "origin")).space()
    reserve = 100 * space.free_bytes // space.total_bytes + RESERVE_MARGIN
    if reserve > RESERVE_MAX:
        pytest.skip(f"{reserve} % of the origin's disk would have to be reserved, which cannot be")
    victim, _ = guests
    volume_id = volumes.create(volume_type=THROUGH)
    with volumes.attached(victim, volume_id) as disk:
        writer = GuestWriter(console(victim), disk)
        options = {"origin": {"reserve_percent": str(reserve)}}
        with box.reconfigured(box.controller, REGISTRAR, options):
            image = upload("one-too-many", 2 * IMAGE_SIZE)
            entry = box.wait_registry(image, {"failed", "registered", "left"})
            assert entry["state"] == "failed"
            assert "([origin] reserve_percent)" in entry["reason"]
            writer.wait_steps(console(victim), 3)
        box.wait_registry(image, {"registered"})
        writer.stop(console(victim), disk)


# Somebody with QEMU's group on the host of others' guests


def denied(host: ComputeHost, user: tuple[str, ...], *command: str) -> None:
    """A command of a user is refused, and that for his rights."""
    with pytest.raises(exception.ToolFailedError, match="Permission denied"):
        host.run(*user, *command)


def nbd_uri(opened: dict[str, Any], name: str) -> str:
    return f"nbd+unix:///{urllib.parse.quote(name)}?socket={opened['socket']}"


def test_user_of_qemus_group_reaches_no_volume_of_others(
    box: RunningBox,
    guests: tuple[Instance, Instance],
    volumes: Volumes,
    mallory: CloudApi,
    host: ComputeHost,
) -> None:
    """Neither with a user of his own nor as the one that all of this host's QEMUs run as."""
    victim, attacker = guests
    with contextlib.ExitStack() as stack:
        others = stack.enter_context(volumes_of(box, VolumeApi(mallory.connection)))
        volume_id, own_id = volumes.create(), others.create()
        disk = stack.enter_context(volumes.attached(victim, volume_id))
        stack.enter_context(others.attached(attacker, own_id))
        disk.write("secret")
        opened, own = (
            host.ask("volume.open", volume=one, role="owner") for one in (volume_id, own_id)
        )
        assert own["socket"] != opened["socket"]
        commands = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in host.guest_pids()]
        assert not any(opened["export"].encode() in command for command in commands)
        for uid in (str(STRANGER), acstor.GUEST_USER):
            user = ("setpriv", f"--reuid={uid}", f"--regid={acstor.NBD_GROUP}", "--clear-groups")
            denied(host, user, "ls", acstor.VOLUME_SOCKETS)
            for name in ("", volume_id, own["export"], opened["export"][:-1]):
                with pytest.raises(exception.ToolFailedError):
                    host.run(*user, "nbdinfo", "--size", nbd_uri(opened, name))
            # What keeps him out is the token: who has that gets in.
            size = host.run(*user, "nbdinfo", "--size", nbd_uri(opened, opened["export"]))
            assert int(size) == GIB
            attachments = f"{acstor.STATE}/volumes/attachments"
            assert host.exists(f"{attachments}/{volume_id}.json")
            denied(host, user, "ls", attachments)
            denied(host, user, "cat", f"{attachments}/{volume_id}.json")
            for control in (acstor.CONTROL_SOCKET, acstor.ADMIN_SOCKET):
                assert host.exists(control)
                denied(host, user, "nbdinfo", "--size", f"nbd+unix:///?socket={control}")
        assert disk.holds("secret")


def test_only_qemus_group_reads_images_and_nobody_writes_them(
    box: RunningBox, public: Template, host: ComputeHost
) -> None:
    """Of all projects, as the guide says: libvirt's confinement is what keeps a QEMU to its own."""
    image = f"{host.mount_point}/{public.id}.raw"
    read = ("head", "-c", "512", image)
    stranger = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")
    denied(host, stranger, *read)
    denied(host, stranger, "head", "-c", "512", host.base_path(public.id))
    qemu = ("setpriv", f"--reuid={STRANGER}", f"--regid={acstor.IMAGES_GROUP}", "--clear-groups")
    host.run(*qemu, *read)
    for user in (stranger, qemu, ("env",)):
        with pytest.raises(exception.ToolFailedError, match=r"Permission denied|Read-only"):
            host.run(*user, "sh", "-c", f": >>{image}")


# The last one: it leaves Mallory's guest standing still.


def is_paused(host: ComputeHost, server: Instance) -> bool:
    state = host.run("virsh", "-c", "qemu:///system", "domstate", "--reason", server.id)
    return state.startswith("paused (I/O error)")


def test_guest_that_fills_its_log_takes_nothing_from_the_other(
    box: RunningBox,
    guests: tuple[Instance, Instance],
    volumes: Volumes,
    mallory: CloudApi,
    host: ComputeHost,
) -> None:
    """Mallory writes until there is no more, and stands still; the other's every write gets in."""
    victim, attacker = guests
    admin = VolumeApi(box.api.connection)
    kept = {"acstor:durability": "write-back", "acstor:period": "3600"}
    volume_id = volumes.create()
    with (
        volume_types_of(admin) as types,
        volumes_of(box, VolumeApi(mallory.connection)) as others,
        volumes.attached(victim, volume_id) as disk,
    ):
        name = types.make("kept-here", {"volume_backend_name": "acstor", **kept})
        greedy_id = others.create(volume_type=name)
        others.api.attach(attacker.id, greedy_id)
        writer = GuestWriter(console(victim), disk)
        writer.wait_steps(console(victim), 1)
        greedy = console(attacker).disk(greedy_id)
        fill = greedy.write_command("greedy", "0", GIB // MIB)
        console(attacker).run(f"({fill}) >/dev/null 2>&1 &")
        try:
            stands_still = functools.partial(is_paused, host, attacker)
            wait_for("Mallory's log is full", stands_still, 120, interval=0.5)
            assert QUOTA / 2 < host.metric("acstor_volume_log_bytes", volume=greedy_id) <= QUOTA
            writer.wait_steps(console(victim), 4)
            writer.stop(console(victim), disk)
            assert "I/O error" not in console(victim).run("dmesg")
        finally:
            # It would give no disk back.
            box.api.delete_servers([attacker.id])
            box.api.wait_deleted([attacker.id])
    assert not victim.could_not_read()
