"""The alerts that are shipped: metrics that exist, explained, and tested."""

import re
from typing import Any

import pytest
import yaml

from testbed.fixtures.documents import ROOT, SOURCE
from testbed.fixtures.metric_expressions import promtool, undocumented

ADMIN = SOURCE / "admin"
RULES = ROOT / "etc" / "prometheus" / "acstor.rules.yaml"
RULE_TESTS = RULES.with_name("acstor.rules.test.yaml")


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


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
    promtool(RULES.parent, "check", "rules", RULES.name)
    promtool(RULES.parent, "test", "rules", RULE_TESTS.name)
