"""Captures over the message bus: what is sent, and that no answer is believed unread."""

import datetime
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.agent.capture_endpoint import CaptureEndpoint
from acstor.repository.versions.record import DiskKind, Trigger
from acstor.versions.host_capture.progress import CapturedDisk, CaptureProgress
from acstor.versions.host_capture.request import CaptureRequest, VersionFields
from acstor.versions.host_capture.states import CaptureState
from acstor.versions.services.captures import RpcCaptures

TASK, VERSION = (str(uuid.UUID(int=number)) for number in (1, 2))
REQUEST = CaptureRequest(
    TASK,
    DiskKind.INSTANCE,
    str(uuid.UUID(int=3)),
    VersionFields(
        "p",
        Trigger.SCHEDULE,
        schedule="nightly",
        slot="2026-11-27T02:30:00Z",
        expires_at=datetime.datetime(2026, 12, 11, tzinfo=datetime.UTC),
        labels={"why": "nightly"},
    ),
    parents={"vda": VERSION},
    deadline_s=60.0,
)
ANSWER: dict[str, Any] = {
    "task": TASK,
    "epoch": 4,
    "host": "h1",
    "state": "held",
    "disks": [{"version": VERSION, "device": "vda", "size_bytes": 512}],
    "left_out": {"vdb": "it is in a pool of Ceph"},
    "consistency": "crash",
    "consistency_note": "no agent in the guest",
    "done_bytes": 5,
    "total_bytes": 10,
    "age_s": 1.0,
    "failure": None,
}


class Agent:
    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.calls: list[tuple[str, str, dict[str, object]]] = []

    def __call__(self, host: str, method: str, **arguments: object) -> object:
        self.calls.append((host, method, arguments))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Host:
    """Agent of a host: what answers calls there, without a bus between."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self._endpoint = CaptureEndpoint("h1", self)

    def __call__(self, host: str, method: str, **arguments: object) -> object:
        answer = getattr(self._endpoint, method)({}, **arguments)
        return answer["result"]

    def start_capture(self, request: CaptureRequest, epoch: int) -> CaptureProgress:
        self.asked.append((request, epoch))
        return self.progress_of(request.task, epoch)

    def progress_of(self, task: str, epoch: int) -> CaptureProgress:
        disks = (CapturedDisk(VERSION, "vda", 512),)
        left_out = {"vdb": "it is in a pool of Ceph"}
        return CaptureProgress(task, epoch, "h1", CaptureState.HELD, disks, left_out)

    def abort(self, task: str, epoch: int) -> CaptureProgress:
        self.asked.append(("abort", task, epoch))
        return self.progress_of(task, epoch)

    def discard(self, task: str, epoch: int) -> bool:
        self.asked.append(("discard", task, epoch))
        return True

    def follow(self, server: str, triggers: frozenset[Trigger]) -> bool:
        raise NotImplementedError


def test_agents_take_what_is_sent_and_are_understood() -> None:
    host = Host()
    captures = RpcCaptures(host)
    found = captures.start("h1", REQUEST, 4)
    assert host.asked == [(REQUEST, 4)]
    assert found == captures.progress("h1", TASK, 4) == host.progress_of(TASK, 4)
    assert found.versions == {"vda": VERSION}
    captures.abort("h1", TASK, 4)
    assert captures.discard("h1", TASK, 4)
    assert host.asked[1:] == [("abort", TASK, 4), ("discard", TASK, 4)]


def test_failure_of_the_host_is_an_error() -> None:
    failure = {"kind": "exhausted", "message": "no room", "hint": "make some"}
    agent = Agent({**ANSWER, "state": "failed", "failure": failure})
    found = RpcCaptures(agent).progress("h1", TASK, 4)
    assert found.failure is not None
    error = found.failure.to_error()
    assert (type(error), error.hint) == (exception.ExhaustedError, "make some")


@pytest.mark.parametrize(
    "change",
    [
        {"state": "nowhere"},
        {"disks": None},
        {"disks": [{"version": "x", "device": "vda"}]},
        {"disks": [None]},
        {"left_out": 5},
        {"done_bytes": -1},
        {"total_bytes": "10"},
        {"failure": 5},
        {"failure": {"kind": "odd"}},
    ],
)
def test_nonsense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(exception.InternalError, match="host h1 answered nonsense"):
        RpcCaptures(Agent({**ANSWER, **change})).progress("h1", TASK, 4)


def test_host_that_knows_nothing_has_nothing_to_give_up() -> None:
    agent = Agent(exception.NotFoundError("no such task"))
    RpcCaptures(agent).abort("h1", TASK, 4)
    assert RpcCaptures(agent).discard("h1", TASK, 4)
    assert [method for _, method, _ in agent.calls] == ["capture_abort", "capture_discard"]


@pytest.mark.parametrize(("answer", "is_gone"), [({"is_gone": True}, True), ({}, False)])
def test_ending_capture_is_asked_for_again(answer: object, is_gone: bool) -> None:
    assert RpcCaptures(Agent(answer)).discard("h1", TASK, 4) is is_gone
