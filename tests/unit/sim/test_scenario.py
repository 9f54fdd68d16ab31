"""Scenario files, and what is made of them."""

from typing import Any

import pytest

from sim import approaches, page, scenario
from sim.exception import ScenarioError


@pytest.mark.parametrize("name", scenario.names())
def test_every_scenario_is_well_formed(name: str) -> None:
    loaded = scenario.load(name)
    cases = list(loaded.cases())
    assert cases
    for case in cases[:: max(1, len(cases) // 20)]:
        approaches.rules_of(case.approach, case.tables["readpath"])
        assert scenario.tree(case.tables["network"]).host_count > 0


def test_page_shows_every_scenario() -> None:
    assert sorted((*page.ORDER, *page.UNRECORDED)) == scenario.names()


def test_axes_variants_and_seeds_are_multiplied() -> None:
    loaded = scenario.parse(
        "x",
        {
            "version": 1, "seeds": 2, "axes": {"traffic.cv": [0.1, 0.2]},
            "variants": {"one": {"approach": "acstor"}, "two": {"approach": "non-cache"}},
        },
    )  # fmt: skip
    cases = list(loaded.cases())
    assert len(cases) == 8
    assert {case.tables["traffic"]["cv"] for case in cases} == {0.1, 0.2}
    assert {(case.variant, case.approach) for case in cases} == {
        ("one", "acstor"),
        ("two", "non-cache"),
    }
    fewer = loaded.only({"traffic.cv": [0.5]}, ["two"], 1)
    assert [case.tables["traffic"]["cv"] for case in fewer.cases()] == [0.5]


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 2},
        {"version": 1, "trafic": {}},
        {"version": 1, "traffic": {"mena": 1}},
        {"version": 1, "axes": {"machines.nothing": [1]}},
        {"version": 1, "variants": {"x": {"timing.nothing": 1}}},
        {"version": 1, "seeds": 0},
    ],
)
def test_what_is_unknown_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError):
        scenario.parse("x", fields)


def test_unknown_rules_are_refused() -> None:
    for changes in ({"hedge": 1}, {"keep": "sometimes"}, {"hedge_enabled": 1}, {"hedge_min": "x"}):
        with pytest.raises((ScenarioError, TypeError)):
            approaches.rules_of("acstor", changes)
    with pytest.raises(ScenarioError, match="approach"):
        approaches.rules_of("magic", {})


def test_defaults_are_those_of_the_configuration() -> None:
    rules = approaches.rules_of("acstor", {})
    assert rules.peer_deadline == 2.0
    assert rules.hedge_enabled
    assert rules.keep == approaches.KEEP["second-touch"]
    static = approaches.rules_of("static-collaborative", {})
    assert not static.hedge_enabled
    assert static.keep == approaches.KEEP["never"]


def test_options_are_taken_as_rules() -> None:
    rules = approaches.rules_of("acstor", {"slow_fetch": 0.05, "compress_slow": False})
    assert rules.slow_fetch == 0.05
    assert rules.compress == 0
    assert approaches.rules_of("acstor", {}).slow_fetch == 0.005
    assert approaches.rules_of("static-collaborative", {}).compress == 0


def test_only_acstors_stores_are_those_of_the_configuration() -> None:
    acstor = approaches.rules_of("acstor", {})
    assert (acstor.eviction, acstor.copies_max) == (approaches.EVICTION["s3fifo"], 2)
    for approach in ("static-collaborative", "local-cache"):
        rules = approaches.rules_of(approach, {})
        assert (rules.eviction, rules.copies_max) == (approaches.EVICTION["fifo"], 0)
    changed = approaches.rules_of("acstor", {"eviction": "fifo", "distance_threshold": 3})
    assert changed.eviction == approaches.EVICTION["fifo"]
    with pytest.raises(ScenarioError, match="eviction"):
        approaches.rules_of("acstor", {"eviction": "lru"})
