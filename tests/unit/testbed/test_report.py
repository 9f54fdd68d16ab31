"""Display and report at the end of a demo."""

import dataclasses
import html.parser
import io
import json
import pathlib

import pytest
from rich.console import Console

from testbed import live_view, report
from testbed.approaches.base import TierBytes
from testbed.measurement import (
    ApproachResult,
    Conditions,
    DemoResult,
    GuestResult,
    Sample,
    machine,
)
from testbed.network import LinkBytes


def approach(name: str, boot_times: list[float | None], chunks: int | None) -> ApproachResult:
    return ApproachResult(
        name=name,
        title=name.title(),
        explanation=f"explains <{name}>",
        guests=[
            GuestResult(f"h{index}", f"h{index}", "login" if time else "failed", time, 0.1,
                        None if time else "no <login> prompt")
            for index, time in enumerate(boot_times)
        ],
        tiers={"h0": TierBytes(1_000_000, None, 2_000_000), "h1": TierBytes(3_000_000, 4_000_000)},
        links={"origin": LinkBytes(6_000_000, 1000), "h0": LinkBytes(10, 20),
               "h1": LinkBytes(30, 40)},
        samples=[Sample(0.0, 0, 0, 0), Sample(1.0, 6_000_000, 7, 2)],
        origin_chunk_bytes=chunks,
        union_bytes=5_000_000,
        guest_read_bytes=9_000_000,
    )  # fmt: skip


@pytest.fixture
def result() -> DemoResult:
    conditions = Conditions(2, 1, "100mbit", "1gbit", "tcg", 256, 2 << 30, machine())
    approaches = [
        approach("one", [20.0, 30.0], None),
        approach("two", [10.0, None], 5_500_000),
        dataclasses.replace(
            approach("three", [], None), failure="did not <start>", tiers={}, links={}, samples=[],
            union_bytes=None,
        ),
    ]  # fmt: skip
    return DemoResult(conditions, approaches, {"guest image": 28.0})


def test_figures_of_an_approach(result: DemoResult) -> None:
    one, two, three = result.approaches
    assert one.boot_time_median_s == 25.0
    assert one.tier_total == TierBytes(4_000_000, 4_000_000, 2_000_000)
    assert one.origin_ratio == pytest.approx(1.2)
    assert two.origin_ratio == pytest.approx(1.1)
    assert three.origin_ratio is None
    assert one.is_complete
    assert not two.is_complete
    assert not three.is_complete
    assert not result.is_complete


class Tags(html.parser.HTMLParser):
    """Checks that every element that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.svg_count = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.svg_count += tag == "svg"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_report_is_one_sound_file_with_plots(result: DemoResult, tmp_path: pathlib.Path) -> None:
    report.write(result, tmp_path / "deep" / "r.json", tmp_path / "deep" / "r.html")
    text = (tmp_path / "deep" / "r.html").read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.svg_count == 5
    assert "explains &lt;one&gt;" in text
    assert "no &lt;login&gt; prompt" in text
    assert "did not &lt;start&gt;" in text
    assert "<script" not in text
    assert "1.100" in text
    document = json.loads((tmp_path / "deep" / "r.json").read_text())
    assert document["format"] == "acstor-testbed-report"
    assert document["version"] == 1
    assert document["approaches"][0]["boot_time_median_s"] == 25.0
    assert document["approaches"][1]["origin_ratio"] == pytest.approx(1.1)


def test_report_without_any_boot_is_written(result: DemoResult) -> None:
    empty = dataclasses.replace(result, approaches=result.approaches[2:])
    assert "did not &lt;start&gt;" in report.render(empty)


def test_summary_shows_every_approach(result: DemoResult) -> None:
    output = io.StringIO()
    view = live_view.LiveView(Console(file=output, width=120))
    with view.approach("Title", "explanation"):
        view.step("a step")
    for one in result.approaches:
        view.approach_over(one)
    view.summary(result)
    text = output.getvalue()
    for word in ("Title", "a step", "One", "Two", "Three", "25.0", "1/2", "1.200", "1.100"):
        assert word in text
