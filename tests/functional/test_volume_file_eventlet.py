"""The file of a volume in a process that eventlet has patched, as Cinder's are."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from testbed.doubles.memory_nbd_server import MemoryNbdServer

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "functional" / "programs" / "green_volume_file.py"


def test_file_gives_way_to_others_and_works_in_native_threads(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("eventlet")
    path = str(tmp_path / "nbd.sock")
    server = MemoryNbdServer(path, "volume", 4 << 20)
    server.start()
    try:
        result = subprocess.run(
            [sys.executable, str(PROGRAM), path, "volume"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        server.stop()
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == [True] * 4
