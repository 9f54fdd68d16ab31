import os
import pathlib
import pwd

import pytest

from acstor import exception
from acstor.conf import config_files, loading


@pytest.fixture
def files(tmp_path: pathlib.Path) -> tuple[str, str]:
    """A machine's configuration, and its passwords beside it."""
    plain, secrets = tmp_path / "acstor.conf", tmp_path / "secrets.conf"
    plain.write_text("[DEFAULT]\nhost = compute1\n[rpc]\nsecrets = old\n")
    secrets.write_text("[rpc]\nsecrets = new\n")
    return str(plain), str(secrets)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--config-file", "{0}"], []),
        (["--config-file={0}"], []),
        (["--config-file", "{0}"], ["upgrade", "check"]),
        (["--debug", "--config-file", "{0}"], ["x", "--json"]),
        (["--config-file", "/somewhere/else", "--config-file", "{0}"], ["x"]),
    ],
)
def test_passwords_are_read_behind_the_file_that_they_are_beside(
    files: tuple[str, str], before: list[str], after: list[str]
) -> None:
    before = [part.format(files[0]) for part in before]
    found = config_files.with_secrets([*before, *after])
    assert found == [*before, "--config-file", files[1], *after]


def test_what_is_named_already_is_named_once(files: tuple[str, str]) -> None:
    arguments = ["--config-file", files[1], "--config-file", files[0]]
    assert config_files.with_secrets(arguments) == arguments


def test_default_file_is_read_where_it_exists(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_files, "DEFAULT_FILE", files[0])
    named = ["--config-file", files[0], "--config-file", files[1]]
    assert config_files.with_secrets(["run"]) == [*named, "run"]
    os.unlink(files[1])
    assert config_files.with_secrets([]) == named[:2]
    os.unlink(files[0])
    assert config_files.with_secrets([]) == []


def test_secret_of_the_later_file_wins(files: tuple[str, str]) -> None:
    conf = loading.load("test", ["--config-file", files[0]])
    assert (conf.host, conf.rpc.secrets) == ("compute1", ["new"])


@pytest.mark.root
def test_user_who_may_not_read_the_passwords_does_without(files: tuple[str, str]) -> None:
    plain, secrets = map(pathlib.Path, files)
    for parent in plain.parents[:-2]:
        parent.chmod(0o755)
    secrets.chmod(0o600)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresuid(*[pwd.getpwnam("nobody").pw_uid] * 3)
        named = ["--config-file", files[0]]
        os._exit(0 if config_files.with_secrets(named) == named else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert files[1] in config_files.with_secrets(["--config-file", files[0]]), "root reads it"


@pytest.mark.root
def test_passwords_that_somebody_else_has_put_there_are_not_read(files: tuple[str, str]) -> None:
    named = ["--config-file", files[0]]
    os.chown(files[1], pwd.getpwnam("nobody").pw_uid, -1)
    assert config_files.with_secrets(named) == named
    os.chown(files[1], 0, 0)
    os.chmod(files[1], 0o602)
    assert config_files.with_secrets(named) == named
    os.chmod(files[1], 0o600)
    assert files[1] in config_files.with_secrets(named)


def test_directory_of_that_name_is_no_file_of_passwords(files: tuple[str, str]) -> None:
    os.unlink(files[1])
    os.mkdir(files[1])
    assert config_files.with_secrets(["--config-file", files[0]]) == ["--config-file", files[0]]


def test_service_does_not_begin_without_passwords_that_are_there_for_others(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, how: path != files[1])
    arguments = ["--config-file", files[0]]
    for program in ("acstor-agent", "acstor-policy", "acstor-registrar"):
        with pytest.raises(exception.ConfigurationError, match="may not be read by this user"):
            loading.load(program, arguments)
    assert loading.load("acstor-dataplane", arguments).rpc.secrets == ["old"]


def test_lines_of_malformed_passwords_are_not_told(files: tuple[str, str]) -> None:
    pathlib.Path(files[1]).write_text("[rpc]\nsecrets topsecret\n")
    with pytest.raises(exception.ConfigurationError, match="malformed") as caught:
        loading.load("acstor-agent", ["--config-file", files[0]])
    assert "topsecret" not in str(caught.value)


def test_file_that_is_no_text_is_an_error_of_the_configuration(files: tuple[str, str]) -> None:
    pathlib.Path(files[1]).write_bytes(b"[rpc]\nsecrets = \xff\xfe\n")
    with pytest.raises(exception.ConfigurationError, match="unreadable"):
        loading.load("acstor-agent", ["--config-file", files[0]])
