"""Captures of a guest of a real libvirt: backups that leave nothing, and what Nova does meanwhile.

Needs the Python binding of libvirt, which is not in a virtual environment by itself.
"""

import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.agent.captures.opening import MomentOpener, OpenedMoment
from acstor.agent.hypervisor.base import AgentError, LifecycleEvent
from acstor.agent.hypervisor.libvirt_driver import LibvirtHypervisor
from acstor.repository.versions.record import Consistency
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.session_libvirt import NOBODY, SessionLibvirt
from tests.unit.agent.captures.guests import SERVER, request_of

pytest.importorskip("libvirt")
pytestmark = pytest.mark.skipif(
    not shutil.which("libvirtd") and not os.path.exists("/usr/sbin/libvirtd"),
    reason="libvirt is missing",
)

MIB = 1 << 20
SIZE = 8 * MIB
CLUSTER = 64 << 10
DOMAIN = """
<domain type='qemu'>
  <name>instance-1</name><uuid>{uuid}</uuid>
  <memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <emulator>{emulator}</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='writeback' discard='unmap'/>
      <source file='{folder}/disk'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='{folder}/disk.eph0'/><target dev='vdb' bus='virtio'/>
    </disk>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
  </devices>
</domain>
"""


class Host:
    """A libvirt with one guest of an overlay and a raw disk."""

    def __init__(
        self, folder: pathlib.Path, scratch: pathlib.Path, base_file: str = "base"
    ) -> None:
        self.folder = folder
        self.scratch = scratch
        self.libvirt = SessionLibvirt(folder)
        base = random.Random(1).randbytes(SIZE)
        (folder / base_file).write_bytes(base)
        run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", f"{folder}/{base_file}",
            f"{folder}/disk")  # fmt: skip
        run("qemu-io", "-f", "qcow2", "-c", f"write -P 7 {CLUSTER} {CLUSTER}", f"{folder}/disk")
        self.content = base[:CLUSTER] + b"\7" * CLUSTER + base[2 * CLUSTER :]
        (folder / "disk.eph0").write_bytes(b"\5" * MIB)
        for path in (folder / base_file, folder / "disk", folder / "disk.eph0", scratch):
            os.chown(path, NOBODY, NOBODY)
        xml = DOMAIN.format(uuid=SERVER, emulator=shutil.which("qemu-system-x86_64"), folder=folder)
        self.libvirt.virsh("define", "domain.xml", files={"domain.xml": xml})
        socket = self.libvirt.run / "libvirt" / "libvirt-sock"
        self.hypervisor = LibvirtHypervisor(f"qemu:///session?socket={socket}")
        self.opener = MomentOpener(self.hypervisor, str(scratch), 1 << 30)

    def start(self) -> None:
        self.libvirt.virsh("start", SERVER)

    def io(self, command: str) -> None:
        """Write to the guest's disk."""
        device = "/machine/peripheral/virtio-disk0/virtio-backend"
        answer = self.libvirt.virsh(
            "qemu-monitor-command", SERVER, "--hmp", f'qemu-io -d {device} "{command}"'
        )
        assert "error" not in answer.lower(), answer

    def stop(self) -> None:
        self.hypervisor.close()
        self.libvirt.stop()


def run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)


@pytest.fixture
def host() -> Iterator[Host]:
    with (
        tempfile.TemporaryDirectory(prefix="acl-") as name,
        tempfile.TemporaryDirectory(prefix="acs-", dir="/dev/shm") as scratch,
    ):
        for path in (name, scratch):
            os.chmod(path, 0o777)
        found = Host(pathlib.Path(name), pathlib.Path(scratch))
        try:
            yield found
        finally:
            found.stop()


def digests(moment: OpenedMoment) -> dict[str, str]:
    found = {}
    for source in moment.sources:
        content = bytearray(source.size_bytes)
        source.read_into(0, memoryview(content))
        found[source.device] = hashlib.sha256(content).hexdigest()
    return found


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_running_guest_is_captured_and_nothing_is_left(host: Host) -> None:
    host.start()
    wanted = {"vda": digest(host.content), "vdb": digest(b"\5" * MIB)}
    with host.opener.opened(request_of()) as moment:
        assert (moment.consistency, bool(moment.note)) == (Consistency.CRASH, True)
        assert all(source.tells_layers for source in moment.sources)
        host.io(f"write -P 9 {CLUSTER} {CLUSTER}")
        host.io("discard 0 65536")
        assert digests(moment) == wanted
        own = [one.start for one in moment.sources[0].extents() if one.is_own]
        assert CLUSTER in own
        assert (
            sum(one.end - one.start for one in moment.sources[0].extents() if one.is_own)
            <= 4 * CLUSTER
        )
        for source in moment.sources:
            source.check_unchanged()
    assert list(host.scratch.iterdir()) == []
    assert host.hypervisor.backup_status(SERVER) is None
    assert host.libvirt.virsh("checkpoint-list", SERVER, "--name").strip() == ""
    # As Nova deletes a server.
    host.libvirt.virsh("destroy", SERVER)
    host.libvirt.virsh("undefine", SERVER)
    assert host.hypervisor.find(SERVER) is None


def test_guest_that_is_destroyed_meanwhile_ends_the_backup(host: Host) -> None:
    host.start()
    with host.opener.opened(request_of()) as moment:
        host.libvirt.virsh("destroy", SERVER)
        with pytest.raises(exception.AcstorError):
            moment.sources[0].check_unchanged()
    assert list(host.scratch.iterdir()) == []


def test_only_one_backup_at_a_time(host: Host) -> None:
    host.start()
    with host.opener.opened(request_of(devices=("vda",))) as moment:
        assert [source.device for source in moment.sources] == ["vda"]
        other = MomentOpener(host.hypervisor, str(host.scratch), 1 << 30)
        request = BackupOfOther(host)
        with pytest.raises(exception.ConflictError):
            request.begin(other)
        moment.sources[0].check_unchanged()


class BackupOfOther:
    """A second backup of the same guest, which must not end the first."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def begin(self, opener: MomentOpener) -> None:
        from acstor.agent.hypervisor.base import BackupRequest

        scratch = {"vda": str(self.host.scratch / "other")}
        opener.hypervisor.begin_backup(
            BackupRequest(SERVER, scratch, str(self.host.scratch / "other.sock"))
        )


def test_guest_without_an_agent_is_an_error_with_a_reason(host: Host) -> None:
    host.start()
    guest = host.hypervisor.find(SERVER)
    assert guest is not None
    assert guest.has_agent
    assert not guest.is_agent_connected
    with pytest.raises(AgentError):
        host.hypervisor.ask_agent(SERVER, "guest-fsfreeze-freeze", 1)


def test_stopped_guest_is_read_at_rest_and_its_start_is_told(host: Host) -> None:
    told: list[LifecycleEvent] = []
    host.hypervisor.watch(lambda server, event: told.append(event))
    with host.opener.opened(request_of()) as moment:
        assert digests(moment) == {"vda": digest(host.content), "vdb": digest(b"\5" * MIB)}
        moment.sources[0].check_unchanged()
        host.start()
        with pytest.raises(exception.ConflictError, match="was started"):
            moment.sources[0].check_unchanged()
    host.libvirt.virsh("destroy", SERVER)
    wanted = [LifecycleEvent.STARTED, LifecycleEvent.STOPPED]
    wait_for("events", lambda: told == wanted, 60.0)
