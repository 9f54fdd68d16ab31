"""A data plane that is an ordinary user without any capability; acstor-mount mounts for it."""

import grp
import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from acstor.mounting import mount_point
from acstor.repository.volumes.durability import Durability, DurabilityClass
from acstor.supervision.supervisor import Supervisor
from testbed.fixtures import host_volumes as volumes
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.host_volumes import Volumes, call, content, open_volume, qemu_io
from testbed.fixtures.hosts import MIB, Cloud, Host, Image
from testbed.fixtures.unprivileged import USER, UnprivilegedHost, open_cloud
from tests.functional.test_held_mount import take_fuse

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv"),
]


NEVER = Durability(DurabilityClass.WRITE_BACK, period_s=3600.0)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """One where everybody may go."""
    with open_cloud() as made:
        yield made


@pytest.fixture
def host(cloud: Cloud) -> UnprivilegedHost:
    made = UnprivilegedHost(cloud, "h0", {})
    cloud.hosts.append(made)
    return made


def serve(cloud: Cloud, host: Host) -> Image:
    """Start a host and return an image that it offers."""
    host.start_dataplane()
    host.start_agent()
    image = cloud.register(8 * MIB)
    cloud.wait_ready(image)
    return image


def status_of(pid: int, field: str) -> list[str]:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{field}:"))


def running(host: Host) -> int:
    return wait_for("a data plane", host.dataplane_pid)


def test_ordinary_user_serves_over_restarts_and_unmounts(
    cloud: Cloud, host: UnprivilegedHost
) -> None:
    image = serve(cloud, host)
    pid = running(host)
    assert status_of(pid, "Uid") == [str(USER.pw_uid)] * 4
    for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status_of(pid, field)[0], 16) == 0, field
    found = host.file(image).stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, 0, 0o444)
    with CheckedReader(host.file(image), image.content, seed=3) as reader:
        reader.wait_reads(20)
        host.kill_dataplane()
        host.wait_restarted(pid)
        reader.wait_reads(20)
    assert reader.errors == []
    assert host.file(image).read_bytes() == image.content
    status = host.status()
    assert status is not None
    assert status["fuse"]["taken_over"], host.log()

    stopped = host.command("host", "stop-dataplane")
    assert stopped.returncode == 0, f"{stopped.stderr}\n{host.log()}"
    wait_for("it has unmounted", lambda: not mount_point.is_mounted(str(host.mount)))
    assert "stays mounted" not in host.log_path.read_text()


def test_guests_go_on_without_acstor_mount(cloud: Cloud, host: UnprivilegedHost) -> None:
    image = serve(cloud, host)
    host.kill("mount")
    pid = running(host)
    with CheckedReader(host.file(image), image.content, seed=4) as reader:
        reader.wait_reads(20)
        host.kill_dataplane()
        host.wait_restarted(pid)
        reader.wait_reads(20)
    assert reader.errors == []
    kept = "the read-ahead of the mount stays as it is"
    # What the data plane logs reaches the file by a thread of its own.
    wait_for("it is told", lambda: kept in host.log_path.read_text())
    host.start_mount()


def test_first_start_waits_for_acstor_mount(host: UnprivilegedHost) -> None:
    host.give_state()
    host.start_holder()
    wait_for("it waits", lambda: "waiting for acstor-mount" in host.log_path.read_text())
    host.start_mount()
    wait_for(f"it serves\n{host.log()}", host.status, 60)


def test_mount_that_a_killed_data_plane_left_is_made_anew(
    cloud: Cloud, host: UnprivilegedHost
) -> None:
    """With its holder, so that nobody has the descriptor."""
    image = serve(cloud, host)
    pid = running(host)
    for key in ("agent", "holder"):
        host.kill(key)
    os.kill(pid, 9)
    assert mount_point.is_mounted(str(host.mount))
    host.start_dataplane()
    host.start_agent()
    cloud.wait_ready(image)
    assert host.file(image).read_bytes() == image.content


def test_volume_that_a_root_data_plane_had_open_is_served_on(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    """Its log, its attachment, and its socket for QEMU's group, in which the user is."""
    qemu = grp.getgrnam("users")
    host = UnprivilegedHost(cloud, "h0", {"volumes": {"socket_group": qemu.gr_name}})
    host.groups = [qemu.gr_gid]
    cloud.hosts.append(host)
    control = Volumes(cloud)
    (host.path / "state").mkdir()
    Host.start_dataplane(host)
    volume = control.create(32 * MIB, host, durability=NEVER)
    opened = open_volume(host, volume)
    assert qemu_io(opened, "write -P 1 0 1M", "flush").returncode == 0
    host.vanish()
    (host.path / "run" / "holder.sock").unlink()
    host.start_dataplane()
    wait_for("it is served again", lambda: volumes.state(host, volume) == "serving")
    opened = open_volume(host, volume)
    found = os.stat(str(opened["socket"]))
    assert (found.st_uid, found.st_gid) == (USER.pw_uid, qemu.gr_gid)
    assert qemu_io(opened, "write -P 2 5M 64k", "flush").returncode == 0
    call(host, "push", volume)
    assert call(host, "fold", volume)["is_folded"]
    expected = bytearray(32 * MIB)
    expected[:MIB] = b"\1" * MIB
    expected[5 * MIB : 5 * MIB + 65536] = b"\2" * 65536
    assert content(opened, tmp_path / "content") == expected
    call(host, "close", volume, force=False)


def test_data_plane_that_was_root_is_replaced_under_a_guest(
    cloud: Cloud, host: UnprivilegedHost
) -> None:
    """An upgrade: the same configuration, state that root wrote, the descriptor kept."""
    (host.path / "state").mkdir()
    Host.start_dataplane(host)
    host.start_agent()
    image = cloud.register(8 * MIB)
    cloud.wait_ready(image)
    assert host.file(image).read_bytes() == image.content
    state = host.path / "state"
    written = [*(state / "dataplane").rglob("*"), *(state / "store").rglob("*")]
    assert {path.lstat().st_uid for path in written} == {0}
    with CheckedReader(host.file(image), image.content, seed=5) as reader:
        reader.wait_reads(20)
        descriptor = take_fuse(host)
        try:
            host.vanish()
            # Root's holder left it. Where systemd keeps the descriptors there is none.
            (host.path / "run" / "holder.sock").unlink()
            host.give_state()
            host.start_mount()
            host.start_holder()
            wait_for(
                "it leaves the mount alone",
                lambda: "another process holds" in host.log_path.read_text(),
            )
            assert Supervisor(str(host.path / "run" / "holder.sock")).store("fuse", descriptor)
        finally:
            os.close(descriptor)
        status = wait_for(f"it serves\n{host.log()}", host.status, 60)
        assert status["fuse"]["taken_over"], host.log()
        reader.wait_reads(20)
    assert reader.errors == []
    for path in written:
        if path.exists():
            assert path.lstat().st_uid == USER.pw_uid, path
    assert status_of(running(host), "Uid")[0] == str(USER.pw_uid)
