"""The unit files say what the take-over of the mount depends on."""

import configparser
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from acstor.conf import dataplane, registrar
from acstor.conf.types import ByteSize
from acstor.dataplane import given_state
from acstor.mounting import protocol, server
from acstor.supervision.protocol import EXIT_STOPPED

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "etc" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
INSTALLED = "/opt/acstor"
COMPUTE = [path for path in UNITS if path.stem in {"acstor-agent", "acstor-dataplane"}]
"""Units of compute hosts: they share Nova's and libvirt's view of the file system."""
NAMESPACE_DIRECTIVES = {
    "BindPaths", "BindReadOnlyPaths", "InaccessiblePaths", "MountFlags", "PrivateDevices",
    "PrivateMounts", "PrivateTmp", "ProtectControlGroups", "ProtectHome", "ProtectKernelLogs",
    "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "ProtectSystem",
    "ReadOnlyPaths", "ReadWritePaths", "RootDirectory", "RootImage", "TemporaryFileSystem",
}  # fmt: skip
"""Directives that give a unit a mount namespace of its own (systemd.exec(5))."""


def read(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(FOLDER / name)
    return unit


def words(name: str, key: str) -> set[str]:
    """Return the words of all lines of a key; configparser knows only the last."""
    lines = (FOLDER / name).read_text().splitlines()
    return {
        word
        for line in lines
        if line.startswith(f"{key}=")
        for word in line[len(key) + 1 :].split()
    }


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


def test_nobody_stops_the_data_plane_by_mistake() -> None:
    """A stop, or a restart, of the unit by hand; what was asked to stop for good stays stopped."""
    unit = read("acstor-dataplane.service")
    assert unit["Unit"]["RefuseManualStop"] == "yes"
    for key in ("RestartPreventExitStatus", "SuccessExitStatus"):
        assert unit["Service"][key] == str(EXIT_STOPPED), key


@pytest.mark.parametrize(
    "folder", ["doc/source/admin", "doc/source/user", "doc/source/install", "devstack", "acstor"]
)
def test_nobody_is_told_to_stop_the_data_plane_by_systemctl(folder: str) -> None:
    """systemd refuses it; the pages that say so are left out."""
    told = re.compile(r"systemctl[a-z -]*(--now|stop|restart)[a-z -]*acstor-dataplane")
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix not in {".rst", ".py", ".sh", ""} or not path.is_file():
            continue
        for line in path.read_text(errors="replace").splitlines():
            if told.search(line) and "enable --now" not in line and "is refused" not in line:
                pytest.fail(f"{path}: {line}")


def test_images_are_there_before_those_who_need_them() -> None:
    needed_by = {"libvirtd.service", "virtqemud.service", "nova-compute.service"}
    for path in COMPUTE:
        assert needed_by <= words(path.name, "Before"), path.name


def test_images_are_there_until_the_last_guest_is_down() -> None:
    """Units stop in the opposite order of their start."""
    before = words("acstor-dataplane.service", "Before")
    assert {"libvirt-guests.service", "virt-guest-shutdown.target"} <= before


def test_unit_that_mounts_has_no_mount_namespace_of_its_own() -> None:
    assert not NAMESPACE_DIRECTIVES & set(read("acstor-mount.service")["Service"])


def test_unit_that_mounts_is_there_before_the_data_plane_and_after() -> None:
    """Units stop in the opposite order of their start; neither takes the other down."""
    data_plane = "acstor-dataplane.service"
    assert "acstor-mount.service" in words(data_plane, "After") & words(data_plane, "Wants")
    assert data_plane in words("acstor-mount.service", "Before")
    for unit in (data_plane, "acstor-mount.service"):
        assert not {"Requires", "BindsTo", "PartOf", "Requisite"} & set(read(unit)["Unit"])


def test_operation_under_way_ends_before_the_unit_that_mounts_does() -> None:
    service = read("acstor-mount.service")["Service"]
    unmount = protocol.OPERATIONS[protocol.Operation.UNMOUNT].timeout
    assert unmount <= server.STOP_TIMEOUT < float(service["TimeoutStopSec"].removesuffix("s"))


def test_data_plane_is_an_ordinary_user() -> None:
    service = read("acstor-dataplane.service")["Service"]
    user = service["User"]
    assert user == {option.name: option.default for option in dataplane.OPTIONS}["user"]
    users = (ROOT / "etc" / "sysusers.d" / "acstor.conf").read_text()
    assert f"u {user} " in users
    for group in ("acstor-volumes", "acstor-nbd"):
        assert f"m {user} {group}" in users, "or it could not give them sockets"
    # systemd would give everything in them away, the group of sockets too.
    assert not {"RuntimeDirectory", "StateDirectory"} & set(service)
    assert "mount" not in words("acstor-dataplane.service", "SystemCallFilter")
    assert service["ExecStartPre"].startswith("+")
    assert "RuntimeDirectory" not in set(read("acstor-agent.service")["Service"])


def test_state_is_given_before_the_start_where_the_configuration_is_newer(
    tmp_path: pathlib.Path,
) -> None:
    """And not each time: guests wait for the start."""
    command = read("acstor-dataplane.service")["Service"]["ExecStartPre"]
    *_, script = shlex.split(command.removeprefix("+"))
    given, configuration = tmp_path / "given", tmp_path / "acstor.conf"
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$@" home=$HOME\n')
    program.chmod(0o755)
    for before, after in (
        (given_state.GIVEN_BY_DEFAULT, given), ("/etc/acstor/acstor.conf", configuration),
        ("/usr/bin/acstor-mount", program),
    ):  # fmt: skip
        assert before in script
        script = script.replace(before, str(after))

    def printed() -> str:
        return subprocess.run(
            ["sh", "-c", script], check=True, capture_output=True, text=True, timeout=30
        ).stdout

    configuration.write_text("")
    assert "--give-state" in printed()
    # systemd has it run as root with the home of the unit's user, whose Python modules are in it.
    assert printed().endswith("home=\n")
    given.write_text("")
    os.utime(configuration, (1, 1))
    assert printed() == ""
    os.utime(given, (0, 0))
    assert "--give-state" in printed()


def test_state_is_given_again_where_a_start_failed(tmp_path: pathlib.Path) -> None:
    """State that root wrote or took away meanwhile is given again: after a downgrade, after a
    restore."""
    command = read("acstor-dataplane.service")["Service"]["ExecStopPost"]
    *_, script = shlex.split(command.removeprefix("+").replace("$$", "$"))
    given = tmp_path / "given"
    script = script.replace(given_state.GIVEN_BY_DEFAULT, str(given))
    for result, is_kept in (
        ("success", True), ("signal", True), ("watchdog", True), ("exit-code", False),
        ("exit-code", False),
    ):  # fmt: skip
        if is_kept:
            given.write_text("")
        variables = {**os.environ, "SERVICE_RESULT": result}
        subprocess.run(["sh", "-c", script], check=True, env=variables, timeout=30)
        assert given.exists() is is_kept, result


def test_agent_sees_the_mounts_of_the_host() -> None:
    """Its mount namespace is what systemd makes by default, a slave; Nova's files are in it."""
    directives = set(read("acstor-agent.service")["Service"])
    assert not directives & {
        "BindPaths", "BindReadOnlyPaths", "InaccessiblePaths", "MountFlags", "ReadOnlyPaths",
        "RootDirectory", "RootImage", "TemporaryFileSystem",
    }  # fmt: skip
    assert read("acstor-agent.service")["Service"]["ProtectSystem"] == "full"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_keeps_few_privileges(path: pathlib.Path) -> None:
    kept = {
        "acstor-mount": {"CAP_SYS_ADMIN"},
        "acstor-agent": {"CAP_DAC_OVERRIDE", "CAP_CHOWN"},
    }
    assert words(path.name, "CapabilityBoundingSet") == kept.get(path.stem, set())
    service = read(path.name)["Service"]
    for key in ("NoNewPrivileges", "RestrictNamespaces", "RestrictSUIDSGID", "LockPersonality"):
        assert service[key] == "yes", key
    assert "@system-service" in words(path.name, "SystemCallFilter")
    # Nothing is killed for a call that a new release of a library tries first.
    assert service.get("SystemCallErrorNumber", "EPERM") == "EPERM"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_exposure_of_the_unit_is_what_the_page_says(path: pathlib.Path) -> None:
    """``systemd-analyze security``: 0 is the best, 10 the worst."""
    page = (ROOT / "doc/source/admin/running.rst").read_text()
    row = re.search(rf"\* - ``{path.name}``\n     - [\d.]+\n     - ([\d.]+)\n", page)
    assert row, path.name
    result = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=true", str(path)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", result.stdout)
    assert found, result.stdout[-200:]
    # Releases of systemd differ a little in what they count.
    assert float(found[1]) <= float(row[1]) + 0.2


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_starts_a_program_that_is_installed(path: pathlib.Path) -> None:
    program = read(path.name)["Service"]["ExecStart"].split()[0]
    scripts = configparser.ConfigParser(interpolation=None)
    scripts.read(ROOT / "setup.cfg")
    installed = scripts["entry_points"]["console_scripts"]
    assert f"{pathlib.PurePath(program).name} = " in installed


def test_registrar_is_an_ordinary_user() -> None:
    service = read("acstor-registrar.service")["Service"]
    assert service["CapabilityBoundingSet"] == ""
    user = service["User"]
    assert f"u {user} " in (ROOT / "etc" / "sysusers.d" / "acstor.conf").read_text()
    # The directory above is root's: the last component is what systemd gives to the user.
    assert all("/" in name for name in service["StateDirectory"].split())
    state = " ".join(read("acstor-agent.service")["Service"]["StateDirectory"].split())
    assert state not in service["StateDirectory"].split()


def test_registrations_have_the_memory_that_they_may_take() -> None:
    """And one that takes more ends alone."""
    service = read("acstor-registrar.service")["Service"]
    defaults = {option.name: option.default for option in registrar.OPTIONS}
    wanted = int(defaults["workers"]) * ByteSize()(defaults["job_memory"])
    assert ByteSize()(service["MemoryMax"]) >= wanted + (2 << 30)
    assert service["OOMPolicy"] == "continue"


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("systemd-sysusers"), reason="needs systemd-sysusers")
def test_snippets_make_what_the_registrar_needs(tmp_path: pathlib.Path) -> None:
    """Applied to an empty root directory."""
    for folder in ("etc/acstor", "run", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("acstor.conf", "secrets.conf"):
        (tmp_path / "etc/acstor" / name).write_text("password")
    for command in (
        ["systemd-sysusers", f"--root={tmp_path}", str(ROOT / "etc/sysusers.d/acstor.conf")],
        [
            "systemd-tmpfiles",
            "--create",
            f"--root={tmp_path}",
            str(ROOT / "etc/tmpfiles.d/acstor.conf"),
        ],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    passwd = (tmp_path / "etc/passwd").read_text().splitlines()
    user = next(int(line.split(":")[2]) for line in passwd if line.startswith("acstor:"))
    spool = (tmp_path / "var/lib/acstor/spool").stat()
    assert (spool.st_uid, spool.st_mode & 0o777) == (user, 0o750)
    assert (tmp_path / "run/acstor").stat().st_uid == user
    assert (tmp_path / "var/lib/acstor").stat().st_uid == 0
    config = (tmp_path / "etc/acstor/acstor.conf").stat()
    assert (config.st_uid, config.st_gid, config.st_mode & 0o777) == (0, user, 0o640)
    secrets = (tmp_path / "etc/acstor/secrets.conf").stat()
    assert (secrets.st_uid, secrets.st_mode & 0o777) == (0, 0o600)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_documentation_of_the_unit_is_installed(path: pathlib.Path) -> None:
    """The guide installs the pages that ``systemctl help`` names."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    lines = setup["files"]["data_files"].strip().splitlines()
    installed = {
        f"{INSTALLED}/{target.strip()}/{source.name}"
        for target, _, pattern in (line.partition("=") for line in lines)
        for source in ROOT.glob(pattern.strip())
    }
    pages = words(path.name, "Documentation")
    assert pages
    assert {page.removeprefix("file:") for page in pages} <= installed


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
