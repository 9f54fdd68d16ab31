import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from acstor import exception
from acstor.drivers.nova.volumes.online_extend import GUEST_WAIT, OnlineExtension
from tests.unit.drivers.conftest import VOLUME
from tests.unit.drivers.nova.volumes.conftest import INSTANCE, Host

NAME = "00000000-0000-0000-0000-00000000000a"
QDEV = f"/machine/peripheral/ua-{VOLUME}/virtio-backend"


class World:
    """A clock that sleeping moves, a volume, and QEMU's monitor."""

    def __init__(self) -> None:
        self.now = 0.0
        self.size = 100
        self.clients = 0
        self.commands: list[dict[str, Any]] = []
        self.at: dict[float, Callable[[], None]] = {}
        self.has_monitor = True

    def status(self, volume_id: str) -> dict[str, Any]:
        assert volume_id == NAME
        return {"size_bytes": self.size, "clients": self.clients}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for time in [time for time in self.at if time <= self.now]:
            self.at.pop(time)()

    def monitor(self, domain: Any, command: str, flags: int) -> str:
        if not self.has_monitor:
            raise ImportError("no module named libvirt_qemu")
        asked = json.loads(command)
        self.commands.append(asked)
        if asked["execute"] == "query-block":
            return json.dumps({"return": [{"device": ""}, {"qdev": "other"}, {"qdev": QDEV}]})
        self.clients += 1
        return json.dumps({"return": ""})

    def extension(self, timeout: float = 30.0) -> OnlineExtension:
        return OnlineExtension(
            self,
            NAME,
            VOLUME,
            timeout,
            clock=lambda: self.now,
            sleep=self.sleep,
            monitor=self.monitor,
        )


@pytest.fixture
def world() -> World:
    return World()


def test_size_that_comes_later_is_waited_for(world: World) -> None:
    world.at[5.0] = lambda: setattr(world, "size", 200)
    world.extension().wait_for_size(200)
    assert 5.0 <= world.now < 6.0


def test_size_that_does_not_come_is_an_error_in_time(world: World) -> None:
    with pytest.raises(exception.DeadlineError, match="200 bytes"):
        world.extension().wait_for_size(200)
    assert world.now < 31


def test_guest_that_uses_the_disk_is_not_disturbed(world: World, host: Host) -> None:
    world.at[1.0] = lambda: setattr(world, "clients", 1)
    world.extension().reconnect(host, INSTANCE)
    assert world.commands == []
    assert world.now < GUEST_WAIT


def test_qemu_of_an_idle_guest_is_asked_to_read(world: World, host: Host) -> None:
    world.extension().reconnect(host, INSTANCE)
    (command,) = [found for found in world.commands if found["execute"] != "query-block"]
    assert command["arguments"]["command-line"] == f'qemu-io -d {QDEV} "read 0 512"'
    assert world.now >= GUEST_WAIT


def test_shared_volume_is_read_by_this_guest_too(world: World, host: Host) -> None:
    world.clients = 1  # may be another guest's
    world.extension().reconnect(host, INSTANCE, is_shared=True)
    assert world.commands[-1]["execute"] == "human-monitor-command"


def test_guest_that_does_not_run_is_not_waited_for(world: World, host: Host) -> None:
    host.domain.is_running = False
    world.extension().reconnect(host, INSTANCE)
    assert world.now == 0
    assert world.commands == []


def test_without_monitor_the_guest_itself_is_waited_for(world: World, host: Host) -> None:
    world.has_monitor = False
    world.at[10.0] = lambda: setattr(world, "clients", 1)
    world.extension().reconnect(host, INSTANCE)
    assert world.now >= 10


def test_qemu_that_does_not_connect_is_an_error_in_time(world: World, host: Host) -> None:
    world.has_monitor = False
    with pytest.raises(exception.DeadlineError) as caught:
        world.extension().reconnect(host, INSTANCE)
    assert "stop and start" in caught.value.hint
    assert world.now < 31
