"""The tests of everything that imports Cinder, in a process without Nova."""

import ast
import configparser
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

SUITE = pathlib.Path(__file__).parent / "cinder"
ROOT = pathlib.Path(__file__).parents[3]
SUITES = {"cinder": SUITE, "onebox": ROOT / "tests/onebox"}
MATRIX = ROOT / "doc/source/reference/cinder-support-matrix.rst"
SAMPLE = ROOT / "etc/acstor/cinder.conf.backend"
CINDERS_ROWS = (
    "Supported vendor driver",
    "Extend an attached volume",
    "QoS",
    "Volume replication",
    "Consistency groups",
    "Thin provisioning",
    "Volume migration (storage assisted)",
    "Multi-attach",
    "Revert to snapshot",
    "Active/active high availability",
)
"""Rows of Cinder's doc/source/reference/support-matrix.ini."""


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
    assert int(suite.attrib["tests"]) > 250
    assert int(suite.attrib["skipped"]) == 0


def _rows(text: str) -> list[tuple[str, str, str]]:
    """Return feature, whether it is supported, and the rest of each row of the tables."""
    return [
        (first.strip(), second.strip(), " ".join(rest.split()))
        for first, second, rest in re.findall(
            r"^   \* - (.+)\n     - (.+)\n     - ((?:.+\n)+?)(?=   \* - |\n|\Z)", text, re.MULTILINE
        )
        if first != "Feature"
    ]


def test_support_matrix_has_the_rows_of_cinders() -> None:
    own, _, _ = MATRIX.read_text().partition("Further features of drivers")
    assert tuple(feature for feature, _, _ in _rows(own)) == CINDERS_ROWS


def test_tests_that_the_support_matrix_names_exist() -> None:
    rows = _rows(MATRIX.read_text())
    assert len(rows) > 25
    for feature, supported, shown in rows:
        named = re.findall(r"``(cinder|onebox)/(test_\w+\.py)::(test_\w+)``", shown)
        assert named, f"{feature} ({supported}) names no test"
        assert shown.count("::") == len(named), f"{feature} names what is no test: {shown}"
        for suite, file, name in named:
            defined = {
                node.name
                for node in ast.parse((SUITES[suite] / file).read_text()).body
                if isinstance(node, ast.FunctionDef)
            }
            assert name in defined, f"{feature}: {suite}/{file}::{name}"


def test_sample_names_options_that_exist() -> None:
    from acstor.drivers.cinder.options import OPTIONS

    known = {option.name: option.default for option in OPTIONS}
    named = re.findall(r"^#? ?(acstor_\w+) = (.+)$", SAMPLE.read_text(), re.MULTILINE)
    assert len(named) >= 4
    assert {name for name, _ in named} <= known.keys()
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(SAMPLE.read_text())
    section = parser[parser["DEFAULT"]["enabled_backends"]]
    module, _, name = section["volume_driver"].rpartition(".")
    source = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    assert name in {node.name for node in source.body if isinstance(node, ast.ClassDef)}


def test_guide_names_every_option_and_default() -> None:
    from acstor.drivers.cinder.options import OPTIONS

    guide = (ROOT / "doc/source/install/cinder.rst").read_text()
    for option in OPTIONS:
        row = re.search(rf"^   \* - ``{option.name}``\n     -(.*)$", guide, re.MULTILINE)
        assert row, option.name
        default = option.default
        if isinstance(default, bool):
            assert row[1].strip() == str(default).lower()
        elif isinstance(default, int | float):
            assert row[1].split()[0] == f"{default:g}", option.name
