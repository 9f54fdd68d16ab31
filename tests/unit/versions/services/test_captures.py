"""Captures over the message bus: what is sent, and that no answer is believed unread."""

import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.versions.services.captures import CaptureOrder, CaptureState, RpcCaptures

TASK, VERSION = (str(uuid.UUID(int=number)) for number in (1, 2))
ORDER = CaptureOrder(
    task=TASK,
    kind="instance",
    owner=str(uuid.UUID(int=3)),
    version={"project": "p"},
    parents={"vda": VERSION},
    base_image=None,
    consistency="best",
    deadline_seconds=60.0,
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


def test_order_is_sent_with_the_epoch() -> None:
    agent = Agent(ANSWER)
    found = RpcCaptures(agent).start("h1", ORDER, 4)
    ((host, method, arguments),) = agent.calls
    assert (host, method) == ("h1", "capture_start")
    assert (arguments["task"], arguments["epoch"], arguments["deadline_s"]) == (TASK, 4, 60.0)
    assert arguments["devices"] is None
    assert found.state is CaptureState.HELD
    assert found.versions == {"vda": VERSION}
    assert found.left_out == {"vdb": "it is in a pool of Ceph"}
    assert (found.done_bytes, found.total_bytes, found.failure) == (5, 10, None)


def test_failure_of_the_host_is_an_error() -> None:
    failure = {"kind": "exhausted", "message": "no room", "hint": "make some"}
    agent = Agent({**ANSWER, "state": "failed", "failure": failure})
    found = RpcCaptures(agent).progress("h1", TASK, 4)
    assert isinstance(found.failure, exception.ExhaustedError)
    assert found.failure.hint == "make some"


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
