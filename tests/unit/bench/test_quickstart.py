"""The storm of the quickstart: its display, its report."""

import dataclasses
import html.parser
import io
import json
import pathlib

import pytest
from rich.console import Console

from bench.acstor.guests import GuestResult
from bench.acstor.result import StormResult
from bench.acstor.storm import Progress
from bench.quickstart import live, many_hosts, page
from bench.quickstart.live import StormView
from bench.quickstart.many_hosts import StormReport
from testbed.exception import TestbedError
from testbed.network import LinkBytes
from testbed.rates import LinkRate

RATE = LinkRate.parse("100mbit")


def storm(approach: str, times: list[float | None]) -> StormResult:
    guests = [
        GuestResult(
            f"h{number}-g0", f"h{number}", time, failure=None if time else "no <bytes> came"
        )
        for number, time in enumerate(times)
    ]
    return StormResult(approach, guests, 60.0, 12.0, 5_000_000, None, None, 0.25)


@pytest.fixture
def report() -> StormReport:
    settings = many_hosts.settings_of(12, RATE)
    storms = {
        "non-cache": storm("non-cache", [20.0 - number for number in range(12)]),
        "acstor": storm("acstor", [*(4.0 for _ in range(11)), None]),
    }
    return StormReport(settings, storms, {"local-cache": "nbdkit did not <start>"})


def shown(report: StormReport) -> str:
    output = io.StringIO()
    StormView(Console(file=output, width=120)).summary(report)
    return output.getvalue()


def test_report_has_a_line_per_host_in_their_order(report: StormReport) -> None:
    hosts = report.hosts()
    assert [host.name for host in hosts] == [f"h{number}" for number in range(12)]
    assert [host.is_busy for host in hosts] == [True] + [False] * 11
    assert hosts[1].boot_s == {"non-cache": 19.0, "acstor": 4.0}
    assert hosts[11].boot_s == {"non-cache": 9.0, "acstor": None}


def test_median_is_of_those_that_booted(report: StormReport) -> None:
    assert report.storms["non-cache"].booted_median_s == 14.5
    assert report.storms["acstor"].booted_median_s == 4.0
    none = dataclasses.replace(report, storms={"acstor": storm("acstor", [None, None])})
    assert none.storms["acstor"].booted_median_s is None
    assert "-" in shown(none)


def test_storm_that_failed_and_a_host_that_did_not_boot_are_told(report: StormReport) -> None:
    assert not report.is_complete
    booted = {"acstor": storm("acstor", [1.0, 2.0])}
    whole = dataclasses.replace(report, storms=booted, failures={})
    assert whole.is_complete


def test_table_names_the_busy_host(report: StormReport) -> None:
    text = shown(report)
    assert "h0 (busy)" in text
    assert "h1 (busy)" not in text
    assert text.count(" 4.0 ") == 13  # eleven hosts, their median, the last of them
    assert "14.5" in text


def test_section_is_well_formed_and_escapes_what_failed(report: StormReport) -> None:
    tags: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

    text = page.section_of(report)
    Reader().feed(text)
    assert "svg" in tags
    assert "nbdkit did not &lt;start&gt;" in text
    assert text.count("<tr>") == 1 + 12 + 4


def test_documents_hold_everything(report: StormReport, tmp_path: pathlib.Path) -> None:
    paths = tmp_path / "new" / "report.json", tmp_path / "new" / "report.html"
    page.write(None, report, *paths)
    document = json.loads(paths[0].read_text())
    assert (document["format"], document["version"]) == (page.FORMAT, page.FORMAT_VERSION)
    assert document["guests"] is None
    found = [StormResult.from_json(one) for one in document["storm"]["storms"]]
    assert [one.approach for one in found] == ["non-cache", "acstor"]
    assert "hosts boot at once" in paths[1].read_text()


def test_end_of_a_storm_tells_the_median_that_the_table_has() -> None:
    output = io.StringIO()
    StormView(Console(file=output, width=100)).storm_over(storm("acstor", [1.0, 2.0]), None)
    assert "median 1.5 s" in output.getvalue()


def test_watching_without_a_terminal_tells_each_host_once() -> None:
    output = io.StringIO()
    view = StormView(Console(file=output, width=100))
    guests = storm("acstor", [3.0, 4.0]).guests
    links = {"origin": LinkBytes(9, 0), "h0": LinkBytes(0, 5), "h1": LinkBytes(0, 4)}
    with view.storm("ACStor", many_hosts.settings_of(2, RATE)):
        for count in (0, 1, 1, 2):
            view.watch(Progress(float(count), 2, guests[:count], links))
    lines = output.getvalue().splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  h")] == ["h0", "h1"]


def test_watching_on_a_terminal_shows_every_host_and_what_it_received() -> None:
    guests = storm("acstor", [3.0, None]).guests
    links = {
        "origin": LinkBytes(9_000_000, 0),
        "h0": LinkBytes(0, 5_000_000),
        "h1": LinkBytes(0, 0),
    }
    output = io.StringIO()
    console = Console(file=output, width=100, force_terminal=True)
    view = StormView(console)
    with view.storm("ACStor", many_hosts.settings_of(2, RATE)):
        view.watch(Progress(1.0, 2, guests[:1], links))
    text = output.getvalue()
    assert "h0 (busy)" in text
    assert "h1" in text
    assert "5.0" in text
    assert live.BAR_COLUMNS * "█" in text


@pytest.mark.parametrize("hosts", [0, 1, 257])
def test_too_few_or_too_many_hosts_are_refused(hosts: int) -> None:
    with pytest.raises(TestbedError):
        many_hosts.settings_of(hosts, RATE)
