"""Preloads over the message bus: what is sent, and that no answer is believed unread."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from acstor import exception
from acstor.cluster.member import Member
from acstor.control.protocol import PreloadWhat
from acstor.preload.request import PreloadRequest
from acstor.rpc.agent_client import Answer
from acstor.versions.services.preloads import RpcPreloads
from testbed.doubles.memory_host_preloads import MemoryHostPreloads

IMAGE, PRELOAD = (str(uuid.UUID(int=number)) for number in (1, 2))
REQUEST = PreloadRequest(IMAGE, PreloadWhat.WORKING_SET, 1 << 20)


def status_of(**changes: Any) -> dict[str, Any]:
    """Return what a host tells of the preload."""
    told = MemoryHostPreloads().start(["h1"], REQUEST, PRELOAD)["h1"]
    names = (
        "id", "image", "what", "pin", "is_late", "total_bytes", "remaining_bytes", "eta_s",
        "rate_bytes_per_s", "recent_bytes_per_s", "deadline_s", "age_s", "error",
    )  # fmt: skip
    return {**{name: getattr(told, name) for name in names}, "state": "running", **changes}


class Agents:
    """Agents that answer what they are told to, by method."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.calls: list[tuple[str, str, dict[str, object]]] = []

    def call(self, host: str, method: str, **arguments: object) -> Any:
        raise NotImplementedError

    def call_all(
        self, hosts: Iterable[str], method: str, arguments: Mapping[str, Mapping[str, object]]
    ) -> dict[str, Answer]:
        found = {}
        for host in hosts:
            self.calls.append((host, method, dict(arguments[host])))
            answer = self.answers[method]
            if callable(answer):
                answer = answer(arguments[host])
            if isinstance(answer, exception.AcstorError):
                found[host] = Answer(host, error=answer)
            else:
                found[host] = Answer(host, answer)
        return found


def preloads(agents: Agents, members: Mapping[str, Member] | None = None) -> RpcPreloads:
    return RpcPreloads(agents, lambda: members or {})


def test_begun_preload_is_told() -> None:
    agents = Agents(preload_start=status_of())
    told = preloads(agents).start(["h1"], REQUEST, PRELOAD)["h1"]
    assert getattr(told, "total_bytes", None) == status_of()["total_bytes"]
    ((host, _, arguments),) = agents.calls
    assert host == "h1"
    assert (arguments["id"], arguments["rate_bytes_per_s"]) == (PRELOAD, 1 << 20)


def test_host_that_knows_of_no_boots_gets_the_whole_image() -> None:
    def begin(arguments: Mapping[str, object]) -> object:
        if arguments["what"] == "working-set":
            return exception.NotFoundError("no working set")
        return status_of(what="full")

    agents = Agents(preload_start=begin)
    told = preloads(agents).start(["h1"], REQUEST, PRELOAD)["h1"]
    assert getattr(told, "what", None) == "full"


def test_status_is_that_of_the_preload() -> None:
    other = status_of(id=IMAGE)
    agents = Agents(preload_status=[other, status_of(remaining_bytes=3)])
    told = preloads(agents).status(["h1"], IMAGE, PRELOAD)["h1"]
    assert getattr(told, "remaining_bytes", None) == 3
    assert preloads(Agents(preload_status=[other])).status(["h1"], IMAGE, PRELOAD) == {"h1": None}


@pytest.mark.parametrize(
    "answer", [None, "x", [5], status_of(state="odd"), status_of(total_bytes=-1)]
)
def test_nonsense_is_an_error_of_that_host(answer: object) -> None:
    told = preloads(Agents(preload_status=answer)).status(["h1"], IMAGE, PRELOAD)["h1"]
    assert isinstance(told, exception.InternalError)


def test_what_is_not_there_is_stopped() -> None:
    agents = Agents(preload_stop=exception.NotFoundError("nothing"))
    assert preloads(agents).stop(["h1"], IMAGE, PRELOAD) == {"h1": None}
    assert agents.calls == [("h1", "preload_stop", {"image": IMAGE, "id": PRELOAD})]
    away = exception.DeadlineError("silent")
    assert preloads(Agents(preload_stop=away)).stop(["h1"], IMAGE, PRELOAD) == {"h1": away}
