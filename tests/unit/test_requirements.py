"""Every distribution that ACStor imports is declared with a floor, where pip reads it."""

import ast
import configparser
import importlib.metadata
import pathlib
import re
import sys

import pytest

from testbed.fixtures.documents import ROOT

HOST_PROGRAMS = {
    "castellan": "cinder",
    "ceilometer": "ceilometer",
    "cinder": "cinder",
    "eventlet": "cinder",
    "nova": "nova",
    "os-brick": "nova",
}
"""Distributions of the programs that load ACStor, by which of them brings them.

They are no requirements: ACStor is installed into their environment, or they are not there.
"""
DRIVERS = ("acstor/drivers/", "acstor/scheduler/")


def canonical(name: str) -> str:
    """Return the name of a distribution as PyPI compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def floors(lines: str) -> dict[str, str]:
    """Return the least versions in lines of requirements, by distribution; empty: none."""
    found = {}
    for line in lines.splitlines():
        requirement = line.partition("#")[0].strip()
        if match := re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?(?:>=([\w.]+))?", requirement):
            found[canonical(match[1])] = match[2] or ""
    return found


def extras() -> dict[str, str]:
    """Return the lines of each extra of setup.cfg."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    return dict(settings["extras"])


def declared() -> dict[str, str]:
    """Return the floors of requirements.txt and of all extras."""
    found = floors((ROOT / "requirements.txt").read_text())
    for lines in extras().values():
        found |= floors(lines)
    return found


def imported() -> dict[str, set[str]]:
    """Return the modules outside ACStor and the standard library, with the files that import them.

    Names below ``TYPE_CHECKING`` count: an editor needs them.
    """
    found: dict[str, set[str]] = {}
    for path in (ROOT / "acstor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in ("acstor", "_typeshed"):
                    found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


def distributions() -> dict[str, set[str]]:
    """Return the distributions that are imported, with the files that import them."""
    providers = importlib.metadata.packages_distributions()
    found: dict[str, set[str]] = {}
    for module, files in imported().items():
        for provider in {canonical(name) for name in providers[module]}:
            found.setdefault(provider, set()).update(files)
    return found


def test_every_import_is_declared() -> None:
    undeclared = distributions().keys() - declared().keys() - HOST_PROGRAMS.keys()
    assert undeclared == set()


def test_host_programs_are_imported_by_drivers_only() -> None:
    found = distributions()
    assert HOST_PROGRAMS.keys() <= found.keys()
    elsewhere = {
        (name, path)
        for name in HOST_PROGRAMS
        for path in found[name]
        if not path.startswith(DRIVERS)
    }
    assert elsewhere == set()


def test_tests_install_the_host_programs() -> None:
    tested = floors((ROOT / "test-requirements.txt").read_text())
    assert set(HOST_PROGRAMS.values()) <= tested.keys()


def test_every_requirement_has_a_floor_and_a_licence() -> None:
    assert [name for name, floor in declared().items() if not floor] == []
    texts = [(ROOT / "requirements.txt").read_text().partition("\n")[2], *extras().values()]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    assert [line for line in lines if not re.search(r" # [A-Z]", line)] == []


def test_no_requirement_is_unused() -> None:
    required = floors((ROOT / "requirements.txt").read_text()).keys()
    unused = required - distributions().keys()
    assert unused == {"pbr"}, "pbr writes the version at build time"


@pytest.mark.parametrize("page", ["install/index.rst", "admin/troubleshooting.rst"])
def test_the_client_of_etcd_is_an_extra(page: str) -> None:
    assert "etcd3gw" in extras()["etcd"]
    text = pathlib.Path(ROOT, "doc", "source", page).read_text()
    assert "[etcd]" in text
    assert "tooz[" not in text
