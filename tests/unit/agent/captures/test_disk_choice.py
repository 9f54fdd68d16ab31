"""Guests as libvirt describes them, and which of their disks versions are taken of."""

import dataclasses

import pytest

from acstor import exception
from acstor.agent.captures.disk_choice import choose_disks, reason_against
from acstor.agent.hypervisor.domain_xml import DiskPlace, parse_guest
from tests.unit.agent.captures.guests import SERVER, disk_at, guest_of_disks

VOLUME = "11111111-2222-4333-8444-555555555555"
XML = f"""<domain type='kvm' id='3'>
  <name>instance-00000001</name><uuid>{SERVER}</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:flavor name="m1.tiny" id="x">
        <nova:extraSpecs>
          <nova:extraSpec name="acstor:version_on">delete,shutdown</nova:extraSpec>
        </nova:extraSpecs>
      </nova:flavor>
      <nova:image uuid="y">
        <nova:imageProperties>
          <nova:property name="acstor_version_on">resize</nova:property>
        </nova:imageProperties>
      </nova:image>
    </nova:instance>
  </metadata>
  <os><nvram template='/usr/share/OVMF/VARS.fd'>/var/lib/libvirt/qemu/nvram/i.fd</nvram></os>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none'/>
      <source file='/i/{SERVER}/disk' index='1'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='network' device='disk'>
      <driver name='qemu' type='raw'/>
      <source protocol='rbd' name='vms/x'><host name='1.2.3.4' port='6789'/></source>
      <target dev='vdb' bus='virtio'/>
    </disk>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw'/><source dev='/dev/nova/x'/><target dev='vdc'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/i/x/disk.eph0'><encryption format='luks'/></source><target dev='vdd'/>
    </disk>
    <disk type='network' device='disk'>
      <driver name='qemu' type='raw'/>
      <source protocol='nbd' name='v'/><target dev='vde'/><serial>{VOLUME}</serial>
    </disk>
    <disk type='file' device='cdrom'>
      <driver name='qemu' type='raw'/><source file='/i/x/disk.config'/><target dev='hda'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='/i/x/disk.swap'/><target dev='vdf'/>
    </disk>
    <channel type='unix'>
      <target type='virtio' name='org.qemu.guest_agent.0' state='connected'/>
    </channel>
    <tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>
  </devices>
</domain>"""


def test_description_is_read() -> None:
    guest = parse_guest(XML, is_active=True)
    assert (guest.server, guest.is_active, guest.nvram) == (
        SERVER,
        True,
        "/var/lib/libvirt/qemu/nvram/i.fd",
    )
    assert guest.has_agent
    assert guest.is_agent_connected
    assert guest.has_vtpm
    assert guest.extra_specs == {"acstor:version_on": "delete,shutdown"}
    assert guest.image_properties == {"acstor_version_on": "resize"}
    assert [disk.device for disk in guest.disks] == [
        "vda", "vdb", "vdc", "vdd", "vde", "hda", "vdf"
    ]  # fmt: skip
    assert guest.disks[0] == disk_at(f"/i/{SERVER}/disk")
    assert guest.disks[4].volume == VOLUME


@pytest.mark.parametrize("text", ["", "<domain>", "<domain/>", "<domain><uuid>x</uuid></domain>"])
def test_malformed_descriptions_are_refused(text: str) -> None:
    with pytest.raises(exception.InvalidError):
        parse_guest(text, is_active=False)


def test_reason_is_given_for_each_disk_that_is_left_out() -> None:
    choice = choose_disks(parse_guest(XML, is_active=True), None)
    assert [disk.device for disk in choice.taken] == ["vda"]
    words = {"vdb": "Ceph", "vdc": "LVM", "vdd": "encrypted", "vde": "volume", "hda": "CD-ROM"}
    assert choice.left_out.keys() == {*words, "vdf"}
    for device, word in words.items():
        assert word in choice.left_out[device]


def test_disk_that_is_wanted_and_cannot_be_had_is_refused() -> None:
    guest = parse_guest(XML, is_active=True)
    with pytest.raises(exception.UnsupportedError, match=r"vdb: .*Ceph"):
        choose_disks(guest, ["vda", "vdb"])
    with pytest.raises(exception.NotFoundError, match="vdz"):
        choose_disks(guest, ["vdz"])


def test_guest_without_any_such_disk_is_refused() -> None:
    with pytest.raises(exception.UnsupportedError, match="no disk"):
        choose_disks(guest_of_disks(), None)
    only = guest_of_disks(disk_at("/x", format="vmdk"))
    with pytest.raises(exception.UnsupportedError, match="vmdk"):
        choose_disks(only, None)


def test_other_places_have_reasons() -> None:
    assert reason_against(disk_at("/x", place=DiskPlace.OTHER)) is not None
    assert reason_against(dataclasses.replace(disk_at("/x"), path=None)) is not None
    assert reason_against(disk_at("/x", place=DiskPlace.NETWORK, protocol="iscsi")) is not None
    assert reason_against(disk_at("/x", format="raw")) is None
