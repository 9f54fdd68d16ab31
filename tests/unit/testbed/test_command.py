"""The command line of the testbed."""

import pathlib

import pytest

from testbed import command
from testbed.approaches.names import APPROACHES
from testbed.run_directory import RunDirectory


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["demo", "--hosts", "many"],
        ["demo", "--origin-link", "fast"],
        ["demo", "--approaches", "acstor,magic"],
        ["trace"],
    ],
)
def test_wrong_usage_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        command.main(arguments)
    assert error.value.code == 2


def test_all_approaches_are_four() -> None:
    assert list(APPROACHES) == ["non-cache", "local-cache", "static-collaborative", "acstor"]
    for name, approach in APPROACHES.items():
        assert approach.name == name
        assert approach.title
        assert approach.explanation


def test_runs_lists_who_owns_what(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running, left_up, crashed = (RunDirectory.create(tmp_path) for _ in range(3))
    left_up.detach()
    left_up.release()
    crashed.release()
    assert command.main(["--root", str(tmp_path), "runs"]) == 0
    lines = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert lines == {running.id: "running", left_up.id: "up", crashed.id: "abandoned"}


def test_error_is_one_line_with_what_to_do(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert command.main(["--root", str(tmp_path), "demo", "--hosts", "0"]) != 0
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "1 to 256" in error
    assert "--hosts" in error


def test_without_root_says_so(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert command.main(["--root", str(tmp_path), "up"]) != 0
    assert "needs root" in capsys.readouterr().err
