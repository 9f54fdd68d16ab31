"""The disk of a volume with the installed libvirt and QEMU: taken, given back, extended."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import types
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from lxml import etree

from acstor.drivers.brick.volume_file import VolumeFile
from acstor.drivers.nova.volumes.online_extend import OnlineExtension
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.documents import ROOT
from testbed.fixtures.qmp import Qemu
from testbed.fixtures.session_libvirt import SessionLibvirt
from tests.unit.drivers.conftest import VOLUME
from tests.unit.drivers.nova.volumes.conftest import INSTANCE, Domain, Host, connection

pytestmark = pytest.mark.slow

MIB = 1 << 20
LIBVIRT_RECONNECT = (9, 2)
DOMAIN = """
<domain type='qemu'>
  <name>guest</name>
  <memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <emulator>{emulator}</emulator>
    <controller type='scsi' index='0' model='virtio-scsi'/>
    {disk}
  </devices>
</domain>
"""


def needs(*programs: str) -> pytest.MarkDecorator:
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [program for program in programs if shutil.which(program, path=path) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} missing")


class NbdServer:
    """qemu-nbd with a file behind it, under the volume's name."""

    def __init__(
        self, directory: pathlib.Path, owner: SessionLibvirt | None = None, name: str = "nbd"
    ) -> None:
        self.socket = directory / f"{name}.sock"
        self._image = directory / f"{name}.image"
        self._owner = owner
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, size: int) -> None:
        """Serve the file, grown to ``size`` bytes."""
        with self._image.open("ab") as file:
            file.truncate(size)
        self._image.chmod(0o666)
        command = ("qemu-nbd", "-k", str(self.socket), "-x", VOLUME, "-f", "raw", "-t")
        start = self._owner.start if self._owner else lambda *words: subprocess.Popen(words)
        self._process = start(*command, "--shared=4", str(self._image))
        wait_for("qemu-nbd", self.is_listening)

    def is_listening(self) -> bool:
        """Return whether a client may connect."""
        return self._states().count("01") > 0

    def clients(self) -> int:
        """Return the number of connections."""
        return self._states().count("03")

    def _states(self) -> list[str]:
        lines = pathlib.Path("/proc/net/unix").read_text().splitlines()
        return [line.split()[5] for line in lines if line.endswith(f" {self.socket}")]

    def stop(self) -> None:
        """End, with all connections."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None


@pytest.fixture
def short() -> Iterator[pathlib.Path]:
    """A directory with a short path that everybody may enter: sockets are made in it."""
    with tempfile.TemporaryDirectory(prefix="acv-") as name:
        path = pathlib.Path(name)
        path.chmod(0o777)
        yield path


@pytest.fixture
def server(short: pathlib.Path) -> Iterator[NbdServer]:
    found = NbdServer(short)
    yield found
    found.stop()


def disk_xml(
    libvirt_driver: Any, socket: pathlib.Path, bus: str = "virtio", export: str = VOLUME
) -> str:
    """Return the XML that Nova gives to libvirt for the volume."""
    disk_info = {"type": "disk", "dev": "vdb" if bus == "virtio" else "sdb", "bus": bus}
    info = connection(socket=str(socket), export=export, reconnect_delay=300)
    text: str = libvirt_driver._get_volume_config(info, disk_info).to_xml()
    return text


@needs("virt-xml-validate", "libvirtd")
def test_disk_is_valid_in_libvirts_schema(libvirt_driver: Any, tmp_path: pathlib.Path) -> None:
    disk = etree.fromstring(disk_xml(libvirt_driver, pathlib.Path("/run/acstor/nbd/x.sock")))
    version = subprocess.run(
        ["libvirtd", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    if tuple(map(int, version.split("."))) < LIBVIRT_RECONNECT:
        source = disk.find("source")
        source.remove(source.find("reconnect"))
    path = tmp_path / "domain.xml"
    path.write_text(
        DOMAIN.format(emulator="/usr/bin/qemu", disk=etree.tostring(disk).decode()).strip()
    )
    result = subprocess.run(
        ["virt-xml-validate", str(path), "domain"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def libvirt(short: pathlib.Path) -> Iterator[SessionLibvirt]:
    """With a running domain that has no disk."""
    found = SessionLibvirt(short)
    try:
        emulator = shutil.which("qemu-system-x86_64")
        domain = DOMAIN.format(emulator=emulator, disk="").strip()
        found.virsh("create", "domain.xml", files={"domain.xml": domain})
        yield found
    finally:
        found.stop()


@pytest.fixture
def guests_server(libvirt: SessionLibvirt) -> Iterator[NbdServer]:
    """A server that the user of the domain may connect to."""
    found = NbdServer(libvirt.run, libvirt)
    found.start(8 * MIB)
    yield found
    found.stop()


@needs("libvirtd", "virsh", "qemu-system-x86_64", "qemu-nbd")
def test_libvirt_attaches_the_disk_and_detaches_what_nova_read(
    libvirt_driver: Any, host: Host, libvirt: SessionLibvirt, guests_server: NbdServer
) -> None:
    disk = disk_xml(libvirt_driver, guests_server.socket, "scsi")
    libvirt.virsh("attach-device", "guest", "disk.xml", files={"disk.xml": disk})
    assert guests_server.clients() == 1

    host.domain = Domain(libvirt.virsh("dumpxml", "guest"))
    guest = host.get_guest(INSTANCE)
    device = libvirt_driver._get_guest_disk_device(guest, "sdb", volume_uuid=VOLUME)
    guest.detach_device(device)  # live: a flag of the call, not of the XML
    (detached,) = host.domain.detached
    source = etree.fromstring(detached).find("source")
    assert source.find("host").get("socket") == str(guests_server.socket)
    if libvirt.version() >= LIBVIRT_RECONNECT:
        assert source.find("reconnect").get("delay") == "300"

    libvirt.virsh("detach-device", "guest", "gone.xml", files={"gone.xml": detached})
    wait_for("the disk to be gone", lambda: VOLUME not in libvirt.virsh("dumpxml", "guest"))
    wait_for("QEMU to disconnect", lambda: guests_server.clients() == 0)


@needs("libvirtd", "virsh", "qemu-system-x86_64")
def test_command_line_shows_the_token_of_a_guest_that_is_started_with_the_disk(
    libvirt_driver: Any, libvirt: SessionLibvirt
) -> None:
    """The token is what the AppArmor abstraction keeps from other guests, and
    ``install/nova-volumes`` tells."""
    token = "5d" * 16
    disk = disk_xml(libvirt_driver, pathlib.Path("/run/acstor/nbd/x.sock"), export=token)
    emulator = shutil.which("qemu-system-x86_64")
    domain = DOMAIN.format(emulator=emulator, disk=disk).strip()
    arguments = ("domxml-to-native", "qemu-argv", "--xml", "started.xml")
    command = libvirt.virsh(*arguments, files={"started.xml": domain})
    (node,) = [word for word in command.split() if token in word]
    assert '"export":"' + token in node
    profile = ROOT / "etc" / "apparmor.d" / "abstractions" / "acstor-volumes"
    assert "\n  deny @{PROC}/@{pid}/cmdline r,\n" in profile.read_text()


@needs("libvirtd", "virsh", "qemu-system-x86_64", "qemu-nbd")
@pytest.mark.parametrize("bus", ["virtio", "scsi"])
def test_libvirt_resizes_an_idle_disk_whose_server_came_back(
    libvirt_driver: Any,
    host: Host,
    libvirt: SessionLibvirt,
    guests_server: NbdServer,
    bus: str,
) -> None:
    """All that Nova does for an extension; the server has the data plane's part."""
    if libvirt.version() < LIBVIRT_RECONNECT:
        pytest.skip("libvirt 9.2 is needed, and the volume driver refuses what is older")
    disk = disk_xml(libvirt_driver, guests_server.socket, bus)
    libvirt.virsh("attach-device", "guest", "disk.xml", files={"disk.xml": disk})
    guests_server.stop()
    guests_server.start(16 * MIB)
    volumes = types.SimpleNamespace(
        status=lambda volume: {"size_bytes": 16 * MIB, "clients": guests_server.clients()}
    )
    extension = OnlineExtension(
        volumes,
        "name",
        VOLUME,
        60.0,
        monitor=lambda domain, command, flags: libvirt.virsh(
            "qemu-monitor-command", "guest", command
        ),
    )
    extension.wait_for_size(16 * MIB)
    extension.reconnect(host, INSTANCE)
    target = "vdb" if bus == "virtio" else "sdb"
    libvirt.virsh("blockresize", "guest", target, "16M")
    assert f"Capacity:       {16 * MIB}" in libvirt.virsh("domblkinfo", "guest", target)


@needs("libvirtd", "virsh", "qemu-system-x86_64", "qemu-nbd")
def test_libvirt_copies_the_disk_to_another_volume(
    libvirt_driver: Any, libvirt: SessionLibvirt, guests_server: NbdServer
) -> None:
    """As Nova does when Cinder migrates or retypes a volume that is attached."""
    other = NbdServer(libvirt.run, libvirt, "other")
    try:
        other.start(8 * MIB)
        disk = disk_xml(libvirt_driver, guests_server.socket)
        libvirt.virsh("attach-device", "guest", "disk.xml", files={"disk.xml": disk})
        destination = disk_xml(libvirt_driver, other.socket)
        libvirt.virsh(
            *("blockcopy", "guest", "vdb", "--xml", "other.xml"),
            *("--reuse-external", "--wait", "--pivot"),
            files={"other.xml": destination},
        )
        live = etree.fromstring(libvirt.virsh("dumpxml", "guest"))
        host = live.find("devices/disk/source/host")
        assert host.get("socket") == str(other.socket)
        wait_for("QEMU to leave the first", lambda: guests_server.clients() == 0)
    finally:
        other.stop()


@needs("qemu-system-x86_64", "qemu-nbd")
def test_running_qemu_takes_the_new_size_of_an_idle_disk(
    short: pathlib.Path, server: NbdServer, host: Host, libvirt_driver: Any
) -> None:
    """With the options that libvirt 9.2 and newer give to QEMU for ``<reconnect delay>``."""
    server.start(8 * MIB)
    node = {
        "driver": "nbd",
        "server": {"type": "unix", "path": str(server.socket)},
        "export": VOLUME,
        "reconnect-delay": 300,
        "node-name": "storage",
    }
    device = {"driver": "virtio-blk-pci", "drive": "storage", "id": f"ua-{VOLUME}"}
    qemu = Qemu(short, "-blockdev", json.dumps(node), "-device", json.dumps(device))
    try:
        server.stop()
        server.start(16 * MIB)
        grow = {
            "execute": "block_resize",
            "arguments": {"node-name": "storage", "size": 16 * MIB},
        }
        assert "Cannot grow NBD" in qemu.execute(grow)["error"]["desc"], "why all this is done"
        volumes = types.SimpleNamespace(
            status=lambda volume: {"size_bytes": 16 * MIB, "clients": server.clients()}
        )
        extension = OnlineExtension(
            volumes,
            "name",
            VOLUME,
            60.0,
            monitor=lambda domain, command, flags: json.dumps(qemu.execute(json.loads(command))),
        )
        extension.wait_for_size(16 * MIB)
        extension.reconnect(host, INSTANCE)
        assert qemu.execute(grow) == {"return": {}}
    finally:
        qemu.stop()


@needs("qemu-nbd")
def test_volume_file_with_qemus_server(server: NbdServer) -> None:
    content = os.urandom(3 * MIB + 777)
    server.start(8 * MIB)
    with VolumeFile(str(server.socket), VOLUME) as file:
        file.seek(12_345)
        file.write(content)
        file.flush()
        server.stop()
        server.start(16 * MIB)
        file.seek(12_345)
        assert file.read(len(content)) == content
        assert file.seek(0, os.SEEK_END) == 16 * MIB


@needs("qemu-nbd", "qemu-img")
def test_uri_of_a_volume_file_is_what_qemu_img_takes(server: NbdServer) -> None:
    server.start(8 * MIB)
    with VolumeFile(str(server.socket), VOLUME) as file:
        result = subprocess.run(
            ["qemu-img", "info", "--output=json", file.uri],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert json.loads(result.stdout)["virtual-size"] == 8 * MIB
