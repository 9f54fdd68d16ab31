"""``acstor policy``: what is in force, why, pins, what would move, and decisions again."""

import io
import json
import pathlib
import shutil
from collections.abc import Callable

import pytest

from acstor.cli.app import Application
from acstor.cluster.ring.decision import Decision, replace_decision
from acstor.cluster.ring.published_ring import RING_REF
from acstor.native import RingHost, build_ring
from acstor.origin.posix import PosixOrigin
from acstor.policy import plugins
from acstor.policy.neighbourhoods.tree import Tree
from acstor.policy.pins import PINS_REF, Pins, read_pins
from acstor.repository.repository import Repository

Run = Callable[..., tuple[int, str, str]]
GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "policy-journal-v1.jsonl"
DECISION = Decision(
    3, 7, "c1/1-ab", 5, "equation1", {"h0": 5000, "h1": 15000}, 5, reason="overload: h0"
)


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> PosixOrigin:
    (tmp_path / "origin").mkdir()
    Repository.init(PosixOrigin(f"{tmp_path}/origin"))
    return PosixOrigin(str(tmp_path / "origin"))


@pytest.fixture
def run(tmp_path: pathlib.Path, origin: PosixOrigin) -> Run:
    config = tmp_path / "acstor.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {tmp_path}\n[origin]\nurl = posix://{tmp_path}/origin\n"
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        status = Application(out, err).run(["--config-file", str(config), "policy", *arguments])
        return status, out.getvalue(), err.getvalue()

    return run


@pytest.fixture
def ring(origin: PosixOrigin) -> None:
    hosts = [RingHost(f"h{n}", f"10.0.0.{n}:1", weight) for n, weight in ((0, 5000), (1, 15000))]
    origin.swap_ref(RING_REF, None, build_ring(hosts, 64, 1).encode())


def test_nothing_has_been_decided_yet(run: Run) -> None:
    status, _, error = run("show")
    assert status == 4
    assert "acstor-policy" in error


def test_decision_is_shown(run: Run, origin: PosixOrigin, ring: None) -> None:
    replace_decision(origin, None, DECISION)
    status, out, _ = run("show", "-f", "json")
    assert status == 0
    shown = json.loads(out)
    assert shown["weights"] == {"h0": 0.5, "h1": 1.5}
    assert (shown["term"], shown["threshold"], shown["ring_generation"]) == (3, 5, 1)
    assert shown["pinned_threshold"] == "not pinned"
    assert "overload: h0" in run("show")[1]


def test_pins_come_and_go(run: Run, origin: PosixOrigin) -> None:
    assert run("pin", "h0", "--weight", "50%")[0] == 0
    assert run("pin", "h1", "--weight", "2")[0] == 0
    assert run("pin", "h2", "--threshold", "5", "--freeze")[0] == 0
    assert read_pins(origin) == Pins({"h0": 5000, "h1": 20000, "h2": 10000}, True, 5, True)
    assert run("pin", "--threshold", "none")[0] == 0
    assert read_pins(origin).threshold is None
    assert read_pins(origin).is_threshold_pinned
    assert run("unpin", "h0")[0] == 0
    assert run("unpin", "--threshold", "--unfreeze")[0] == 0
    assert read_pins(origin) == Pins({"h1": 20000, "h2": 10000})
    assert run("unpin", "h0")[0] == 4
    assert run("unpin", "--all")[0] == 0
    assert origin.get_ref(PINS_REF) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("pin",), ("pin", "--weight", "50%"), ("pin", "h0", "--weight", "0"),
        ("pin", "h0", "--weight", "-3"), ("pin", "h0", "--weight", "nan"),
        ("pin", "h0", "--weight", "1000000%"), ("pin", "--threshold", "far"),
        ("pin", "--threshold", "256"), ("unpin",), ("dry-run",),
        ("dry-run", "--weight", "h0"), ("dry-run", "--weight", "h0=much"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(
    run: Run, origin: PosixOrigin, ring: None, arguments: tuple[str, ...]
) -> None:
    try:
        status = run(*arguments)[0]
    except SystemExit as error:  # argparse
        status = int(error.code or 0)
    assert status in {2, 3}
    assert read_pins(origin) == Pins()


def test_dry_run_tells_what_would_move_and_changes_nothing(
    run: Run, origin: PosixOrigin, ring: None
) -> None:
    replace_decision(origin, None, DECISION)
    status, out, _ = run("dry-run", "--weight", "h0=1.5", "-f", "json")
    assert status == 0
    found = json.loads(out)
    assert found["moved"] == found["least"] == 0.25
    assert [host["vnodes_after"] for host in found["hosts"]] == [32, 32]
    assert run("dry-run", "--weight", "gone=1")[0] == 4
    run("pin", "h1", "--weight", "50%")
    pinned = json.loads(run("dry-run", "--pins", "-f", "json")[1])
    assert [host["vnodes_after"] for host in pinned["hosts"]] == [32, 32]


def test_reasons_come_from_the_journal(run: Run, tmp_path: pathlib.Path) -> None:
    assert run("explain")[0] == 4
    (tmp_path / "policy").mkdir()
    shutil.copy(GOLDEN, tmp_path / "policy" / "journal.jsonl")
    status, out, reason = run("explain", "-f", "json")
    assert status == 0
    assert "overload" in reason
    rows = {row["Host"]: row for row in json.loads(out)}
    assert rows["h0"]["Part"] == "gives"
    assert rows["h0"]["Row"] == 2
    assert rows["h3"]["Part"] == "silent"
    assert rows["h0"]["Decided"] < rows["h0"]["Before"]
    assert [row["Host"] for row in json.loads(run("explain", "h1", "-f", "json")[1])] == ["h1"]
    assert run("explain", "nobody")[0] == 4
    assert "100 %" in run("explain")[1]


def test_who_causes_the_traffic_of_a_host_is_told(run: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "policy").mkdir()
    shutil.copy(GOLDEN, tmp_path / "policy" / "journal.jsonl")
    without = json.loads(run("explain", "h1", "-f", "json")[1])
    assert without[0]["Instances"] == []
    traffic = tmp_path / "policy" / "instance-traffic.json"
    shutil.copy(GOLDEN.with_name("instance-traffic-v1.json"), traffic)
    found = json.loads(run("explain", "h1", "-f", "json")[1])[0]["Instances"]
    assert [(each["name"], each["sent"]) for each in found] == [("web", 3e6), ("", 0)]
    assert "name=web" in run("explain", "h1")[1]
    assert "Instances" not in run("explain")[1]
    traffic.write_text("{}")
    assert "instance-traffic.json" in run("explain", "h1")[2]


def test_journal_is_replayed(run: Run, tmp_path: pathlib.Path) -> None:
    status, out, _ = run("replay", str(GOLDEN), "-f", "json")
    assert status == 0
    assert [row["Now"] for row in json.loads(out)] == ["same"]
    record = json.loads(GOLDEN.read_text().splitlines()[0])
    record["decision"]["weights"]["h0"] += 1
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(record) + "\n")
    status, out, _ = run("replay", str(other))
    assert status == 1
    assert "weight of h0" in out


def test_exchange_of_an_image_is_explained(
    run: Run, origin: PosixOrigin, ring: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Entry points are those of what is installed.
    monkeypatch.setattr(
        plugins, "neighbourhood", lambda name, fan_out: {"tree": Tree}[name](fan_out)
    )
    image = ("--image", "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0")
    status, _, error = run("explain", *image)
    assert status != 0
    assert "[readpath] exchange" in error
    status, out, _ = run("explain", *image, "--exchange", "tree", "-f", "json")
    assert status == 0
    rows = json.loads(out)
    assert [row["Host"] for row in rows] == ["h0", "h1"]
    assert {row["Hops"] for row in rows} == {1}
    assert len({row["Hears of"] for row in rows}) == 1, "both of the rendezvous host"
    only = json.loads(run("explain", *image, "--exchange", "tree", "h1", "-f", "json")[1])
    assert [row["Host"] for row in only] == ["h1"]


def test_exchange_without_a_ring_is_not_found(run: Run) -> None:
    image = ("--image", "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0", "--exchange", "tree")
    assert run("explain", *image)[0] == 4
