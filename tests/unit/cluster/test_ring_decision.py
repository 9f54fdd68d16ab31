"""The decision in force: golden file, malformed content, compare-and-swap."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.cluster.ring import decision as module
from acstor.cluster.ring.decision import (
    DECISION_REF,
    DECISION_VERSION,
    MEAN_WEIGHT,
    RECHECK_INTERVAL,
    WEIGHT_MAX,
    Decision,
    DecisionReference,
    read_decision,
    replace_decision,
)
from acstor.origin.memory import MemoryOrigin

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "decision-v1.json"
DECISION = Decision(
    term=3,
    sequence=7,
    leader="controller1/4711-ab12",
    decided_at_ms=1_790_000_000_000,
    policy="equation1",
    weights={"compute1": 2500, "compute2": 13750, "compute3": 13750},
    threshold=5,
    similarity=(("compute1", "compute2", 0.625),),
    reason="overload",
)


def test_decision_version_1_requires_update() -> None:
    assert DECISION_VERSION == 1
    assert DECISION.encode() == GOLDEN.read_bytes()
    assert Decision.parse(GOLDEN.read_bytes()) == DECISION


def test_unknown_fields_are_ignored_and_other_versions_refused() -> None:
    fields = json.loads(GOLDEN.read_bytes())
    assert Decision.parse(json.dumps({**fields, "colour": "blue"}).encode()) == DECISION
    for version in (0, 2, "1", None, True):
        with pytest.raises(exception.UnsupportedError):
            Decision.parse(json.dumps({**fields, "version": version}).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("term", -1),
        ("term", True),
        ("sequence", 1 << 63),
        ("decided_at_ms", 1.5),
        ("leader", None),
        ("policy", "x" * 513),
        ("reason", 7),
        ("weights", []),
        ("weights", {"h1": -1}),
        ("weights", {"h1": WEIGHT_MAX + 1}),
        ("weights", {"h1": 1.0}),
        ("weights", {"a b": 1}),
        ("weights", {"h1": 0, "h2": 0}),
        ("threshold", 0),
        ("threshold", 256),
        ("threshold", "5"),
        ("similarity", [["h1", "h2"]]),
        ("similarity", [["h1", "h2", 0]]),
        ("similarity", [["h1", "h2", 1.5]]),
        ("similarity", [["h1", "h2", float("nan")]]),
        ("similarity", [["h1", 2, 0.5]]),
        ("similarity", {"h1": 1}),
    ],
)
def test_malformed_fields_are_refused(name: str, value: Any) -> None:
    fields = {**json.loads(GOLDEN.read_bytes()), name: value}
    with pytest.raises(exception.CorruptError):
        Decision.parse(json.dumps(fields).encode())
    del fields[name]
    with pytest.raises(exception.CorruptError):
        Decision.parse(json.dumps(fields).encode())


@given(st.binary(max_size=200))
def test_any_content_is_parsed_or_refused(content: bytes) -> None:
    with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
        Decision.parse(content)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), st.integers(1, WEIGHT_MAX), max_size=8
    ),
    st.none() | st.integers(1, 255),
)
def test_what_is_encoded_is_parsed(weights: dict[str, int], threshold: int | None) -> None:
    changed = dataclasses.replace(DECISION, weights=weights, threshold=threshold)
    assert Decision.parse(changed.encode()) == changed


def test_host_that_is_not_named_has_the_mean_of_those_that_own_something() -> None:
    weights = {"h1": 4000, "h2": 8000, "h3": 0}
    changed = dataclasses.replace(DECISION, weights=weights)
    assert [changed.weight_of(name) for name in ("h1", "h3", "h4")] == [4000, 0, 6000]
    assert dataclasses.replace(DECISION, weights={}).weight_of("h1") == MEAN_WEIGHT


def test_writer_that_was_overtaken_changes_nothing() -> None:
    origin = MemoryOrigin()
    first = replace_decision(origin, None, DECISION)
    second = replace_decision(origin, first, dataclasses.replace(DECISION, term=4))
    for expected in (None, first):
        with pytest.raises(exception.ConflictError):
            replace_decision(origin, expected, DECISION)
    assert read_decision(origin) == second


def test_reference_parses_what_has_changed_and_keeps_what_it_knew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    origin = MemoryOrigin()
    now = 5.0
    reference = DecisionReference(origin, lambda: now)
    assert reference.current() is None
    replace_decision(origin, None, DECISION)
    assert reference.current() == DECISION
    with monkeypatch.context() as patch:
        patch.setattr(module.Decision, "parse", None)  # not called while the token is the same
        assert reference.current() == DECISION
    ref = origin.get_ref(DECISION_REF)
    assert ref is not None
    origin.swap_ref(DECISION_REF, ref.token, b"{")
    with pytest.raises(exception.CorruptError):
        reference.current()
    assert reference.known == DECISION
    ref = origin.get_ref(DECISION_REF)
    assert ref is not None
    newer = dataclasses.replace(DECISION, sequence=99)
    origin.swap_ref(DECISION_REF, ref.token, newer.encode())
    assert reference.current() == newer


def test_reference_reads_the_decision_once_in_a_while_whatever_it_seems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when an origin tells two states apart by less than it should."""
    origin = MemoryOrigin()
    now = 5.0
    reference = DecisionReference(origin, lambda: now)
    first = replace_decision(origin, None, DECISION)
    assert reference.current() == DECISION
    monkeypatch.setattr(origin, "refresh_ref", lambda name, known: known)
    newer = dataclasses.replace(DECISION, sequence=99)
    replace_decision(origin, first, newer)
    assert reference.current() == DECISION
    now += RECHECK_INTERVAL
    assert reference.current() == newer
