"""The command, and what it writes and reads."""

import json
import pathlib
from typing import Any

import pytest

from sim import __main__, sweep, tables, testbed_report
from sim.exception import ScenarioError
from sim.scenario import Case
from testbed.results import record
from testbed.results.tables import as_rst

SMALL = """
version = 1
title = "small"
seeds = 2
metrics = ["boot_mean_s", "origin_mb"]
[network]
fanout = [4]
[machines]
per_host = 1
images = 1
think_scale = 0.0
stagger = 0.1
[traffic]
mean = 0.0
cv = 0.0
[timing]
boot_at = 0.0
[variants.local-cache]
approach = "local-cache"
[variants.static-collaborative]
approach = "static-collaborative"
[axes]
"machines.per_host" = [1, 2]
[plot]
x = "machines.per_host"
"""


@pytest.fixture
def results(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "small.toml").write_text(SMALL)
    path = tmp_path / "results.json"
    status = __main__.main(["run", str(tmp_path / "small.toml"), "--json", str(path)])
    assert status == 0
    return path


def test_run_compare_and_plot(
    results: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = sweep.read_document(results)
    assert len(document["results"]) == 8
    capsys.readouterr()
    options = ["compare", "x", "--results", str(results), "--base", "local-cache", "-f", "json"]
    assert __main__.main(options) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["variant"] for row in rows] == ["static-collaborative"] * 2
    assert __main__.main(["plot", str(results), str(tmp_path / "small.svg")]) == 0
    assert "<svg" in (tmp_path / "small.svg").read_text()
    results.rename(tmp_path / "small.json")
    options = ["record", "--results", str(tmp_path), "--scenarios", "small"]
    assert __main__.main([*options, "--output", str(tmp_path / "kept")]) == 0
    kept = record.read(tmp_path / "kept" / "small.json")
    assert kept.conditions == {"scenario": "small", "runs": 8, "per_point": 2}
    assert kept.source.startswith("python -m sim record, 2")


def test_what_was_found_is_kept_when_a_run_is_cut_off(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [3]

    def run_case(case: Case) -> dict[str, Any]:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return {"seed": case.seed}

    monkeypatch.setattr(sweep, "run_case", run_case)
    monkeypatch.setattr(__main__, "_WRITE_INTERVAL", -1.0)
    (tmp_path / "small.toml").write_text(SMALL)
    path = tmp_path / "results.json"
    with pytest.raises(KeyboardInterrupt):
        __main__.main(["run", str(tmp_path / "small.toml"), "--json", str(path)])
    assert not path.exists()
    partial = sweep.read_document(tmp_path / "results.json.part")
    assert len(partial["results"]) == 3


def test_list_names_the_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["list", "-f", "json"]) == 0
    names = {one["name"] for one in json.loads(capsys.readouterr().out)}
    assert {"figure-6", "figure-11", "testbed-32", "half-leaves"} <= names


def test_unknown_scenario_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["run", "nothing"]) == 3
    assert "scenario nothing" in capsys.readouterr().err


def test_other_files_are_no_results(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.json"
    for content in ("", "[]", '{"format": "x"}', '{"format": "acstor-sim-results", "version": 9}'):
        path.write_text(content)
        with pytest.raises(ScenarioError):
            sweep.read_document(path)


def test_medians_and_ratios_are_taken_seed_by_seed() -> None:
    found = [
        {"axes": {}, "variant": variant, "seed": seed, "m": value}
        for variant, values in (("a", [10.0, 40.0, 30.0]), ("b", [5.0, 10.0, 10.0]))
        for seed, value in enumerate(values)
    ]
    rows = sweep.medians(found, ["m"])
    assert [(row["variant"], row["m"], row["m_low"], row["m_high"]) for row in rows] == [
        ("a", 30.0, 10.0, 40.0),
        ("b", 10.0, 5.0, 10.0),
    ]
    (ratio,) = sweep.ratios(found, "m", "a")
    assert (ratio["ratio"], ratio["low"], ratio["high"]) == (3.0, 2.0, 4.0)


def test_gain_stands_beside_the_most_that_think_time_allows() -> None:
    found = [
        {"axes": {}, "variant": variant, "seed": seed, "boot_mean_s": value, "think_mean_s": 2.0}
        for variant, values in (("a", [10.0, 12.0]), ("b", [4.0, 2.0]))
        for seed, value in enumerate(values)
    ]
    (ratio,) = sweep.ratios(found, "boot_mean_s", "a")
    assert (ratio["ceiling"], ratio["share"]) == (5.5, 0.75)
    rows = tables.of_ratios(found, "boot_mean_s", "a")
    assert rows[0] == ["variant", "a / variant", "lowest", "highest", "ceiling",
                       "share", "runs"]  # fmt: skip
    for result in found:
        del result["think_mean_s"]
    assert "ceiling" not in tables.of_ratios(found, "boot_mean_s", "a")[0]


def test_tables_are_restructured_text() -> None:
    text = as_rst([["a", "bb"], ["10", "2"], ["", "x"]])
    assert text.splitlines() == ["==  ==", "a   bb", "==  ==", "10  2", "\\   x", "==  =="]


REPLAY = {
    "format": "acstor-replay-report", "version": 1, "approach": "acstor",
    "hosts": {"h0": {"elapsed_s": 2.0}, "h1": {"elapsed_s": 4.0}}, "origin_chunk_bytes": 5e7,
}  # fmt: skip
DEMO = {
    "format": "acstor-testbed-report", "version": 1,
    "approaches": [
        {"name": "non-cache", "guests": [{"boot_time_s": 9.0}, {"boot_time_s": None}],
         "origin_chunk_bytes": None},
    ],
}  # fmt: skip


def test_reports_of_the_testbed_are_read_and_set_beside(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(REPLAY))
    (measured,) = testbed_report.read(path)
    assert (measured.approach, measured.mean_s) == ("acstor", 3.0)
    simulated = [{"approach": "acstor", "boot_mean_s": 3.3, "origin_mb": 51.0}]
    rows = testbed_report.beside(simulated, [measured])
    assert rows[1][:4] == ["acstor", "3.3", "3", "1.1"]
    path.write_text(json.dumps(DEMO))
    (measured,) = testbed_report.read(path)
    assert (measured.approach, list(measured.boot_times_s)) == ("non-cache", [9.0])


@pytest.mark.parametrize("content", ["", "{}", '{"format": "x"}', '{"format": 1}', "[1]"])
def test_what_is_no_report_is_refused(content: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(ScenarioError):
        testbed_report.read(path)
