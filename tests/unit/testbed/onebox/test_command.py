"""The command line: what it refuses, and how it says so."""

import os
import pathlib

import pytest

from testbed.onebox import command


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_needs_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert command.main(["status"]) != 0
    assert "needs root" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["status"], ["stop", "glance"], ["exec", "true"], ["set"]])
def test_without_a_one_box_says_how_to_get_one(
    arguments: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Its own, short: paths of unix sockets are.
    assert command.main(["--directory", "/var/tmp/acstor-no-box", *arguments]) != 0
    assert "tools/onebox up makes one" in capsys.readouterr().err


def test_down_of_nothing_makes_nothing() -> None:
    assert command.main(["--directory", "/var/tmp/acstor-no-box", "down", "--purge"]) == 0
    assert not pathlib.Path("/var/tmp/acstor-no-box").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--option", "nova"],
        ["up", "--hosts", "many"],
        ["up", "--origin", "nfs"],
        ["set", "nova:x=1"],
        ["restart"],
        [],
    ],
)
def test_a_wrong_command_line_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
    assert "usage: tools/onebox" in capsys.readouterr().err


def test_hosts_have_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--directory", "/var/tmp/acstor-no-box", "up", "--hosts", "99"]) != 0
    assert "1 to 8 compute hosts" in capsys.readouterr().err
    assert not pathlib.Path("/var/tmp/acstor-no-box").exists()
