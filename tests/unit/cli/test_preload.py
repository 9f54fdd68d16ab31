"""Arguments and output of 'acstor image preload'."""

import argparse
import io
import uuid

import pytest

from acstor import exception
from acstor.cli import aggregates, preload, preload_view
from acstor.control.protocol import PreloadWhat
from acstor.preload.admission import Estimate, Reason, Verdict, judge
from acstor.preload.many_hosts import HostPreload
from acstor.preload.request import PreloadRequest
from tests.unit.preload.test_many_hosts import status

MIB = 1 << 20
IMAGE = str(uuid.UUID(int=1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1h", 3600), ("1.5s", 1.5)],
)
def test_time_is_understood(text: str, seconds: float) -> None:
    assert preload.duration(text) == seconds


@pytest.mark.parametrize("text", ["", " ", "soon", "-5", "0", "10d", "5m1h", "999h", "1m1m", "nan"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        preload.duration(text)


def test_rate_is_understood() -> None:
    assert preload._rate("50MiB") == preload._rate("50MiB/s") == 50 * MIB


@pytest.mark.parametrize("text", ["", "0", "fast", "-1", "1B", "1PiB"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        preload._rate(text)


def test_hosts_are_named_once_and_in_lower_case() -> None:
    assert preload._names("H1, h2,,h1") == ["h1", "h2"]
    with pytest.raises(argparse.ArgumentTypeError):
        preload._names(" , ")


def verdict(request: PreloadRequest, most: int | None) -> Verdict:
    return judge(
        request,
        Estimate(
            "h1", 600 * MIB, 600 * MIB, 1 << 40, 0, 1 << 40, 64 * MIB, most, 1.25,
        ),
    )  # fmt: skip


def test_refusal_names_the_least_rate_and_the_least_deadline_that_would_do() -> None:
    request = PreloadRequest(IMAGE, PreloadWhat.FULL, 10 * MIB, 30.0)
    hint = preload.hint(request, [verdict(request, 100 * MIB)])
    assert hint.startswith("--rate 20481KiB or --deadline 61s would do")


def test_refusal_names_no_rate_that_the_host_does_not_have() -> None:
    request = PreloadRequest(IMAGE, PreloadWhat.FULL, None, 2.0)
    assert preload.hint(request, [verdict(request, 100 * MIB)]).startswith("--deadline 7s would do")


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([Reason.SILENT], exception.UnavailableError),
        ([Reason.ROOM, Reason.PIN], exception.ExhaustedError),
        ([Reason.UNKNOWN], exception.NotFoundError),
        ([Reason.DEADLINE], exception.InvalidError),
        ([Reason.SILENT, Reason.ROOM], exception.InvalidError),
    ],
)
def test_exit_status_of_a_refusal_says_what_is_in_the_way(
    reasons: list[Reason], expected: type[exception.AcstorError]
) -> None:
    verdicts = [Verdict("h1", reason=reason) for reason in reasons]
    assert preload._error(verdicts) is expected
    assert preload.hint(PreloadRequest(IMAGE, PreloadWhat.FULL), verdicts)


def told(**fields: object) -> HostPreload:
    return HostPreload.from_answer("h1", status("h1", "x", **fields))


def test_line_of_a_host() -> None:
    assert preload_view.line(told()) == "h1: running 50 %, 50 B of 100 B, 5 B/s, 10 s to go"
    late = told(is_late=True, state="yielding", recent_bytes_per_s=0, eta_s=None)
    assert preload_view.line(late) == "h1: yielding 50 %, 50 B of 100 B, the deadline is over"


def test_lines_are_written_when_something_changes() -> None:
    stream = io.StringIO()
    with preload_view.for_stream(stream) as view:
        view.show([told()])
        view.show([told(remaining_bytes=40)])
        view.show([told(state="done", remaining_bytes=0)])
        view.show([told(state="done", remaining_bytes=0)])
    assert [line.split(",")[0] for line in stream.getvalue().splitlines()] == [
        "h1: running 50 %",
        "h1: done 100 %",
    ]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_table_on_a_terminal_shows_every_host() -> None:
    stream = _Terminal()
    with preload_view.for_stream(stream) as view:
        view.show([told(), told(state="failed", error="no room")])
    assert "no room" in stream.getvalue()
    assert "50 %" in stream.getvalue()


def test_local_file_is_noted_where_nothing_else_is() -> None:
    assert preload_view.note(told(state="done", local_file="linked")) == "local file: linked"
    assert preload_view.note(told(local_file="waiting", error="no room")) == "no room"
    assert told(local_file=7).local_file is None
    assert told(local_file="x" * 100).local_file is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0, "0 s"), (59.6, "1:00 min"), (61, "1:01 min"), (3700, "1:01 h")],
)
def test_duration_for_people(seconds: float | None, text: str) -> None:
    assert preload_view.duration(seconds) == text


def test_table_for_programs_has_plain_values() -> None:
    (row,) = preload.rows([told()])
    fields = dict(zip(preload.COLUMNS, row, strict=True))
    assert (fields["Host"], fields["State"], fields["To go s"]) == ("h1", "running", 10.0)
    assert fields["Done"].machine_readable() == 0.5


@pytest.mark.parametrize(
    ("fields", "has_failed"),
    [
        ({"state": "done"}, False),
        ({"state": "running"}, False),
        ({"state": "missed"}, True),
        ({"state": "failed"}, True),
        ({"state": "stopped"}, True),
        ({"is_late": True}, True),
    ],
)
def test_what_counts_as_a_broken_admitted_preload(
    fields: dict[str, object], has_failed: bool
) -> None:
    assert preload._has_failed(told(**fields)) is has_failed


AGGREGATES = {
    "aggregates": [
        {"id": 1, "name": "desktops", "hosts": ["Compute2", "compute1"]},
        {"id": 2, "name": "empty", "hosts": []},
    ]
}


def test_aggregate_is_found_by_name_and_number() -> None:
    for name in ("desktops", "1"):
        assert aggregates.chosen(AGGREGATES, name) == ["compute1", "compute2"]


@pytest.mark.parametrize("name", ["empty", "others"])
def test_aggregate_without_hosts_is_not_found(name: str) -> None:
    with pytest.raises(exception.NotFoundError):
        aggregates.chosen(AGGREGATES, name)


@pytest.mark.parametrize(
    "answer", [None, {}, {"aggregates": 1}, {"aggregates": [{"name": "x", "hosts": [1]}]}]
)
def test_nonsense_of_nova_is_refused(answer: object) -> None:
    with pytest.raises(exception.UnavailableError):
        aggregates.chosen(answer, "x")
