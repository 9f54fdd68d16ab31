"""The Cinder driver with real data planes, in a process without Nova."""

import os
import pathlib
import subprocess
import sys

import pytest

SUITE = pathlib.Path(__file__).parent / "cinder"


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_driver_works_with_real_data_planes() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pytest", "-q", str(SUITE)],
        env={**os.environ, "ACSTOR_TEST_CINDER": "1"},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-20000:] + run.stderr[-4000:]
    assert "passed" in run.stdout
