"""Every scenario in small gives the results of record."""

import json
from typing import Any

import pytest

from sim import scenario
from tests.unit.sim import golden_runs

_RELATIVE = 1e-9
"""Of a float: what another order of the same additions makes."""


def differences(path: str, found: Any, golden: Any) -> list[str]:
    """Return where two JSON values differ."""
    if isinstance(golden, dict) and isinstance(found, dict):
        keys = sorted(golden.keys() | found.keys())
        return [
            one
            for key in keys
            for one in differences(f"{path}.{key}", found.get(key), golden.get(key))
        ]
    if isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        pairs = enumerate(zip(found, golden, strict=True))
        return [one for at, pair in pairs for one in differences(f"{path}[{at}]", *pair)]
    if isinstance(golden, float) and isinstance(found, float):
        return (
            [] if found == pytest.approx(golden, rel=_RELATIVE) else [f"{path}: {found}, {golden}"]
        )
    return [] if found == golden else [f"{path}: {found}, not {golden}"]


def test_every_scenario_has_golden_runs() -> None:
    assert set(scenario.names()) <= set(golden_runs.POINTS)


@pytest.mark.parametrize("name", golden_runs.POINTS)
def test_results_are_those_of_record(name: str) -> None:
    golden = json.loads((golden_runs.DIRECTORY / f"{name}.json").read_text())
    found = [golden_runs.outcome(case) for case in golden_runs.cases(name)]
    assert differences(name, found, golden) == []
