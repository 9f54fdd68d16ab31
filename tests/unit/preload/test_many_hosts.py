"""One preload on many hosts."""

import threading
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from acstor import exception
from acstor.cluster.member import Member
from acstor.control.protocol import PreloadWhat
from acstor.preload import many_hosts
from acstor.preload.admission import Reason
from acstor.preload.many_hosts import SILENCE_MAX, HostPreload, Progress, ask, begin, told
from acstor.preload.request import PreloadRequest
from acstor.preload.states import AdmittedPreloadState
from acstor.rpc.agent_client import Answer
from testbed.fixtures.conditions import wait_for

IMAGE = str(uuid.UUID(int=1))
WISH = PreloadRequest(IMAGE, PreloadWhat.FULL, deadline_s=100.0)
ESTIMATE = {
    "host": "?", "total_bytes": 100 << 20, "missing_bytes": 100 << 20, "free_bytes": 1 << 30,
    "evictable_bytes": 0, "pinnable_bytes": 1 << 30, "default_rate": 1 << 20, "most_rate": None,
    "margin": 1.25, "promised_rate": 0, "promised_bytes": 0, "is_draining": False, "active": None,
}  # fmt: skip


def status(host: str, admission_id: str, **fields: object) -> dict[str, object]:
    return {
        "host": host, "id": admission_id, "image": IMAGE, "what": "full", "pin": False,
        "state": "running", "is_late": False, "total_bytes": 100, "remaining_bytes": 50,
        "rate_bytes_per_s": 10, "recent_bytes_per_s": 5, "eta_s": 10.0, "deadline_s": None,
        "age_s": 1.0, "error": None,
    } | fields  # fmt: skip


class ScriptedAgents:
    """Agents that answer what the test wants; an exception is raised."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.calls: list[tuple[str, str, dict[str, object]]] = []
        self.lock = threading.Lock()

    def call(self, host: str, method: str, **arguments: object) -> Any:
        with self.lock:
            self.calls.append((host, method, arguments))
        answer = self.answers[host, method]
        if callable(answer):
            answer = answer(arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def call_all(
        self, hosts: Iterable[str], method: str, arguments: Mapping[str, Mapping[str, object]]
    ) -> dict[str, Answer]:
        found = {}
        for host in hosts:
            try:
                found[host] = Answer(host, self.call(host, method, **arguments[host]))
            except exception.AcstorError as error:
                found[host] = Answer(host, error=error)
        return found

    def methods(self) -> list[tuple[str, str]]:
        return [(host, method) for host, method, _ in self.calls]


def members(*names: str, draining: str = "") -> dict[str, Member]:
    return {
        name: Member(name, "10.0.0.1:1", "10.0.0.1:2", 1 << 30, "1", is_draining=name == draining)
        for name in names
    }


@pytest.fixture
def agents() -> ScriptedAgents:
    found = ScriptedAgents()
    for host in ("h1", "h2", "h3"):
        found.answers[host, "preload_estimate"] = ESTIMATE
        found.answers[host, "preload_start"] = lambda fields, host=host: status(host, fields["id"])
        found.answers[host, "preload_stop"] = status(host, "x", state="stopped")
    return found


def test_hosts_that_can_admit_are_asked_and_nothing_begins(agents: ScriptedAgents) -> None:
    verdicts = ask(agents, WISH, ["h2", "h1"], members("h1", "h2"))
    assert [(each.host, each.reason) for each in verdicts] == [("h2", None), ("h1", None)]
    assert {method for _, method in agents.methods()} == {"preload_estimate"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (exception.DeadlineError("host h1 did not answer"), Reason.SILENT),
        (exception.UnavailableError("no agent listens"), Reason.SILENT),
        (exception.NotFoundError("no working set"), Reason.UNKNOWN),
        (exception.UnsupportedError("too old"), Reason.FAILED),
        ({**ESTIMATE, "free_bytes": 1}, Reason.ROOM),
        ({**ESTIMATE, "most_rate": 1 << 19}, Reason.DEADLINE),
        ({**ESTIMATE, "missing_bytes": "lots"}, Reason.FAILED),
        (None, Reason.FAILED),
    ],
)
def test_host_that_cannot_says_why_and_the_others_are_heard(
    agents: ScriptedAgents, answer: object, reason: Reason
) -> None:
    agents.answers["h1", "preload_estimate"] = answer
    first, second = ask(agents, WISH, ["h1", "h2"], members("h1", "h2"))
    assert (first.reason, second.reason) == (reason, None)
    assert first.text


def test_hosts_that_are_gone_or_drained_are_not_even_asked(agents: ScriptedAgents) -> None:
    verdicts = ask(agents, WISH, ["h1", "h2", "h3"], members("h1", "h2", draining="h2"))
    assert [each.reason for each in verdicts] == [None, Reason.DRAINING, Reason.SILENT]
    assert agents.methods() == [("h1", "preload_estimate")]


def test_all_hosts_begin_the_same_admitted_preload(agents: ScriptedAgents) -> None:
    begun = begin(agents, WISH, ["h1", "h2"])
    assert list(begun) == ["h1", "h2"]
    assert begun["h1"].id == begun["h2"].id
    assert PreloadRequest.from_arguments(
        {name: value for name, value in agents.calls[0][2].items() if name != "id"}
    ) == WISH  # fmt: skip


def test_where_one_does_not_begin_none_goes_on(agents: ScriptedAgents) -> None:
    agents.answers["h2", "preload_start"] = exception.ExhaustedError("no room", hint="make some")
    agents.answers["h2", "preload_stop"] = exception.NotFoundError("nothing to stop")
    with pytest.raises(exception.ExhaustedError, match="1 of 3 hosts") as caught:
        begin(agents, WISH, ["h1", "h2", "h3"])
    assert caught.value.hint == "make some"
    stopped = [(host, fields["id"]) for host, method, fields in agents.calls if "stop" in method]
    started = {fields["id"] for _, method, fields in agents.calls if "start" in method}
    assert [host for host, _ in stopped] == ["h1", "h2", "h3"]
    assert {admission_id for _, admission_id in stopped} == started


def test_progress_ends_when_all_hosts_have_it(agents: ScriptedAgents) -> None:
    progress = Progress(agents, begin(agents, WISH, ["h1", "h2"]))
    admission_id = progress.hosts[0].id
    for host in ("h1", "h2"):
        agents.answers[host, "preload_status"] = [
            status(host, str(uuid.uuid4()), state="failed"),  # of another time
            status(host, admission_id, state="done", remaining_bytes=0),
        ]
    try:
        wait_for("the end", lambda: progress.poll() or progress.is_settled)  # type: ignore[func-returns-value]
    finally:
        progress.close()
    assert [each.state for each in progress.hosts] == [AdmittedPreloadState.DONE] * 2
    assert [each.share for each in progress.hosts] == [1.0, 1.0]


def test_silent_host_is_lost_after_a_while_and_holds_up_nobody(agents: ScriptedAgents) -> None:
    now = [0.0]
    progress = Progress(agents, begin(agents, WISH, ["h1", "h2"]), clock=lambda: now[0])
    admission_id = progress.hosts[0].id
    released = threading.Event()

    def wait(_: object) -> object:
        released.wait(20)
        return exception.DeadlineError("host h1 did not answer in 5 s")

    agents.answers["h1", "preload_status"] = wait
    agents.answers["h2", "preload_status"] = [status("h2", admission_id, state="done")]

    def is_done(number: int) -> bool:
        progress.poll()
        return progress.hosts[number].is_settled

    try:
        wait_for("the other", lambda: is_done(1))
        assert not progress.hosts[0].is_settled
        released.set()
        now[0] = SILENCE_MAX + 1
        wait_for("a lost host", lambda: is_done(0))
    finally:
        released.set()
        progress.close()
    assert progress.hosts[0].is_lost
    assert progress.hosts[0].error == "host h1 did not answer in 5 s"


def test_admitted_preload_that_a_host_forgot_counts_as_stopped(agents: ScriptedAgents) -> None:
    progress = Progress(agents, begin(agents, WISH, ["h1"]))
    agents.answers["h1", "preload_status"] = []
    try:
        wait_for("the end", lambda: progress.poll() or progress.is_settled)  # type: ignore[func-returns-value]
    finally:
        progress.close()
    assert progress.hosts[0].state is AdmittedPreloadState.STOPPED


def test_waiting_ends_with_the_deadline() -> None:
    late = HostPreload.from_answer("h1", status("h1", "x", is_late=True))
    assert late.is_settled
    assert not late.state.has_ended


@pytest.mark.parametrize(
    "change",
    [
        {"state": "dreaming"},
        {"state": None},
        {"total_bytes": -1},
        {"remaining_bytes": True},
        {"eta_s": "soon"},
        {"is_late": 0},
        {"error": 7},
        {"id": None},
    ],
)
def test_nonsense_of_a_host_is_an_error(change: dict[str, object]) -> None:
    with pytest.raises(exception.InternalError, match="h1"):
        told("h1", [status("h1", "x", **change)])
    with pytest.raises(exception.InternalError):
        told("h1", 7)


def test_hosts_name_is_the_one_that_was_asked() -> None:
    """A host must not speak for another."""
    assert many_hosts.told("h1", status("h2", "x"))[0].host == "h1"
