"""The plug-in as the OpenStack client finds it, and the distribution that it comes in."""

import argparse
import ast
import configparser
import importlib.metadata
import json
import re
import subprocess
import sys

import pytest
from osc_lib.command import command

from acstorclient.osc import plugin
from testbed.fixtures.documents import ROOT
from tests.unit.clients.conftest import CLIENTS, entry_points, loaded
from tests.unit.test_requirements import canonical, floors

HEAVY = ("openstack", "keystoneauth1", "requests", "cliff", "osc_lib", "openstackclient")
"""Packages that the entry of the plug-in leaves to those who need them."""
SOURCES = sorted((CLIENTS / "acstorclient").rglob("*.py"))


def test_the_entry_imports_nothing() -> None:
    script = (
        "import sys, json; before = set(sys.modules); import acstorclient.osc.plugin; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(CLIENTS)},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    imported = set(json.loads(done.stdout))
    assert {name for name in imported if name.partition(".")[0] in HEAVY} == set()
    assert {name for name in imported if name.startswith("acstorclient")} == {
        "acstorclient",
        "acstorclient.osc",
        "acstorclient.osc.plugin",
    }


def test_the_entry_is_the_module() -> None:
    assert entry_points("openstack.cli.extension") == {"acstor": "acstorclient.osc.plugin"}
    assert loaded("acstorclient.osc.plugin") is plugin


@pytest.mark.parametrize("name", sorted(entry_points("openstack.acstor.v1")))
def test_each_command_is_there_with_its_help(name: str) -> None:
    found = loaded(entry_points("openstack.acstor.v1")[name])
    assert issubclass(found, command.Command)
    assert found.__doc__
    assert name.startswith("acstor_")


@pytest.mark.parametrize(
    ("asked", "is_known"),
    [
        ("1", True),
        ("1.0", True),
        ("1.12", True),
        ("2", False),
        ("1.", False),
        ("1.01", False),
        ("latest", False),
        ("", False),
        ("1.0\n", False),
    ],
)
def test_microversions_are_taken(asked: str, is_known: bool) -> None:
    assert plugin.check_api_version(asked) is is_known


def test_the_version_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_ACSTOR_API_VERSION", "1.0")
    parser = plugin.build_option_parser(argparse.ArgumentParser())
    assert parser.parse_args([]).os_acstor_api_version == "1.0"
    assert parser.parse_args(["--os-acstor-api-version", "1"]).os_acstor_api_version == "1"


def test_every_import_is_declared_and_none_is_acstors() -> None:
    tops = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                tops |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                tops.add(node.module.partition(".")[0])
    others = tops - set(sys.stdlib_module_names) - {"acstorclient"}
    providers = importlib.metadata.packages_distributions()
    imported = {canonical(name) for top in others for name in providers[top]}
    assert imported == floors((CLIENTS / "requirements.txt").read_text()).keys()


def test_every_requirement_has_a_floor_and_a_licence() -> None:
    text = (CLIENTS / "requirements.txt").read_text()
    assert all(floors(text).values())
    lines = text.splitlines()[1:]
    assert [line for line in lines if not re.search(r" # [A-Z][\w.-]+; ", line)] == []


def numbers(floor: str) -> tuple[int, ...]:
    """Return the numbers of a release."""
    return tuple(int(number) for number in floor.split("."))


def test_no_floor_is_below_that_of_acstor() -> None:
    own = floors((CLIENTS / "requirements.txt").read_text())
    others = floors((ROOT / "requirements.txt").read_text())
    others |= floors((ROOT / "test-requirements.txt").read_text())
    below = [
        name for name in own.keys() & others.keys() if numbers(own[name]) < numbers(others[name])
    ]
    assert below == []


def test_the_distributions_have_one_version() -> None:
    versions = set()
    for path in (ROOT / "setup.cfg", CLIENTS / "setup.cfg"):
        settings = configparser.ConfigParser(interpolation=None)
        settings.read(path)
        versions.add((settings["metadata"]["version"], settings["metadata"]["python_requires"]))
    assert len(versions) == 1


def test_the_wheel_of_acstor_is_without_the_client() -> None:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    assert settings["files"]["packages"].split() == ["acstor"]


def test_environment_and_devstack_install_it() -> None:
    environment = (ROOT / "tools" / "environment").read_text()
    assert "-e clients" in environment
    assert "-r clients/requirements.txt" in environment
    assert "clients" in (ROOT / "devstack" / "lib" / "acstor").read_text()
