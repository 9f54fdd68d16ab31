"""The sample of Glance's property protection, by Glance's own code where it is installed."""

import configparser
import pathlib
import re
import types
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg

from acstor.registrar import decision

SAMPLE = pathlib.Path(__file__).parents[2] / "etc" / "acstor" / "property-protections.conf.sample"
OPERATIONS = ("create", "read", "update", "delete")
PROPERTIES = (decision.CACHE_PROPERTY, decision.PIN_PROPERTY)

May = Callable[[str, str, str], bool]
"""Predicate: whether somebody with a role may do an operation to a property."""


def by_the_documentation() -> May:
    """Return what Glance's administrator guide says that the sample allows."""
    parsed = configparser.ConfigParser()
    parsed.read_string(SAMPLE.read_text())

    def may(role: str, operation: str, name: str) -> bool:
        for section in parsed.sections():
            if re.search(section, name):
                allowed = [one.strip() for one in parsed[section][operation].split(",")]
                return "!" not in allowed and ("@" in allowed or role in allowed)
        return False

    return may


@pytest.fixture
def by_glance(monkeypatch: pytest.MonkeyPatch) -> Iterator[May]:
    """Judgement of Glance itself on the sample; the test is skipped where there is no Glance.

    It reads the configuration of the process, which is others' again afterwards.
    """
    property_utils = pytest.importorskip("glance.common.property_utils")
    owner = getattr(cfg.CONF, "project", None)
    monkeypatch.setattr(cfg.CONF, "project", owner, raising=False)
    cfg.CONF([], project="glance", default_config_files=[])
    cfg.CONF.set_override("property_protection_file", str(SAMPLE))
    rules = property_utils.PropertyRules(policy_enforcer=object())

    def may(role: str, operation: str, name: str) -> bool:
        person = types.SimpleNamespace(roles=[role], service_roles=[])
        return bool(rules.check_property_rules(name, operation, person))

    yield may
    cfg.CONF.clear_override("property_protection_file")
    cfg.CONF.reset()


def test_sample_closes_our_properties_and_no_others_by_the_documentation() -> None:
    _check(by_the_documentation())


def test_sample_closes_our_properties_and_no_others_by_glance(by_glance: May) -> None:
    _check(by_glance)
    assert cfg.CONF.project == "glance"


def test_configuration_of_the_process_is_nobody_elses_afterwards() -> None:
    assert getattr(cfg.CONF, "project", None) != "glance"


def _check(may: May) -> None:
    for name in (*PROPERTIES, "acstor_", "acstor_of_a_later_release"):
        assert may("member", "read", name)
        for operation in OPERATIONS:
            assert may("admin", operation, name)
        for operation in ("create", "update", "delete"):
            assert not may("member", operation, name), (operation, name)
    for name in ("kernel_id", "os_distro", "x_acstor_pin", "image_type", "hw_disk_bus"):
        for operation in OPERATIONS:
            assert may("member", operation, name), (operation, name)


def test_sections_are_as_glance_demands() -> None:
    parsed = configparser.ConfigParser()
    parsed.read_string(SAMPLE.read_text())
    assert parsed.sections()[-1] == ".*"
    for section in parsed.sections():
        assert set(parsed[section]) == set(OPERATIONS), "Glance does not start without all four"


def test_sample_names_our_properties_for_nova() -> None:
    (line,) = re.findall(r"non_inheritable_image_properties = (\S+)", SAMPLE.read_text())
    assert set(PROPERTIES) <= set(line.split(","))
    assert {"cache_in_nova", "bittorrent"} <= set(line.split(",")), "Nova's own default"
