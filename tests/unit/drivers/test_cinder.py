"""The tests of everything that imports Cinder, in a process without Nova."""

import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

SUITE = pathlib.Path(__file__).parent / "cinder"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_suite_of_cinder_passes_in_a_process_of_its_own(tmp_path: pathlib.Path) -> None:
    report = tmp_path / "report.xml"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pytest", "-q", f"--junitxml={report}", str(SUITE)],
        env={**os.environ, "ACSTOR_TEST_CINDER": "1"},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-20000:] + run.stderr[-4000:]
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    assert int(suite.attrib["tests"]) > 20
    assert int(suite.attrib["skipped"]) == 0
