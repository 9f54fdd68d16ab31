"""Pins: the last state of a server outlives Nova's deleting it, where somebody asked for that."""

import dataclasses
import datetime
import os
import pathlib
import shutil
import uuid

import pytest

from acstor import exception
from acstor.agent.captures.pins import Pin, PinKeeper
from acstor.agent.hypervisor.base import LifecycleEvent
from acstor.drivers.nova.image_links.nova_settings import PINS_DIRECTORY
from acstor.repository.versions.record import Trigger
from testbed.doubles.memory_hypervisor import MemoryHypervisor
from tests.unit.agent.captures.guests import SERVER, disk_at, guest_of_disks
from tests.unit.repository.versions.records import NOON

ASKED = {"acstor:version_on": "delete"}
OTHER = str(uuid.UUID(int=79))
"""Another server."""


class Host:
    """A host with one guest, whose flavor asks for a version on delete."""

    def __init__(self, folder: pathlib.Path, extra_specs: dict[str, str]) -> None:
        self.instances = folder
        self.directory = folder / SERVER
        self.directory.mkdir()
        self.disk = self.directory / "disk"
        self.disk.write_bytes(b"content")
        self.nvram = folder / "variables.fd"
        self.nvram.write_bytes(b"variables")
        self.hypervisor = MemoryHypervisor(
            guest_of_disks(disk_at(self.disk), extra_specs=extra_specs, nvram=str(self.nvram))
        )
        self.now = NOON
        self.free: int | None = None
        self.keeper = self.new_keeper()

    def new_keeper(self) -> PinKeeper:
        keeper = PinKeeper(
            self.hypervisor,
            lambda: str(self.instances),
            3600.0,
            10.0,
            now=lambda: self.now,
            look=self._look,
        )
        self.hypervisor.watch(keeper.take_event)
        return keeper

    def _look(self, path: str) -> os.statvfs_result:
        found = list(os.statvfs(path))
        found[4] = found[2] if self.free is None else self.free
        return os.statvfs_result(found)

    def delete(self) -> None:
        """Delete the server as Nova does."""
        self.hypervisor.stop(SERVER)
        self.hypervisor.undefine(SERVER)
        shutil.rmtree(self.directory)

    def later(self, seconds: float) -> None:
        self.now += datetime.timedelta(seconds=seconds)

    def pins(self) -> list[str]:
        return [str(path) for path in (self.instances / PINS_DIRECTORY).glob("*/*")]

    def newest(self) -> Pin:
        found = self.keeper.newest(SERVER)
        assert found is not None
        return found


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path, ASKED)


def test_last_state_outlives_the_server(host: Host) -> None:
    host.keeper.look_once()
    assert host.keeper.newest(SERVER) is None  # it runs: nothing of it is final
    host.disk.write_bytes(b"last content")
    host.later(10)
    host.delete()
    pin = host.newest()
    assert pin.pinned_at == NOON + datetime.timedelta(seconds=10)
    assert not pin.guest.is_active
    path = pin.guest.disks[0].path
    assert path is not None
    assert pathlib.Path(path).read_bytes() == b"last content"
    assert pin.guest.nvram is not None
    assert pathlib.Path(pin.guest.nvram).read_bytes() == b"variables"


def test_guest_whose_variables_are_no_file_keeps_no_other_from_being_pinned(host: Host) -> None:
    """The folder of the variables may be that of QEMU's user, which may put a pipe there."""
    host.nvram.unlink()
    os.mkfifo(host.nvram)
    writer = os.open(host.nvram, os.O_RDWR)
    other = dataclasses.replace(host.hypervisor.known[SERVER], server=OTHER, nvram=None)
    host.hypervisor.known[OTHER] = other
    with pytest.raises(exception.UnsupportedError, match="no regular file"):
        host.keeper.look_once()
    os.close(writer)
    host.hypervisor.stop(OTHER)
    pin = host.keeper.newest(OTHER)
    assert pin is not None
    assert [os.path.basename(os.path.dirname(path)) for path in host.pins()] == [OTHER]


def test_server_that_nobody_asked_for_is_not_pinned(tmp_path: pathlib.Path) -> None:
    host = Host(tmp_path, {})
    host.keeper.look_once()
    host.delete()
    assert host.keeper.newest(SERVER) is None
    assert host.pins() == []


def test_service_may_ask_and_take_it_back(tmp_path: pathlib.Path) -> None:
    host = Host(tmp_path, {})
    host.keeper.follow(SERVER, [Trigger.SHUTDOWN])
    host.keeper.look_once()
    assert len(host.pins()) == 1
    host.keeper = host.new_keeper()  # what was asked of the one before is not known any more
    host.keeper.look_once()
    assert len(host.pins()) == 1
    host.keeper.follow(SERVER, [])
    host.keeper.look_once()
    assert host.pins() == []


def test_pin_is_set_once_and_again_for_a_new_file(host: Host) -> None:
    host.keeper.look_once()
    host.keeper.look_once()
    assert len(host.pins()) == 1
    host.hypervisor.stop(SERVER)
    host.disk.unlink()
    host.disk.write_bytes(b"rebuilt")
    host.hypervisor.start(SERVER)
    host.keeper.look_once()
    assert len(host.pins()) == 2
    path = host.newest().guest.disks[0].path
    assert path is not None
    assert pathlib.Path(path).read_bytes() == b"content"


def test_guest_that_is_started_again_has_no_final_pin(host: Host) -> None:
    host.keeper.look_once()
    host.hypervisor.stop(SERVER)
    assert host.keeper.newest(SERVER) is not None
    host.hypervisor.start(SERVER)
    host.keeper.look_once()
    assert host.keeper.newest(SERVER) is None


def test_guest_that_moves_is_no_end(host: Host) -> None:
    host.keeper.look_once()
    host.hypervisor.stop(SERVER, LifecycleEvent.MIGRATED)
    assert host.keeper.newest(SERVER) is None
    host.keeper.look_once()  # it is still defined here
    assert host.pins() == []
    host.hypervisor.undefine(SERVER)
    host.keeper.look_once()
    assert host.keeper.newest(SERVER) is None


def test_guest_that_comes_back_is_pinned_again(host: Host) -> None:
    host.hypervisor.stop(SERVER, LifecycleEvent.MIGRATED)
    host.keeper.look_once()
    host.hypervisor.start(SERVER)
    host.keeper.look_once()
    assert len(host.pins()) == 1


def test_end_that_nobody_told_of_is_noticed(host: Host) -> None:
    host.keeper.look_once()
    host.hypervisor.on_event = None
    host.delete()
    host.keeper.look_once()
    assert host.newest().is_final


def test_pin_goes_once_it_is_captured_and_the_server_is_gone(host: Host) -> None:
    host.keeper.look_once()
    host.keeper.note_captured("/another/pin")  # of an earlier end of the server
    host.delete()
    host.keeper.look_once()
    host.keeper.note_captured(host.newest().folder)
    host.keeper.look_once()
    assert host.pins() == []


def test_pin_goes_after_a_while(host: Host) -> None:
    host.keeper.look_once()
    host.delete()
    host.later(3599)
    host.keeper.look_once()
    assert len(host.pins()) == 1
    host.later(2)
    host.keeper.look_once()
    assert host.pins() == []


def test_pin_goes_where_nova_needs_the_room(host: Host) -> None:
    host.keeper.look_once()
    host.free = 0
    host.keeper.look_once()
    assert len(host.pins()) == 1  # the server has the disk anyway
    host.delete()
    host.keeper.look_once()
    assert host.pins() == []


def test_damaged_description_is_no_pin(host: Host) -> None:
    host.keeper.look_once()
    (description,) = (host.instances / PINS_DIRECTORY).glob("*/*/pin.json")
    description.write_text('{"version": 9}')
    host.keeper.look_once()
    (again,) = (host.instances / PINS_DIRECTORY).glob("*/*/pin.json")
    assert again != description


def test_link_in_place_of_the_folder_is_not_followed(
    host: Host, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (host.instances / ".acstor").symlink_to(other)
    with pytest.raises(exception.UnavailableError, match="no directory"):
        host.keeper.look_once()
    assert not any(other.rglob("*/*"))


def test_disks_that_cannot_be_had_are_not_pinned(host: Host) -> None:
    guest = host.hypervisor.known[SERVER]
    swap = disk_at(host.directory / "disk.swap", "vdb")
    host.hypervisor.known[SERVER] = dataclasses.replace(guest, disks=(*guest.disks, swap))
    host.keeper.look_once()
    host.delete()
    assert [disk.device for disk in host.newest().guest.disks] == ["vda"]
