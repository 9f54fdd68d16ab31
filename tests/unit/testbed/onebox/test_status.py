"""States of services, as people and programs read them."""

import pathlib
from typing import Any, cast

from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.services import Service
from testbed.onebox.status import ServiceState, service_statuses, table

DIRECTORY = OneBoxDirectory(pathlib.Path("/box"))


class ToldHost:
    """A host whose programs are told."""

    def __init__(self, programs: dict[str, dict[str, Any]] | None) -> None:
        self.address = "10.78.0.1"
        self.is_up = programs is not None
        self._programs = programs or {}

    def programs(self) -> dict[str, dict[str, Any]]:
        return self._programs

    @property
    def pid(self) -> int:
        raise OSError("no process of it")


def state_of(program: dict[str, Any] | None, *, is_up: bool = True) -> ServiceState:
    programs = None if not is_up else {} if program is None else {"glance": program}
    hosts = {"controller": cast("Host", ToldHost(programs))}
    service = Service("glance", "controller", ("/bin/true",), port=9292)
    (status,) = service_statuses(DIRECTORY, hosts, [service])
    assert status.address == "10.78.0.1:9292"
    assert status.log == "/box/log/controller/glance.log"
    return status.state


def test_states() -> None:
    assert state_of({"pid": 7, "returncode": None}) is ServiceState.RUNNING
    assert state_of(None) is ServiceState.STOPPED
    assert state_of({"pid": 7, "returncode": 0}) is ServiceState.STOPPED
    assert state_of({"pid": 7, "returncode": -15}) is ServiceState.STOPPED
    assert state_of({"pid": 7, "returncode": 1}) is ServiceState.FAILED
    assert state_of({"pid": 7, "returncode": -9}) is ServiceState.FAILED
    assert state_of(None, is_up=False) is ServiceState.HOST_DOWN


def test_table_has_a_line_per_service() -> None:
    hosts = {"controller": cast("Host", ToldHost({}))}
    services = [Service(name, "controller", ("/bin/true",)) for name in ("glance", "nova-api")]
    lines = table(service_statuses(DIRECTORY, hosts, services)).splitlines()
    assert lines[0].split() == ["SERVICE", "HOST", "STATE", "PID", "ADDRESS", "LOG"]
    assert lines[1].split()[:5] == ["glance", "controller", "stopped", "-", "-"]
    assert lines[2].startswith("nova-api  controller")
