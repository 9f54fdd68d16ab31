"""Starting and stopping: what is waited for, what a failure says."""

import pathlib
import signal
from typing import Any, cast

import pytest

from testbed.onebox import service_control
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.service_control import ServiceControl, ServiceFailedError
from testbed.onebox.services import Service


class ScriptedHost:
    """A host on which programs end as the test says."""

    def __init__(self, *, ends_on: set[int] | None = None, returncode: int | None = None) -> None:
        self.ends_on = {signal.SIGTERM} if ends_on is None else ends_on
        self.returncode = returncode
        self.signals: list[tuple[int, bool]] = []
        self.started = False

    def spawn(self, name: str, argv: tuple[str, ...], environment: dict[str, str]) -> None:
        self.started = True

    def programs(self) -> dict[str, dict[str, Any]]:
        return {"glance": {"pid": 7, "returncode": self.returncode}} if self.started else {}

    def is_running(self, name: str) -> bool:
        return self.started and self.returncode is None

    def signal(self, name: str, number: signal.Signals, *, session: bool = False) -> None:
        self.signals.append((number, session))
        if number in self.ends_on:
            self.returncode = -number


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> OneBoxDirectory:
    directory = OneBoxDirectory(pathlib.Path("/nowhere"))
    directory.logs = tmp_path
    (tmp_path / "controller").mkdir()
    (tmp_path / "controller" / "glance.log").write_text("starting\nno database\n")
    return directory


def control_of(directory: OneBoxDirectory, host: ScriptedHost) -> ServiceControl:
    return ServiceControl(directory, {"controller": cast("Host", host)})


def service(**fields: Any) -> Service:
    return Service("glance", "controller", ("/bin/true",), **fields)


def test_start_waits_until_it_is_ready(directory: OneBoxDirectory) -> None:
    answers = iter([False, False, True])
    control_of(directory, ScriptedHost()).start(service(ready=lambda _: next(answers)))
    assert next(answers, None) is None


def test_a_service_that_ends_is_named_with_its_log(directory: OneBoxDirectory) -> None:
    control = control_of(directory, ScriptedHost(returncode=3))
    with pytest.raises(ServiceFailedError, match="glance on controller ended with 3") as caught:
        control.start(service(ready=lambda _: False))
    assert caught.value.message.endswith("glance.log ends with:\nstarting\nno database")


def test_a_service_that_is_never_ready_is_named(
    directory: OneBoxDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_control, "READY_TIMEOUT_S", 0.0)
    with pytest.raises(ServiceFailedError, match="not ready within"):
        control_of(directory, ScriptedHost()).start(service(ready=lambda _: False))


def test_stop_asks_and_then_ends_what_it_left_behind(directory: OneBoxDirectory) -> None:
    host = ScriptedHost()
    host.started = True
    control_of(directory, host).stop(service())
    assert host.signals == [(signal.SIGTERM, False), (signal.SIGKILL, True)]


def test_what_does_not_end_is_killed(directory: OneBoxDirectory) -> None:
    host = ScriptedHost(ends_on={signal.SIGKILL})
    host.started = True
    control_of(directory, host).stop(service(stop_timeout_s=0.0))
    assert host.returncode == -signal.SIGKILL


def test_what_cannot_be_killed_is_named(directory: OneBoxDirectory) -> None:
    host = ScriptedHost(ends_on=set())
    host.started = True
    with pytest.raises(ServiceFailedError, match="does not end"):
        control_of(directory, host).stop(service(stop_timeout_s=0.0))


def test_kill_is_no_request(directory: OneBoxDirectory) -> None:
    host = ScriptedHost(ends_on={signal.SIGKILL})
    host.started = True
    control_of(directory, host).stop(service(), kill=True)
    assert host.signals[0] == (signal.SIGKILL, False)
