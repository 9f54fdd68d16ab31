"""Calls of the service of versions about restores in place: over a wire, and malformed."""

import dataclasses
import uuid
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.restore_endpoint import RestoreEndpoint
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.agent_server import RESTORE_VERSION, make_target, version_of
from acstor.versions.host_restore.progress import RestoreProgress
from acstor.versions.host_restore.request import RestoredDisk, RestoreRequest
from acstor.versions.host_restore.states import RestoreState
from acstor.versions.services.restores import RpcRestores
from tests.unit.rpc.conftest import Listen

TASK, SERVER, VERSION = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
REQUEST = RestoreRequest(TASK, SERVER, "vda", VERSION, "a project")
SET = dataclasses.replace(REQUEST, further=(RestoredDisk("vdb", VERSION),), nvram=VERSION)


class RecordingRestores:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def start_restore(self, request: RestoreRequest, epoch: int) -> RestoreProgress:
        self.asked.append(("start", request, epoch))
        return RestoreProgress(request.task, epoch, "h1", VERSION, RestoreState.QUEUED)

    def progress_of(self, task: str, epoch: int) -> RestoreProgress:
        self.asked.append(("progress", task, epoch))
        raise exception.FencedError("task is of epoch 9", hint="let it go")

    def abort(self, task: str, epoch: int) -> RestoreProgress:
        self.asked.append(("abort", task, epoch))
        return RestoreProgress(task, epoch, "h1", VERSION, RestoreState.TORN)

    def discard(self, task: str, epoch: int) -> bool:
        self.asked.append(("discard", task, epoch))
        return True


def test_messages_arrive_as_they_were_meant(conf: cfg.ConfigOpts, listen: Listen) -> None:
    asked = RecordingRestores()
    listen("h1", RestoreEndpoint("h1", asked))
    with transport.opened(conf) as opened:
        restores = RpcRestores.over(AgentClient(opened, timeout=10.0))
        assert restores.start("h1", REQUEST, 3).state is RestoreState.QUEUED
        restores.check("h1", SET, 3)
        assert restores.start("h1", SET, 3).state is RestoreState.QUEUED
        with pytest.raises(exception.FencedError, match="epoch 9"):
            restores.progress("h1", TASK, 3)
        restores.abort("h1", TASK, 4)
        assert restores.discard("h1", TASK, 4)
    assert asked.asked == [
        ("start", REQUEST, 3),
        ("start", SET, 3),
        ("progress", TASK, 3),
        ("abort", TASK, 4),
        ("discard", TASK, 4),
    ]


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("restore_start", REQUEST.to_arguments()),
        ("restore_start", {**REQUEST.to_arguments(), "epoch": 0}),
        ("restore_start", {**REQUEST.to_arguments(), "epoch": 1, "other": 1}),
        ("restore_set_check", SET.to_arguments()),
        ("restore_set_start", {**SET.to_arguments(), "epoch": 1, "nvram": 3}),
        ("restore_progress", {"task": TASK}),
        ("restore_progress", {"task": "x", "epoch": 1}),
        ("restore_abort", {"task": TASK, "epoch": 1.5}),
        ("restore_discard", {"task": TASK, "epoch": 1, "force": True}),
        ("restore_discard", {}),
    ],
)
def test_malformed_calls_are_refused(method: str, arguments: dict[str, Any]) -> None:
    asked = RecordingRestores()
    answer = getattr(RestoreEndpoint("h1", asked), method)({}, **arguments)
    assert answer["error"]["kind"] == "invalid"
    assert asked.asked == []


def test_older_hosts_are_asked_for_nothing_new() -> None:
    methods = ("restore_start", "restore_progress", "restore_abort", "restore_discard")
    assert {version_of(method) for method in methods} == {"1.7"}
    sets = ("restore_set_check", "restore_set_start")
    assert {version_of(method) for method in sets} == {"1.8"}


class OlderEndpoint(RestoreEndpoint):
    """An agent of the release before."""

    def __init__(self, host: str, restoring: RecordingRestores) -> None:
        super().__init__(host, restoring)
        self.target = make_target(RESTORE_VERSION)


def test_older_host_refuses_a_set_and_restores_one_disk(
    conf: cfg.ConfigOpts, listen: Listen
) -> None:
    asked = RecordingRestores()
    listen("h1", OlderEndpoint("h1", asked))
    with transport.opened(conf) as opened:
        restores = RpcRestores.over(AgentClient(opened, timeout=10.0))
        for ask in (restores.check, restores.start):
            with pytest.raises(exception.UnsupportedError, match="does not know"):
                ask("h1", SET, 3)
        assert asked.asked == []
        restores.check("h1", REQUEST, 3)
        assert restores.start("h1", REQUEST, 3).state is RestoreState.QUEUED


class Calls:
    """A host that answers one thing."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def __call__(self, host: str, method: str, **arguments: object) -> object:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_host_that_knows_of_none_has_nothing_to_end_or_forget() -> None:
    restores = RpcRestores(Calls(exception.NotFoundError("no such task")))
    restores.abort("h1", TASK, 1)
    assert restores.discard("h1", TASK, 1)


@pytest.mark.parametrize("answer", [None, {}, {"task": TASK}])
def test_nonsense_is_an_error(answer: object) -> None:
    restores = RpcRestores(Calls(answer))
    with pytest.raises(exception.InternalError, match="nonsense"):
        restores.progress("h1", TASK, 1)
    assert not restores.discard("h1", TASK, 1)
