"""Assumptions of the connector about os-brick; each test has the remedy where a release differs."""

import inspect
from typing import Any

import pytest

pytest.importorskip("os_brick", reason="os-brick is not installed")

from os_brick import exception as brick_exception
from os_brick import initiator
from os_brick.initiator import connector as brick
from os_brick.initiator import initiator_connector
from os_brick.initiator.connectors import base

from acstor import exception
from acstor.drivers.brick import registration
from acstor.drivers.brick.connector import AcstorConnector


@pytest.fixture(autouse=True)
def _registered() -> None:
    registration.register()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", initiator.S390X, initiator.PPC64LE])
def test_factory_makes_the_connector_on_every_architecture(machine: str) -> None:
    made = brick.InitiatorConnector.factory("acstor", "sudo", arch=machine)
    assert isinstance(made, AcstorConnector)


def test_the_mappings_are_those_that_the_factory_looks_into() -> None:
    found = [
        brick.get_connector_mapping(machine)
        for machine in ("x86_64", initiator.S390X, initiator.PPC64)
    ]
    assert [id(mapping) for mapping in found] == [
        id(getattr(brick, name)) for name in registration.MAPPINGS
    ], "os-brick keeps its connectors elsewhere: change MAPPINGS in registration.py"
    assert brick._get_connector_list() is getattr(brick, registration.LIST)


def test_registering_again_changes_nothing() -> None:
    before = list(brick.unix_connector_list)
    registration.register()
    assert brick.unix_connector_list == before
    assert before.count(registration.CONNECTOR) == 1


@pytest.mark.parametrize("name", [*registration.MAPPINGS, registration.LIST])
def test_other_places_are_refused_with_a_clear_word(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(brick, name, None)
    with pytest.raises(exception.UnsupportedError, match=name):
        registration.register()


def test_unknown_protocol_is_what_it_was() -> None:
    with pytest.raises(brick_exception.InvalidConnectorProtocol):
        brick.InitiatorConnector.factory("acstor2", "sudo")


def test_base_class_asks_for_no_other_method() -> None:
    abstract = initiator_connector.InitiatorConnector.__abstractmethods__
    assert abstract <= vars(AcstorConnector).keys(), "os-brick wants another method"
    assert not AcstorConnector.__abstractmethods__


@pytest.mark.parametrize(
    "method",
    [
        "connect_volume",
        "disconnect_volume",
        "extend_volume",
        "check_valid_device",
        "get_volume_paths",
        "get_search_path",
        "get_all_available_volumes",
    ],
)
def test_methods_take_what_os_brick_gives(method: str) -> None:
    def parameters(owner: Any) -> list[tuple[str, Any]]:
        found = inspect.signature(inspect.unwrap(getattr(owner, method))).parameters.values()
        return [(parameter.name, parameter.default) for parameter in found]

    owner = base.BaseLinuxConnector
    assert parameters(AcstorConnector) == parameters(owner), f"{method} changed in os-brick"


def test_connector_is_for_linux_on_all_processors() -> None:
    assert AcstorConnector.os_type == initiator.OS_TYPE_LINUX
    assert AcstorConnector.platform == initiator.PLATFORM_ALL
