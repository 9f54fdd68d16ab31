"""Counts of the replay, and the tables and plots made of them."""

import dataclasses
import json
import pathlib
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from acstor.origin.http.driver import HttpOrigin
from acstor.origin.posix import PosixOrigin
from acstor.repository.volumes.durability import DurabilityClass
from bench import capo, capo_record, capo_replay, capo_workload
from bench.capo_origin import OPERATION_BYTES, Count, CountingOriginServer
from bench.capo_periods import PERIODS
from bench.capo_replay import Outcome, Setting
from bench.capo_shares import Outcomes
from testbed.results import drawing

SETTING = Setting(scale=60, load=1 / 40, depth=1)


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[CountingOriginServer]:
    tmp_path.joinpath("origin").mkdir()
    server = CountingOriginServer(PosixOrigin(str(tmp_path / "origin")))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_every_request_is_counted_in_its_second(server: CountingOriginServer) -> None:
    origin = HttpOrigin(server.url)
    origin.put_if_absent("a/before", [b"x"])
    server.second = 3
    origin.put_if_absent("a/one", [bytes(OPERATION_BYTES + 1)])
    server.second = 4
    assert len(origin.get_range("a/one", 0, OPERATION_BYTES)) == OPERATION_BYTES
    assert origin.size("a/one") == OPERATION_BYTES + 1
    assert origin.get_ref("volumes/one") is None
    server.second = 5
    origin.get_ref("volumes/one")
    origin.swap_ref("volumes/one", None, b"changed")
    server.second = None
    origin.size("a/one")
    assert server.take() == {3: Count(1, 2, 0), 4: Count(2, 2, 1), 5: Count(2, 2, 0)}
    assert server.take() == {}


def test_looks_at_records_count_as_often_as_they_would_be_unscaled() -> None:
    outcome = capo_replay.outcome_of({0: Count(5, 6, 2), 2: Count(1, 1, 2)}, 4, SETTING, 2.0)
    each = 4 / 2.0 * 60 / 40 / 4
    assert outcome.requests == [5 + each, each, 1 + each, each]
    assert outcome.operations == [6 + each, each, 1 + each, each]
    assert outcome.peak == 5 + each


def test_without_cache_every_request_of_the_period_counts() -> None:
    image = capo_workload.ImageChunks()
    trace = capo_workload.make(PERIODS[5], image, load=1 / 40, seed=1)
    outcome = capo_replay.without_cache(trace)
    assert len(outcome.requests) == PERIODS[5].seconds
    assert outcome.total == sum(request.time_s >= 0 for request in trace.requests)


def test_window_is_around_the_busiest_second() -> None:
    image = capo_workload.ImageChunks()
    trace = capo_workload.make(PERIODS[2], image, load=1 / 40, seed=1)
    whole, part = capo_replay.without_cache(trace), capo_replay.windowed(trace, 2)
    outcome = capo_replay.without_cache(part)
    assert outcome.peak == whole.peak
    assert len(outcome.requests) == part.period.seconds == 120
    begin = next(
        at for at in range(len(whole.requests)) if whole.requests[at:][:120] == outcome.requests
    )
    assert min(one.time_s for one in part.requests) >= -capo_workload.WARM_UP_S
    # A chunk that a desktop read before the window is not new to it there.
    chunk = capo_workload.CHUNK
    earlier = {
        (one.desktop, one.offset // chunk)
        for one in trace.requests
        if not one.is_write and one.time_s < begin and one.offset < capo_workload.IMAGE_BYTES_MAX
    }
    assert earlier <= set(part.read_before)


def test_differential_durability_has_the_regions_of_the_workload() -> None:
    durability = SETTING.durability("differential")
    assert durability.default is DurabilityClass.WRITE_THROUGH
    assert durability.period_s == 10
    regions = {region.durability_class: region for region in durability.regions}
    assert set(regions) == {DurabilityClass.WRITE_BACK, DurabilityClass.NONE}
    for kind, region in regions.items():
        assert (region.first, region.last) == capo_workload.REGIONS[kind]


def outcomes(*numbers: int) -> Outcomes:
    base = {number: Outcome([10.0, 10.0], [10.0, 10.0]) for number in numbers}
    half = {number: Outcome([5.0, 0.0], [20.0, 0.0]) for number in numbers}
    return {"no cache": base, "write-back": half}


def test_table_gives_shares_and_judges_whole_runs_only() -> None:
    rows = {row.what: row for row in capo.rows_of([outcomes(*(one.number for one in PERIODS))])}
    assert rows["write-back: peak of requests"].ours.median == pytest.approx(50)
    assert rows["write-back: peak of requests"].verdict == "missed"
    assert rows["write-back: total of requests"].ours.median == pytest.approx(25)
    assert rows["write-back: total of requests"].verdict == "met"
    assert rows["write-back: total of operations"].verdict == "missed"
    assert {row.verdict for row in capo.rows_of([outcomes(1)])} == {""}


def test_parts_of_a_run_are_put_together(tmp_path: pathlib.Path) -> None:
    paths = []
    for number in (6, 1):
        content: dict[str, Any] = {
            "setting": dataclasses.asdict(SETTING),
            "outcomes": [
                {
                    policy: {period: dataclasses.asdict(one) for period, one in found.items()}
                    for policy, found in outcomes(number).items()
                }
            ],
        }
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(content))
    assert capo.joined(paths) == (SETTING, outcomes(1, 6))
    content["setting"]["load"] = 1.0
    paths[0].write_text(json.dumps(content))
    with pytest.raises(ValueError, match="settings"):
        capo.joined(paths)


def test_plot_has_a_panel_for_each_period(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plot.svg"
    found = capo_record.of_outcomes(outcomes(1, 6), {}, "a test")
    drawing.draw(found, path)
    text = path.read_text()
    assert text.count('id="axes_') == 4, "requests and operations"
    assert "write-back" in text
    (shares,) = found.tables["shares"].objects()
    assert (shares["peak_requests"], shares["total_requests"]) == (50, 25)
    assert shares["peak_requests_capo"] == Decimal("38.1")
