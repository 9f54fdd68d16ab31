import configparser
import importlib
import logging
import pathlib
import types
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.drivers import notification
from acstor.drivers.notification import BRICK, NOVA, AcstorDriver

ROOT = pathlib.Path(__file__).parents[3]
LIBVIRT = types.SimpleNamespace(compute_driver="libvirt.LibvirtDriver")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the registrations that were called, which register nothing here."""
    names: list[str] = []

    def load(name: str) -> Any:
        return types.SimpleNamespace(register=lambda: names.append(name))

    monkeypatch.setattr(importlib, "import_module", load)
    return names


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("nova.cmd.compute", [NOVA, BRICK]),
        ("cinder.cmd.volume", [BRICK]),
        ("cinder.cmd.backup", [BRICK]),
        ("nova.cmd.conductor", []),
        ("nova.wsgi.osapi_compute", []),
        ("cinder.cmd.scheduler", []),
        ("glance.wsgi.api", []),
    ],
)
@pytest.mark.parametrize("is_main", [False, True], ids=["console script", "python -m"])
def test_each_service_gets_what_it_uses(
    called: list[str], program: str, wanted: list[str], is_main: bool
) -> None:
    module = types.SimpleNamespace(__spec__=types.SimpleNamespace(name=program))
    modules = {"__main__" if is_main else program: module}
    assert list(notification.register(LIBVIRT, modules)) == wanted
    assert called == wanted


def test_compute_service_of_another_hypervisor_is_left_alone(called: list[str]) -> None:
    ironic = types.SimpleNamespace(compute_driver="ironic.IronicDriver")
    assert notification.register(ironic, {"nova.cmd.compute": None}) == ()
    assert notification.register(types.SimpleNamespace(), {"nova.cmd.compute": None}) == ()
    assert called == []


def test_process_that_is_no_service_is_left_alone(called: list[str]) -> None:
    assert notification.register(LIBVIRT, {"__main__": types.SimpleNamespace(__spec__=None)}) == ()


def test_failure_never_reaches_the_service(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(conf: Any) -> None:
        raise exception.UnsupportedError("this Nova has no place", hint="use another")

    monkeypatch.setattr(notification, "register", fail)
    driver = AcstorDriver(cfg.CONF, [], None)
    assert "no place" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            driver.notify({}, {}, "info", 0)
    assert caplog.text.count("use another") == 1


def test_fault_of_any_kind_never_reaches_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification, "register", lambda conf: 1 / 0)
    AcstorDriver(cfg.CONF, [], None).notify({}, {}, "info", 0)


def test_entry_point_names_the_driver() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    name, _, place = setup["entry_points"]["oslo.messaging.notify.drivers"].strip().partition(" = ")
    module, _, attribute = place.partition(":")
    assert name == "acstor"
    assert getattr(importlib.import_module(module), attribute) is AcstorDriver


@pytest.mark.parametrize("name", [BRICK, NOVA])
def test_registrations_are_there(name: str) -> None:
    pytest.importorskip("nova", reason="nova is not installed")
    assert callable(importlib.import_module(name).register)
