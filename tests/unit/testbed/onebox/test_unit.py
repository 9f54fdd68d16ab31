"""Commands that leave processes no more than their units do."""

import pathlib

import pytest

from testbed.onebox import unit
from testbed.onebox.directory import OneBoxDirectory

PROGRAM = ("/bin/program", "an argument")


@pytest.fixture
def directory() -> OneBoxDirectory:
    return OneBoxDirectory(pathlib.Path("/nowhere"))


def script(name: str, directory: OneBoxDirectory) -> str:
    shell, option, text = unit.command(name, PROGRAM, directory)
    assert (shell, option) == ("/bin/sh", "-ec")
    return text


def test_data_plane_is_a_user_without_capabilities(directory: OneBoxDirectory) -> None:
    text = script("acstor-dataplane", directory)
    assert "--reuid=acstor --regid=acstor --init-groups --no-new-privs" in text
    assert "--bounding-set=-all /bin/program" in text
    assert "exec unshare --mount --propagation=slave" in text


def test_state_is_given_before_the_data_plane_starts(directory: OneBoxDirectory) -> None:
    first, *rest = script("acstor-dataplane", directory).splitlines()
    assert "/nowhere/venv/bin/acstor-mount" in first
    assert "--give-state" in first
    assert not first.startswith("+")
    assert rest


def test_what_mounts_is_in_the_hosts_mount_namespace(directory: OneBoxDirectory) -> None:
    text = script("acstor-mount", directory)
    assert "unshare" not in text
    assert "--reuid" not in text
    assert "--regid=acstor" in text
    assert "--bounding-set=-all,+sys_admin /bin/program 'an argument'" in text
    assert "install -d -m 0755 -o root -g acstor /run/acstor-mount" in text


def test_agent_is_root_with_two_capabilities(directory: OneBoxDirectory) -> None:
    text = script("acstor-agent", directory)
    assert "--reuid" not in text
    assert "--bounding-set=-all,+dac_override,+chown" in text


def test_drop_in_adds_to_what_the_unit_leaves(directory: OneBoxDirectory) -> None:
    text = unit.command("acstor-agent", PROGRAM, directory, "acstor-agent-captures")[-1]
    assert "--bounding-set=-all,+dac_override,+chown,+dac_read_search,+setuid," in text


def test_registrar_has_its_directories(directory: OneBoxDirectory) -> None:
    text = script("acstor-registrar", directory)
    for name in ("registration", "spool"):
        assert f"install -d -m 0750 -o acstor -g acstor /var/lib/acstor/{name}\n" in text


def test_user_gets_to_an_interpreter_in_a_closed_directory(
    directory: OneBoxDirectory, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "python").mkdir(parents=True)
    home.chmod(0o700)
    monkeypatch.setattr("sys.base_prefix", str(home / "python"))
    text = script("acstor-dataplane", directory)
    assert "mount -t tmpfs" in text
    assert f"{home}/python\n" in text
    assert "tmpfs" not in script("acstor-agent", directory)
