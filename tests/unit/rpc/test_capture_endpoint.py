"""Calls of the service of versions about captures: over a wire, and malformed."""

import uuid
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.capture_endpoint import CaptureEndpoint
from acstor.repository.versions.record import DiskKind, Trigger
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.agent_server import version_of
from acstor.versions.host_capture.progress import CaptureProgress
from acstor.versions.host_capture.request import CaptureRequest, VersionFields
from acstor.versions.host_capture.states import CaptureState
from tests.unit.rpc.conftest import Listen

TASK, SERVER = (str(uuid.UUID(int=number)) for number in (1, 2))
REQUEST = CaptureRequest(TASK, DiskKind.INSTANCE, SERVER, VersionFields("a project"))


class RecordingCaptures:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def start_capture(self, request: CaptureRequest, epoch: int) -> CaptureProgress:
        self.asked.append(("start", request, epoch))
        return CaptureProgress(request.task, epoch, "h1", CaptureState.QUEUED)

    def progress_of(self, task: str, epoch: int) -> CaptureProgress:
        self.asked.append(("progress", task, epoch))
        raise exception.FencedError("task is of epoch 9", hint="let it go")

    def abort(self, task: str, epoch: int) -> CaptureProgress:
        self.asked.append(("abort", task, epoch))
        return CaptureProgress(task, epoch, "h1", CaptureState.ABORTED)

    def discard(self, task: str, epoch: int) -> bool:
        self.asked.append(("discard", task, epoch))
        return True

    def follow(self, server: str, triggers: frozenset[Trigger]) -> bool:
        self.asked.append(("follow", server, triggers))
        return False


def test_messages_arrive_as_they_were_meant(conf: cfg.ConfigOpts, listen: Listen) -> None:
    captures = RecordingCaptures()
    listen("h1", CaptureEndpoint("h1", captures))
    with transport.opened(conf) as opened:
        client = AgentClient(opened, timeout=10.0)
        told = client.call("h1", "capture_start", epoch=3, **REQUEST.to_arguments())
        assert CaptureProgress.from_answer(told).state is CaptureState.QUEUED
        with pytest.raises(exception.FencedError, match="epoch 9"):
            client.call("h1", "capture_progress", task=TASK, epoch=3)
        told = client.call("h1", "capture_abort", task=TASK, epoch=4)
        assert CaptureProgress.from_answer(told).state is CaptureState.ABORTED
        assert client.call("h1", "capture_discard", task=TASK, epoch=4) == {"is_gone": True}
        told = client.call("h1", "capture_follow", server=SERVER, triggers=["delete"])
        assert told == {"is_pinned": False}
    assert captures.asked == [
        ("start", REQUEST, 3),
        ("progress", TASK, 3),
        ("abort", TASK, 4),
        ("discard", TASK, 4),
        ("follow", SERVER, frozenset({Trigger.DELETE})),
    ]


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("capture_start", REQUEST.to_arguments()),
        ("capture_start", {**REQUEST.to_arguments(), "epoch": 0}),
        ("capture_start", {**REQUEST.to_arguments(), "epoch": 1, "other": 1}),
        ("capture_progress", {"task": TASK}),
        ("capture_progress", {"task": "x", "epoch": 1}),
        ("capture_abort", {"task": TASK, "epoch": 1.5}),
        ("capture_abort", {"task": TASK, "epoch": True}),
        ("capture_discard", {"task": TASK, "epoch": 1, "force": True}),
        ("capture_discard", {}),
        ("capture_follow", {"server": SERVER}),
        ("capture_follow", {"server": SERVER, "triggers": ["manual"]}),
        ("capture_follow", {"server": SERVER, "triggers": [], "epoch": 1}),
    ],
)
def test_malformed_calls_are_refused(method: str, arguments: dict[str, Any]) -> None:
    captures = RecordingCaptures()
    answer = getattr(CaptureEndpoint("h1", captures), method)({}, **arguments)
    assert answer["error"]["kind"] == "invalid"
    assert captures.asked == []


def test_older_hosts_are_asked_for_nothing_new() -> None:
    methods = ("capture_start", "capture_progress", "capture_abort", "capture_discard")
    assert {version_of(method) for method in methods} == {"1.6"}
