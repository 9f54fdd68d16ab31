"""The dashboard for Grafana: panels that fit, of metrics that exist."""

import json
import pathlib
import re
from typing import Any

import yaml

from testbed.fixtures.documents import ROOT
from testbed.fixtures.metric_expressions import promtool, undocumented

DASHBOARD = ROOT / "etc" / "grafana" / "acstor.json"
WIDTH = 24
"""Columns of Grafana's grid."""


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_panels_are_of_documented_metrics() -> None:
    assert len(expressions()) > 15
    for expression in expressions():
        assert re.search(r"\bacstor_\w+", expression)
        assert list(undocumented(expression)) == []


def test_panels_are_named_described_and_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["title"]
        assert panel["description"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < WIDTH
        taken |= cells
    names = [panel["id"] for panel in panels()]
    assert len(names) == len(set(names))


def test_expressions_are_valid(tmp_path: pathlib.Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions())
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool(tmp_path, "check", "rules", path.name)
