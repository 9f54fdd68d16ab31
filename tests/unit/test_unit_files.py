"""The unit files say what the take-over of the mount depends on."""

import configparser
import pathlib
import shutil
import subprocess

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "etc" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
NAMESPACE_DIRECTIVES = {
    "BindPaths", "BindReadOnlyPaths", "InaccessiblePaths", "MountFlags", "PrivateDevices",
    "PrivateMounts", "PrivateTmp", "ProtectControlGroups", "ProtectHome", "ProtectKernelLogs",
    "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "ProtectSystem",
    "ReadOnlyPaths", "ReadWritePaths", "RootDirectory", "RootImage", "TemporaryFileSystem",
}  # fmt: skip
"""Each gives a unit a mount namespace of its own (systemd.exec(5))."""


def read(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(FOLDER / name)
    return unit


def test_data_plane_keeps_its_descriptors_over_restarts() -> None:
    unit = read("acstor-dataplane.service")
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert int(service["FileDescriptorStoreMax"]) >= 2
    assert service["NotifyAccess"] == "main"
    assert service["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert (service["RestartKillSignal"], service["KillSignal"]) == ("SIGTERM", "SIGINT")
    assert "WatchdogSec" in service


def test_images_are_there_before_those_who_need_them() -> None:
    before = read("acstor-dataplane.service")["Unit"]["Before"].split()
    assert {"libvirtd.service", "virtqemud.service", "nova-compute.service"} <= set(before)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_has_no_mount_namespace_of_its_own(path: pathlib.Path) -> None:
    assert not NAMESPACE_DIRECTIVES & set(read(path.name)["Service"])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_is_well_formed(path: pathlib.Path) -> None:
    result = subprocess.run(
        ["systemd-analyze", "verify", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    complaints = [
        line for line in result.stderr.splitlines()
        if path.name in line and "is not executable" not in line
    ]  # fmt: skip
    assert complaints == []
