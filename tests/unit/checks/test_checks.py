"""The command as an operator meets it."""

import json
import pathlib
import subprocess
import sys
import threading
from typing import Any

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code, Result

from acstor import exception
from acstor.checks import upgrade
from acstor.checks.verdict import success
from acstor.cmd import status
from tests.unit.checks.conftest import Configure, text


def run_json(
    config_file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, dict[str, Any]]]:
    code = status.main(["--config-file", str(config_file), "upgrade", "check", "--json"])
    shown = json.loads(capsys.readouterr().out)
    return code, {entry["check"]: entry for entry in shown["checks"]}


def test_json_has_every_check_and_the_worst_result(
    config_file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = run_json(config_file, capsys)
    assert list(shown) == [upgrade.FIRST[0], *(name for name, _ in upgrade.OTHERS)]
    assert code == Code.FAILURE  # there is no repository yet
    assert shown["Origin and repository format"]["result"] == Code.FAILURE
    assert shown["Messages"]["result"] == Code.WARNING
    assert shown["Kernel"]["result"] == Code.SUCCESS


def test_nothing_but_json_is_written_to_stdout(config_file: pathlib.Path) -> None:
    """Warnings that a check's subject logs stay out of it, too."""
    config_file.write_text(config_file.read_text() + "[store]\ncapacityy = 1\n")
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from acstor.cmd import status; sys.exit(status.main())",
            *("--config-file", str(config_file), "upgrade", "check", "--json"),
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == Code.FAILURE
    assert json.loads(result.stdout)["name"] == "ACStor upgrade check"


def test_table_is_for_people(config_file: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["--config-file", str(config_file), "upgrade", "check"]) == Code.FAILURE
    assert "| Check: Ring format" in capsys.readouterr().out


def test_wrong_value_leaves_the_other_checks_out(
    config_file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_file.write_text(config_file.read_text() + "[agent]\ninterval = often\n")
    code, shown = run_json(config_file, capsys)
    assert code == Code.FAILURE
    assert "[agent] interval = 'often'" in shown[upgrade.FIRST[0]]["details"]
    del shown[upgrade.FIRST[0]]
    assert {entry["result"] for entry in shown.values()} == {Code.WARNING}


@pytest.mark.parametrize("content", [None, "no section\n"])
def test_unreadable_configuration_is_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    path = tmp_path / "bad.conf"
    if content is not None:
        path.write_text(content)
    assert status.main(["--config-file", str(path), "upgrade", "check"]) == 255
    error = capsys.readouterr().err
    assert error.startswith("acstor-status: error: ")
    assert str(path) in error
    assert error.count("\n") == 1


def test_check_that_raises_is_a_failure(configure: Configure) -> None:
    def known(_: cfg.ConfigOpts) -> Result:
        raise exception.UnavailableError("it is away", hint="wait")

    def unknown(_: cfg.ConfigOpts) -> Result:
        raise RuntimeError("what\nis this")

    conf = configure()
    assert text(upgrade.run(known, conf)) == "it is away; wait"
    result = upgrade.run(unknown, conf)
    assert result.code is Code.FAILURE
    assert text(result) == "the check itself failed: RuntimeError: what is this"


def test_check_that_hangs_is_a_failure(configure: Configure) -> None:
    release = threading.Event()

    def hang(_: cfg.ConfigOpts) -> Result:
        release.wait()
        return success("late")

    result = upgrade.run(hang, configure(), timeout=0.05)
    release.set()
    assert result.code is Code.FAILURE
    assert text(result).startswith("no answer within 0.05 s")


def test_no_check_is_the_first_to_import_what_holds_its_thread() -> None:
    """A thread that imports eventlet, which tooz may do, before the main thread has: never ends."""
    program = "import sys, acstor.checks.upgrade; print('tooz.coordination' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True, text=True
    )
    assert shown.stdout == "True\n"
