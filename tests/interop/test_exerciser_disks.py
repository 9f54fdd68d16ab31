"""The testbed's guest gets its disks as libvirt gives them to QEMU when Nova asks."""

import json
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from testbed.fixtures.session_libvirt import SessionLibvirt
from testbed.guest.exerciser_machine import RECONNECT_DELAY_S, file_disk, nbd_disk
from tests.unit.drivers.nova.volumes.conftest import connection

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("libvirtd") is None, reason="libvirtd missing"),
]

DOMAIN = """
<domain type='qemu'>
  <name>guest</name>
  <memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices><emulator>{emulator}</emulator>{disk}</devices>
</domain>
"""
LOCAL_QCOW2 = """
<disk type='file'>
  <driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap'/>
  <source file='/disk.qcow2'/>
  <target dev='vdb' bus='virtio'/>
</disk>
"""


@pytest.fixture(scope="module")
def libvirt() -> Iterator[SessionLibvirt]:
    with tempfile.TemporaryDirectory(prefix="acv-") as name:
        path = pathlib.Path(name)
        path.chmod(0o777)
        found = SessionLibvirt(path)
        try:
            yield found
        finally:
            found.stop()


def block_nodes(libvirt: SessionLibvirt, disk: str) -> list[dict[str, Any]]:
    """Return the block nodes that libvirt makes of a disk, the lowest first, without names."""
    domain = DOMAIN.format(emulator=shutil.which("qemu-system-x86_64"), disk=disk).strip()
    command = libvirt.virsh(
        "domxml-to-native", "qemu-argv", "--xml", "domain.xml", files={"domain.xml": domain}
    )
    nodes: list[dict[str, Any]] = [
        json.loads(node) for node in re.findall(r"-blockdev '(.*?)'", command)
    ]
    for node in nodes:
        for key in ("node-name", "read-only", "auto-read-only"):
            node.pop(key, None)
    return nodes


def test_volume_as_nova_attaches_it(libvirt_driver: Any, libvirt: SessionLibvirt) -> None:
    info = connection(socket="/run/x.sock", export="export", reconnect_delay=RECONNECT_DELAY_S)
    info["data"]["discard"] = True
    disk_info = {"type": "disk", "dev": "vdb", "bus": "virtio"}
    disk = libvirt_driver._get_volume_config(info, disk_info).to_xml()
    node = nbd_disk("volume", "/run/x.sock", "export").node
    assert block_nodes(libvirt, disk)[0] == node


def test_local_file(libvirt: SessionLibvirt) -> None:
    lower, upper = block_nodes(libvirt, LOCAL_QCOW2)
    node = dict(file_disk("local", pathlib.Path("/disk.qcow2"), "qcow2").node)
    assert node.pop("file") == lower
    upper.pop("file")  # its name
    assert node == upper
