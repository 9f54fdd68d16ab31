"""ACStor's processes have what their units leave them, and guests their disks by their groups."""

import functools
import json
import os
import pathlib
import signal

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import BoxHost, ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import Instances
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.volumes import Volumes
from testbed.onebox.configuration import acstor

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

CHOWN, DAC_OVERRIDE, SYS_ADMIN = 1 << 0, 1 << 1, 1 << 21
"""Bits of capabilities(7)."""
CAPTURES = 1 << 2 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8
"""Those of captures: DAC_READ_SEARCH, KILL, SETGID, SETUID, SETPCAP."""
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def status_of(pid: int, field: str) -> list[str]:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{field}:"))


def effective(pid: int) -> int:
    return int(status_of(pid, "CapEff")[0], 16)


def account(host: BoxHost, name: str) -> tuple[int, int]:
    """Return the numbers of a user and of his group on a host."""
    lines = host.path("/etc/passwd").read_text().splitlines()
    fields = next(line.split(":") for line in lines if line.startswith(f"{name}:"))
    return int(fields[2]), int(fields[3])


def group(host: BoxHost, name: str) -> int:
    lines = host.path("/etc/group").read_text().splitlines()
    return next(int(line.split(":")[2]) for line in lines if line.startswith(f"{name}:"))


def test_data_plane_and_registrar_are_a_user_without_capabilities(box: RunningBox) -> None:
    for host in box.all_hosts:
        uid, gid = account(host, acstor.USER)
        assert uid != 0
        pids = [host.service_pid("acstor-dataplane"), host.dataplane_pid()]
        if host is box.controller:
            for name in ("acstor-registrar", "acstor-worker", "acstor-api"):
                pids.append(host.service_pid(name))
        for pid in pids:
            assert status_of(pid, "Uid") == [str(uid)] * 4
            assert status_of(pid, "Gid") == [str(gid)] * 4
            for field in CAPABILITIES:
                assert int(status_of(pid, field)[0], 16) == 0, field
            assert status_of(pid, "NoNewPrivs") == ["1"]
        groups = {group(host, name) for name in (acstor.VOLUMES_GROUP, acstor.NBD_GROUP)}
        assert groups <= set(map(int, status_of(host.dataplane_pid(), "Groups")))


def test_mount_and_agent_are_root_with_what_their_units_leave(box: RunningBox) -> None:
    for host in box.all_hosts:
        for service, capabilities in (
            ("acstor-mount", SYS_ADMIN),
            ("acstor-agent", CHOWN | DAC_OVERRIDE | (CAPTURES if host in box.hosts else 0)),
        ):
            pid = host.service_pid(service)
            assert status_of(pid, "Uid") == ["0"] * 4
            assert effective(pid) == capabilities, service
            assert int(status_of(pid, "CapBnd")[0], 16) == capabilities, service


def test_hosts_pass_the_checks_of_the_data_planes_user(box: RunningBox) -> None:
    for host in box.hosts:
        program = box.directory.program("acstor-status")
        check = (
            f"{program} --config-file {acstor.CONFIG_FILE} upgrade check --json || test $? -eq 1"
        )
        checks = json.loads(host.run("sh", "-c", check))["checks"]
        results = {one["check"]: (one["result"], one["details"]) for one in checks}
        for name in ("User of the data plane", "FUSE access", "Access to volumes", "Directories"):
            assert results[name][0] == 0, results[name]
        assert "acstor-mount listens at" in results["User of the data plane"][1]


def serves_anew(host: ComputeHost, killed: int) -> bool:
    return host.serves() and host.dataplane_pid() != killed


def test_guest_has_disk_and_volume_by_groups_and_keeps_them_without_acstor_mount(
    box: RunningBox, tiny: Template, instances: Instances, volumes: Volumes
) -> None:
    """The image is open to one group, the volume's socket to another; QEMU's user is in both."""
    host = box.hosts[0]
    server = instances.create(tiny, host=host)
    before = server.checked(boot=1)
    volume_id = volumes.create()
    with volumes.attached(server, volume_id) as disk:
        disk.write("by group")
        (pid,) = host.guest_pids(server.id)
        held = set(map(int, status_of(pid, "Groups")))
        assert {group(host, acstor.IMAGES_GROUP), group(host, acstor.NBD_GROUP)} <= held
        assert group(host, acstor.VOLUMES_GROUP) not in held
        opened = host.ask("volume.open", volume=volume_id, role="owner")
        found = host.run("stat", "-c", "%U %G", opened["socket"]).split()
        assert found == [acstor.USER, acstor.NBD_GROUP]
        image = f"{host.mount_point}/{tiny.id}.raw"
        assert host.run("stat", "-c", "%a %u %G", image).split() == [
            "440",
            "0",
            acstor.IMAGES_GROUP,
        ]

        host.kill("acstor-mount")
        try:
            killed = host.dataplane_pid()
            os.kill(killed, signal.SIGKILL)
            wait_for("another one serves", functools.partial(serves_anew, host, killed), 60)
            server.checked(after=before)
            assert disk.holds("by group")
        finally:
            host.start("acstor-mount")
    assert not server.could_not_read()
