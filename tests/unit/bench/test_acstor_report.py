"""Reports and tables of the evaluation."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest

from bench.acstor import __main__ as command
from bench.acstor import record, report, tables, validation
from bench.acstor.figures import FIGURES, settings_at
from bench.acstor.guests import Guest, GuestResult, completed
from bench.acstor.processor import ProcessorTime
from bench.acstor.report import Entry, Report
from bench.acstor.result import Generation, StormResult, Traffic
from bench.acstor.settings import EvaluationSettings, checked_approaches
from bench.acstor.storm import grown
from sim import approaches, scenario
from testbed.exception import TestbedError
from testbed.fixtures.drawings import labels
from testbed.rates import LinkRate
from testbed.results import drawing
from testbed.results.record import read

DEADLINE = 100.0


def storm(approach: str, times: list[float | None]) -> StormResult:
    return StormResult(
        approach=approach,
        guests=[GuestResult(f"g{n}", "h0", time) for n, time in enumerate(times)],
        deadline_s=DEADLINE,
        elapsed_s=10.0,
        origin_sent=3_000_000,
        origin_chunk_bytes=2_000_000 if approach == "acstor" else None,
        union_bytes=None,
        processor_idle=0.5,
        cv_series=[(-1.0, 9.0), (0.5, 0.4), (1.0, 0.6)],
        traffic=Traffic(7e6, 1.2, 6.9e6, 1.19),
        counters={'acstor_x_total{outcome="origin"}': 2.0, 'acstor_x_total{outcome="cold"}': 3.0},
        decisions=[],
        generations=[Generation(2, 5.5, 0.15, 0.15)],
    )


def made() -> Report:
    point = {"mean": 70.0, "cv": 1.2}
    build = {"revision": "abc", "extension": "def"}
    entries = [
        Entry(point, turn, storm(approach, [own * (turn + 1)] * 4), build)
        for turn in range(3)
        for approach, own in (("static-collaborative", 9.0), ("acstor", 3.0))
    ]
    return Report("figure-6", "Figure 6", {"hosts": 4}, {"cpu_count": 2}, entries)


def test_who_did_not_boot_took_the_deadline_and_is_counted() -> None:
    found = storm("acstor", [1.0] * 31 + [None])
    assert (found.failed, found.p99_s) == (1, DEADLINE)
    assert found.mean_s == pytest.approx((31 + DEADLINE) / 32)
    assert found.median_s == 1.0
    assert found.trimmed_mean_s == 1.0, "5 of 160 are 1 of 32"
    assert found.total_cv == pytest.approx(0.5)


def test_every_guest_has_a_result() -> None:
    guests = [Guest(name, "h0", "t", "d", 0.0) for name in ("a", "b", "c")]
    found = completed(guests, [GuestResult("b", "h0", 2.0)])
    assert [one.guest for one in found] == ["a", "b", "c"]
    assert [one.boot_time_s for one in found] == [None, 2.0, None]
    assert found[0].failure == "not done in time"


def test_counters_are_summed_over_the_labels_that_are_not_named() -> None:
    found = storm("acstor", [1.0])
    assert found.counter("acstor_x_total") == 5
    assert found.counter("acstor_x_total", outcome="cold") == 3
    assert found.counter("acstor_x") == 0


def test_misses_of_a_remap_are_told_from_other_misses_and_set_against_the_least() -> None:
    counters = {
        f'acstor_remapped_chunks_total{{outcome="{outcome}"}}': count
        for outcome, count in (("previous_owner", 40.0), ("origin", 2.0), ("cold", 100.0))
    }
    found = dataclasses.replace(
        storm("acstor", [1.0]),
        counters=counters,
        union_bytes=400 * 65536,
        generations=[Generation(2, 4.0, 0.1, 0.08), Generation(3, 9.0, 0.02, 0.02)],
    )
    assert found.remap_misses == 42
    assert found.least_misses == pytest.approx(40)
    assert tables.COLUMNS["misses_ratio"](found) == pytest.approx(1.05)
    assert found.relief_s == 4.0
    assert tables.COLUMNS["misses_ratio"](storm("acstor", [1.0])) is None


def test_counters_that_did_not_grow_are_left_out() -> None:
    assert grown({"a": 1.0, "b": 2.0}, {"a": 4.0, "b": 2.0, "c": 5.0}) == {"a": 3.0, "c": 5.0}


def test_report_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "report.json"
    made().save(path)
    assert Report.load(path) == made()
    fields = json.loads(path.read_text())
    assert fields["format"] == "acstor-evaluation-report"
    assert fields["storms"][0]["mean_s"] == 9.0


@pytest.mark.parametrize("content", ["", "[]", '{"format": "other", "version": 1}', "{}"])
def test_other_files_are_refused(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(TestbedError, match="no report of an evaluation"):
        Report.load(path)


def test_table_has_medians_over_the_turns_and_ratios_of_each_turn() -> None:
    found, figure = made(), FIGURES["figure-6"]
    rows = tables.as_objects(tables.of_report(found, figure))
    assert [row["approach"] for row in rows] == ["static-collaborative", "acstor"]
    assert (rows[0]["mean_s"], rows[1]["mean_s"]) == ("18", "6")
    assert (rows[0]["origin_mb"], rows[1]["origin_mb"]) == ("3", "2")
    assert (rows[1]["turns"], rows[1]["build"], rows[1]["generations"]) == ("3", "abc", "1")
    ratios = tables.as_objects(tables.of_ratios(found, figure))
    assert [row["approach"] for row in ratios] == ["acstor"]
    assert ratios[0]["mean_s"] == "3"


def test_result_of_record_is_made_of_a_report(tmp_path: pathlib.Path) -> None:
    made().save(tmp_path / "report.json")
    paths = [str(tmp_path / name) for name in ("report.json", "kept.json")]
    assert command.main(["record", *paths]) == 0
    kept = read(tmp_path / "kept.json")
    rows = {row["approach"]: row for row in kept.tables[record.STORMS].objects()}
    assert (rows["acstor"]["mean_s"], rows["acstor"]["turns"]) == (6, 3)
    assert "figure-6; build abc; 2" in kept.source
    drawing.draw(kept, tmp_path / "plot.svg")


def test_storms_that_the_file_holds_are_not_run_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "report.json"
    made().save(path)
    figure = FIGURES["figure-6"].with_axes({"cv": [1.2]})
    wanted = report.steps(figure, ("static-collaborative", "acstor"), 3)

    def on_step(step: report.Step) -> object:
        raise AssertionError(f"{step} is run")

    again = report.run_figure(figure, EvaluationSettings(), wanted, path, on_step)  # type: ignore[arg-type]
    assert again == made()


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_figure_is_made_of_valid_settings_and_can_be_drawn(
    name: str, tmp_path: pathlib.Path
) -> None:
    figure = FIGURES[name]
    base = dataclasses.replace(EvaluationSettings(), **figure.changes)
    entries = []
    for point in figure.points():
        assert settings_at(base, point, 2).seed == base.seed + 2
        for approach in checked_approaches(",".join(figure.approaches)):
            entries.append(Entry(point, 0, storm(approach, [1.0]), {"revision": "x"}))
    found = Report(name, figure.title, {}, {}, entries)
    drawing.draw(record.of_report(found, figure), tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    assert len(tables.of_report(found, figure)) == 1 + len(entries)


def test_all_panels_of_a_plot_show_all_that_was_measured(tmp_path: pathlib.Path) -> None:
    figure, path = FIGURES["figure-7"], tmp_path / "plot.svg"
    entries = [
        Entry({"cv": cv, "mean": mean}, 0, storm("acstor", [mean * cv]), {"revision": "x"})
        for cv in (0.4, 1.2)
        for mean in (40.0, 70.0)
    ]
    found = Report("figure-7", figure.title, {}, {}, entries)
    drawing.draw(record.of_report(found, figure), path)
    assert "80" in labels(path), "the second panel reaches 84"


def test_command_line_goes_before_the_figures_own_settings() -> None:
    parser = command._parser()
    parsed = parser.parse_args(["figure-10", "--hosts", "4", "--rate", "50mbit", "--seed", "7"])
    settings = command.settings_of(parsed, dict(FIGURES["figure-10"].changes))
    assert (settings.hosts, settings.scale, settings.seed) == (4, 20, 7)
    assert settings.stagger == 10.0
    parsed = parser.parse_args(["figure-10", "--stagger", "2"])
    assert command.settings_of(parsed, dict(FIGURES["figure-10"].changes)).stagger == 2


def test_deadlines_are_scaled_like_the_links() -> None:
    options = EvaluationSettings(rate=LinkRate.parse("100mbit")).read_path()
    assert options == {
        "peer_deadline": "20.0",
        "origin_deadline": "100.0",
        "read_deadline": "300.0",
        "hedge_min": "0.2",
        "slow_fetch": "0.05",
    }


@pytest.mark.parametrize("approach", FIGURES["figure-6"].approaches)
def test_simulator_takes_the_conditions_of_a_storm(approach: str, tmp_path: pathlib.Path) -> None:
    point = {"mean": 70.0, "cv": 1.2}
    entry = Entry(point, 1, storm(approach, [1.0]), {"revision": "x"})
    found = Report("figure-6", "Figure 6", report.plain(EvaluationSettings()), {}, [entry])
    settings = validation.settings_of(found, entry)
    assert settings == EvaluationSettings(mean=70.0, cv=1.2)
    fields = validation.scenario_fields(settings, approach, tmp_path / "trace.jsonl")
    (case,) = scenario.parse("validation", fields).cases()
    assert case.approach == approach
    assert case.tables["network"]["rates"] == ["40mbit"]
    assert case.tables["traffic"]["mean"] == pytest.approx(2.8)
    assert case.tables["machines"]["span"] == 1
    rules = approaches.rules_of(approach, case.tables["readpath"])
    assert rules.report_interval == 4.0
    if approach == "acstor":
        assert rules.slow_fetch == 0.125


@pytest.mark.parametrize("change", [{"hosts": 1}, {"cv": -0.1}, {"udp_share": 2}, {"reads": 0}])
def test_settings_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TestbedError, match=next(iter(change))):
        dataclasses.replace(EvaluationSettings(), **change)


def test_unknown_approach_is_refused() -> None:
    with pytest.raises(TestbedError, match="'magic' is not known"):
        checked_approaches("acstor,magic")


def test_idle_share_of_the_processors(tmp_path: pathlib.Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 7 0\n")
    before = ProcessorTime.now(stat)
    stat.write_text("cpu  160 0 60 820 60 0 0 0 9 0\n")
    assert ProcessorTime.now(stat).idle_share_since(before) == pytest.approx(0.3)
