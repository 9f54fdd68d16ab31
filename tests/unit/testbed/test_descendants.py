"""Processes below this one are found by what was started, whatever a terminal shows of it."""

import subprocess
import sys

import pytest

from testbed.fixtures.descendants import descendants, kill_descendants

MARK = "a) name of (a test)"
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], "x" * 2000, sys.argv[2]], check=False)
"""
CHILD = "import sys; print(flush=True); sys.stdin.read()"


def test_process_is_found_below_another_and_behind_a_long_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, MARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = descendants(MARK)
        assert len(found) == 2
        assert process.pid in found
        (child,) = set(found) - {process.pid}
        assert kill_descendants("x" * 2000 + "\0" + MARK) == [child]
        assert process.wait(60) == 0
    assert descendants(MARK) == []
