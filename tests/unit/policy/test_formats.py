"""Pins and topology against their golden files; the page of the state machine."""

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.cluster.leader_states import TRANSITIONS
from acstor.origin.memory import MemoryOrigin
from acstor.policy import metrics as policy_metrics
from acstor.policy.pins import PINS_REF, PINS_VERSION, Pins, read_pins
from acstor.policy.topology import TOPOLOGY_VERSION, Speeds, Topology

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
PINS = Pins({"compute1": 5000}, is_threshold_pinned=True, threshold=5)
MBIT = 1e6 / 8


def test_pins_version_1_requires_update() -> None:
    assert PINS_VERSION == 1
    golden = (GOLDEN / "policy-pins-v1.json").read_bytes()
    assert PINS.encode() == golden
    assert Pins.parse(golden) == PINS


def test_topology_version_1_requires_update() -> None:
    assert TOPOLOGY_VERSION == 1
    topology = Topology.load(str(GOLDEN / "topology-v1.toml"))
    assert topology.levels == (
        Speeds(1000 * MBIT), Speeds(1000 * MBIT), Speeds(capacity=10_000 * MBIT),
    )  # fmt: skip
    assert topology.switches == {("pod-1", "rack-2"): Speeds(2500 * MBIT)}
    assert topology.hosts == {"compute1": ("pod-1", "rack-2")}


@pytest.mark.parametrize(
    "change",
    [
        {"weights": {"h1": 0}}, {"weights": {"h1": 1 << 20}}, {"weights": {"h1": 0.5}},
        {"weights": []}, {"is_frozen": 1}, {"is_threshold_pinned": None}, {"threshold": 0},
        {"threshold": 256}, {"threshold": True},
    ],
)  # fmt: skip
def test_malformed_pins_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(exception.CorruptError):
        Pins.parse(json.dumps({**PINS.to_json(), **change}).encode())


def test_pins_of_another_version_are_unsupported() -> None:
    with pytest.raises(exception.UnsupportedError):
        Pins.parse(json.dumps({**PINS.to_json(), "version": 2}).encode())


@given(st.binary(max_size=100))
def test_any_content_is_parsed_or_refused(content: bytes) -> None:
    with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
        Pins.parse(content)


def test_nothing_is_pinned_without_a_ref() -> None:
    origin = MemoryOrigin()
    assert read_pins(origin) == Pins()
    origin.swap_ref(PINS_REF, None, PINS.encode())
    assert read_pins(origin) == PINS


def test_page_of_the_state_machine_lists_exactly_its_transitions() -> None:
    page = ROOT / "doc" / "source" / "reference" / "state-machines" / "policy.rst"
    listed = {
        tuple(cell.strip().strip("`") for cell in line.split("|")[1:4])
        for line in page.read_text().splitlines()
        if line.startswith("| ``")
    }
    assert listed == {
        (state.value, event.value, following.value)
        for (state, event), following in TRANSITIONS.items()
    }


def test_page_lists_exactly_the_metrics() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "policy.rst").read_text()
    listed = {
        name.strip().strip("`").removesuffix("_total")
        for line in page.splitlines()
        if line.startswith("``acstor_policy_")
        for name in line.split(",")
    }
    assert listed == set(policy_metrics.ALL)
