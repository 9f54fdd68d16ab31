"""Daemons of a Ceph for tests, without a Ceph."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from testbed.fixtures.conditions import wait_for

ROOT = pathlib.Path(__file__).parents[3]
STARTER = """
import pathlib, sys, time
from testbed.fixtures import ceph
with ceph._daemon(ceph.CephNode(pathlib.Path(sys.argv[1])), "mon", "a") as daemon:
    print(daemon.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """Have a program in the place of ``ceph-mon`` that does not end of its own accord."""
    program = tmp_path / "ceph-mon"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def runs(pid: int) -> bool:
    """Return whether a process has not ended, be it reaped or not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_daemon_ends_with_a_killed_starter(
    tmp_path: pathlib.Path, environment: dict[str, str]
) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as starter:
        assert starter.stdout is not None
        daemon = int(starter.stdout.readline())
        starter.kill()
    wait_for("the end of the daemon", lambda: not runs(daemon))


def test_daemon_whose_starter_ended_first_ends(
    tmp_path: pathlib.Path, environment: dict[str, str]
) -> None:
    """On a busy machine it takes time after the start until the signal is asked for."""
    slow = tmp_path / "setpriv"
    real = shutil.which("setpriv")
    slow.write_text(f"""#!/bin/sh
echo $$ > {tmp_path}/pid
until [ "$(cut -d' ' -f4 /proc/$$/stat)" != "$PPID" ]; do sleep 0.05; done
exec {real} "$@"
""")
    slow.chmod(0o755)
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as starter:
        assert starter.stdout is not None
        daemon = int(starter.stdout.readline())
        wait_for("the start", (tmp_path / "pid").exists)
        starter.kill()
    wait_for("the end of the daemon", lambda: not runs(daemon))
