"""The journal: golden file, rotation, torn lines, and decisions computed again."""

import json
import os
import pathlib
from typing import Any

import pytest

from acstor import exception
from acstor.cluster import decision_journal as module
from acstor.cluster.decision_journal import DecisionLog, read_records
from acstor.policy.collection import Collection, HostLoad
from acstor.policy.decision_log import Inputs, decision_record
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.pins import Pins
from acstor.policy.replay import replay
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "policy-journal-v1.jsonl"
LINK = 125e6


def records() -> list[dict[str, Any]]:
    """Return the records of a small history: one host becomes busy."""
    maker = DecisionMaker(
        PolicySettings(weights="equation1"),
        topology=Topology.parse({"version": 1, "levels": [{"name": "edge", "uplink": 1000}]}),
        similarity=lambda givers, receivers: (("h0", "h1", 0.5),),
    )
    found = []
    for number in range(2):
        loads = {f"h{n}": HostLoad(1e6, 1e6, link=LINK) for n in (1, 2)}
        loads["h0"] = HostLoad(0.0, 0.9 * LINK, 0.0, 5e6, LINK, 0.25)
        collection = Collection(1_790_000_000.0 + 10 * number, loads, {"h3": "silent"})
        inputs = Inputs(maker.settings, collection, maker.history, None, Pins(), maker.topology)
        outcome = maker.decide(collection, None)
        if outcome.decision is not None:
            found.append(
                {"version": 1, "at_ms": 1_790_000_010_000, **decision_record(inputs, outcome)}
            )
    found.append(
        {"version": 1, "at_ms": 1_790_000_010_050, "kind": "published", "term": 1, "sequence": 2}
    )
    return found


def test_journal_version_1_requires_update() -> None:
    assert module.DECISION_LOG_VERSION == 1
    golden = list(read_records(str(GOLDEN)))
    assert json.loads(json.dumps(records())) == golden
    found = replay(golden[0])
    assert found.differences == []
    assert found.result.explanations["h0"].is_overloaded


def test_other_outcome_is_told() -> None:
    record = json.loads(json.dumps(records()[0]))
    record["decision"]["weights"]["h0"] += 1
    record["decision"]["threshold"] = 5
    assert len(replay(record).differences) == 2
    record["inputs"]["collection"]["hosts"]["h0"][1] = 0.0
    assert "no decision now" in replay(record).differences[0]


def test_loads_are_read_with_and_without_what_feeds_counted() -> None:
    for load in (HostLoad(1.0, 2.0), HostLoad(1.0, 2.0, link=LINK, age=1, streak=3)):
        assert HostLoad.from_json(json.loads(json.dumps(load.to_json()))) == load


@pytest.mark.parametrize("part", ["inputs", "decision", "at_ms"])
def test_malformed_record_is_refused(part: str) -> None:
    malformed: tuple[Any, ...] = (None, "x", {}, [])
    for value in malformed:
        with pytest.raises(exception.AcstorError):
            replay({**records()[0], part: value})


def test_unknown_version_is_unsupported(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"version": 2}\n')
    with pytest.raises(exception.UnsupportedError):
        list(read_records(str(path)))
    path.write_text("nonsense\n")
    with pytest.raises(exception.InvalidError):
        list(read_records(str(path)))


def test_files_are_bounded_and_the_oldest_goes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    decision_log = DecisionLog(str(path), 1000, 3)
    for number in range(60):
        decision_log.append({"kind": "published", "number": number}, number)
    names = sorted(os.listdir(path.parent))
    assert names == ["journal.jsonl", "journal.jsonl.1", "journal.jsonl.2"]
    kept: list[int] = []
    for name in reversed(names):
        assert (path.parent / name).stat().st_size <= 1000
        kept += [record["number"] for record in read_records(str(path.parent / name))]
    assert kept == list(range(60 - len(kept), 60))
    assert path.stat().st_mode & 0o777 == 0o640


def test_torn_line_of_a_killed_writer_costs_itself_only(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "journal.jsonl"
    decision_log = DecisionLog(str(path), 1 << 20, 2)
    decision_log.append({"kind": "published", "number": 1}, 1)
    with path.open("ab") as torn:
        torn.write(b'{"version": 1, "at_ms": 2, "kind": "publ')
    assert [record["number"] for record in read_records(str(path))] == [1]
    later = {**records()[0], "number": 3}  # has objects with versions in it
    for _ in range(2):
        decision_log.append(later, 3)
    assert [record["number"] for record in read_records(str(path))] == [1, 3, 3]
