"""The file of members' machines."""

import copy
import pathlib
import tomllib
from typing import Any

import pytest

from acstor import exception
from acstor.origin.replicated.power import machines
from acstor.origin.replicated.power.drivers.command import CommandDriver
from acstor.origin.replicated.power.drivers.memory import MemoryDriver
from acstor.origin.replicated.power.drivers.redfish import RedfishDriver
from acstor.origin.replicated.power.machines import load_machines, parse_machines
from testbed.fixtures.documents import ROOT

GOLDEN = ROOT / "tests" / "golden" / "power-members-v1.toml"
FIELDS = tomllib.loads(GOLDEN.read_text())


def test_machines_version_requires_update() -> None:
    assert machines.MACHINES_VERSION == 1
    found = load_machines(str(GOLDEN))
    assert {name: one.watts for name, one in found.items()} == {
        "ceph": 900.0,
        "nfs": 350.5,
        "old": 200.0,
        "try": None,
    }
    kinds = {name: type(one.driver) for name, one in found.items()}
    assert kinds == {
        "ceph": type(None),
        "nfs": RedfishDriver,
        "old": CommandDriver,
        "try": MemoryDriver,
    }


@pytest.mark.parametrize(
    ("member", "changes"),
    [
        ("nfs", {"url": "bmc-nfs"}),
        ("nfs", {"url": "http://bmc-nfs.example"}),
        ("nfs", {"url": "https://user:secret@bmc-nfs.example"}),
        ("nfs", {"system": ""}),
        ("nfs", {"username": ""}),
        ("nfs", {"password_file": 7}),
        ("nfs", {"off": "Suspend"}),
        ("nfs", {"on": ["/bin/true"]}),
        ("nfs", {"watts": -1}),
        ("nfs", {"watts": True}),
        ("nfs", {"deadline": 0}),
        ("nfs", {"driver": "shell"}),
        ("old", {"on": "ipmitool on"}),
        ("old", {"on": []}),
        ("old", {"on": ["ipmitool", "on"]}),
        ("old", {"on": ["/bin/x", 7]}),
        ("old", {"on": ["/bin/x"] * 101}),
        ("old", {"state": None}),
        ("Not A Name", {}),
    ],
)
def test_malformed_members_are_refused(member: str, changes: dict[str, Any]) -> None:
    fields = copy.deepcopy(FIELDS)
    fields["members"].setdefault(member, {}).update(changes)
    with pytest.raises(ValueError, match=member):
        parse_machines(fields)


@pytest.mark.parametrize(
    "content", ["", "version = 2", "version = 1\nmore = 1", "version = 1\nmembers = 1", "=", "\0"]
)
def test_malformed_files_are_refused(content: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "power.toml"
    path.write_text(content)
    with pytest.raises(exception.ConfigurationError, match=r"power\.toml"):
        load_machines(str(path))
    path.unlink()
    with pytest.raises(exception.ConfigurationError, match="No such file"):
        load_machines(str(path))
