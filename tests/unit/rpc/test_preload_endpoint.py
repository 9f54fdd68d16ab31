"""Calls of other hosts about preloads: over a wire, and malformed."""

import uuid
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.preload_endpoint import PreloadEndpoint
from acstor.control.protocol import PreloadWhat
from acstor.preload.admission import Estimate
from acstor.preload.request import PreloadRequest
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from tests.unit.rpc.conftest import Listen

IMAGE = str(uuid.UUID(int=1))
ADMISSION = str(uuid.UUID(int=9))


class RecordingPreloads:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def estimate(self, image: str, what: PreloadWhat) -> Estimate:
        self.asked.append(("estimate", image, what))
        return Estimate("h1", 10, 5, 100, 0, 50, 1 << 20, None, 1.25)

    def admit(self, admission_id: str, request: PreloadRequest) -> dict[str, object]:
        self.asked.append(("admit", admission_id, request))
        return {"id": admission_id}

    def status(self, image: str | None = None) -> list[dict[str, object]]:
        self.asked.append(("status", image))
        return []

    def give_up(self, image: str, admission_id: str | None = None) -> dict[str, object]:
        self.asked.append(("give_up", image, admission_id))
        raise exception.NotFoundError("nothing to stop", hint="look")


def test_messages_arrive_as_they_were_meant(conf: cfg.ConfigOpts, listen: Listen) -> None:
    preloads = RecordingPreloads()
    listen("h1", PreloadEndpoint("h1", preloads))
    request = PreloadRequest(IMAGE, PreloadWhat.WORKING_SET, 1 << 20, 60.0, True)
    with transport.opened(conf) as opened:
        client = AgentClient(opened, timeout=10.0)
        told = client.call("h1", "preload_estimate", image=IMAGE, what="full")
        assert Estimate.from_answer("h1", told) == Estimate(
            "h1", 10, 5, 100, 0, 50, 1 << 20, None, 1.25
        )
        client.call("h1", "preload_start", id=ADMISSION, **request.to_arguments())
        assert client.call("h1", "preload_status") == []
        with pytest.raises(exception.NotFoundError, match="nothing to stop"):
            client.call("h1", "preload_stop", image=IMAGE, id=ADMISSION)
    assert preloads.asked == [
        ("estimate", IMAGE, PreloadWhat.FULL),
        ("admit", ADMISSION, request),
        ("status", None),
        ("give_up", IMAGE, ADMISSION),
    ]


START: dict[str, Any] = {"id": ADMISSION, "image": IMAGE, "what": "full"}


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("preload_estimate", {}),
        ("preload_estimate", {"image": IMAGE}),
        ("preload_estimate", {"image": "../x", "what": "full"}),
        ("preload_estimate", {"image": [IMAGE], "what": "full"}),
        ("preload_estimate", {"image": IMAGE, "what": {"full": 1}}),
        ("preload_estimate", {"image": IMAGE, "what": "full", "more": 1}),
        ("preload_start", {}),
        ("preload_start", {**START, "id": None}),
        ("preload_start", {**START, "id": "no-uuid"}),
        ("preload_start", {**START, "id": 7}),
        ("preload_start", {**START, "what": None}),
        ("preload_start", {**START, "rate_bytes_per_s": "50MiB"}),
        ("preload_start", {**START, "rate_bytes_per_s": -1}),
        ("preload_start", {**START, "deadline_s": 1e300}),
        ("preload_start", {**START, "deadline_s": []}),
        ("preload_start", {**START, "pin": "true"}),
        ("preload_start", {**START, "force": True}),
        ("preload_status", {"image": 7}),
        ("preload_status", {"host": "h1"}),
        ("preload_stop", {}),
        ("preload_stop", {"image": IMAGE, "id": "x"}),
        ("preload_stop", {"image": IMAGE.replace("-", "")}),
    ],
)
def test_malformed_arguments_are_refused_and_do_nothing(
    method: str, arguments: dict[str, Any]
) -> None:
    preloads = RecordingPreloads()
    endpoint = PreloadEndpoint("h1", preloads)
    answer = getattr(endpoint, method)({}, **arguments)
    assert answer["error"]["kind"] == "invalid"
    assert len(answer["error"]["message"]) < 300
    assert preloads.asked == []
