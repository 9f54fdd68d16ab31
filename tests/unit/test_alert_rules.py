"""The alerts that are shipped: metrics that exist, explained, and tested."""

import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.fixtures.documents import ROOT, SOURCE

ADMIN = SOURCE / "admin"
RULES = ROOT / "etc" / "prometheus" / "acstor.rules.yaml"
RULE_TESTS = RULES.with_name("acstor.rules.test.yaml")
METRIC_PAGES = "".join(
    path.read_text()
    for path in (*ADMIN.glob("metrics-*.rst"), ADMIN / "registrar.rst", ADMIN / "policy.rst")
)
"""Tests of their own compare these with the code."""
_SUFFIXES = re.compile(r"_(total|bucket|sum|count)$")


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def undocumented(expression: str) -> Iterator[str]:
    """Yield the metrics, and the values of their labels, that no page of the metrics has."""
    for name in re.findall(r"\bacstor_\w+", expression):
        if not re.search(rf"``{name}``|``{_SUFFIXES.sub('', name)}(_total)?``", METRIC_PAGES):
            yield name
    for value in re.findall(r'\b(?!job\b)\w+="(\w+)"', expression):
        if f"``{value}``" not in METRIC_PAGES:
            yield value


def test_what_is_not_documented_is_noticed() -> None:
    assert list(undocumented('rate(acstor_reads_total{result!="ok"}[5m])')) == []
    assert list(undocumented('acstor_made_up{result="made_up"}')) == ["acstor_made_up", "made_up"]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_alert_is_of_documented_metrics(alert: dict[str, Any]) -> None:
    assert list(undocumented(alert["expr"])) == []
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert alert["annotations"]["summary"]


def test_every_alert_is_explained_and_tested() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names)) > 30
    lines = re.findall(r"^   \* - (``\w+``.*)$", (ADMIN / "monitoring.rst").read_text(), re.M)
    assert sorted(re.findall(r"``(\w+)``", " ".join(lines))) == sorted(names)
    tests = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tests
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert fired == set(names)


def test_rules_do_what_their_tests_say() -> None:
    """By Prometheus itself; installed of bindep.txt, and skipped where it is not."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    promtool(RULES.parent, "check", "rules", RULES.name)
    promtool(RULES.parent, "test", "rules", RULE_TESTS.name)


def promtool(directory: pathlib.Path, *arguments: str) -> None:
    result = subprocess.run(
        ["promtool", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
