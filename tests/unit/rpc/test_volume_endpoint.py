"""Calls about the volumes of a host: over a wire, and malformed."""

import uuid
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.preload_endpoint import PreloadEndpoint
from acstor.agent.volume_endpoint import VolumeEndpoint
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.agent_server import version_of
from tests.unit.rpc.conftest import Listen
from tests.unit.rpc.test_preload_endpoint import RecordingPreloads

VOLUME = str(uuid.UUID(int=3))


class RecordingDataPlane:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.timeouts: list[float | None] = []
        self.error: exception.AcstorError | None = None

    def call(self, method: str, /, *, call_timeout: float | None = None, **params: object) -> Any:
        if self.error is not None:
            raise self.error
        self.asked.append((method, params))
        self.timeouts.append(call_timeout)
        return {"done": True}


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("volume_status", "volume.status", {}),
    ("volume_push", "volume.push", {}),
    ("volume_freeze", "volume.freeze", {"timeout_s": 2.5}),
    ("volume_freeze", "volume.freeze", {"timeout_s": 2.5, "holder": "a group"}),
    ("volume_thaw", "volume.thaw", {}),
    ("volume_thaw", "volume.thaw", {"holder": "a group"}),
    ("volume_resize", "volume.resize", {"size_bytes": 1 << 30}),
    ("volume_set_durability", "volume.set_durability", {"durability": {"default": "none"}}),
    ("volume_set_limits", "volume.set_limits", {"iops": 0, "bytes_per_s": 1000}),
]


def test_messages_arrive_at_the_admin_socket(conf: cfg.ConfigOpts, listen: Listen) -> None:
    data_plane = RecordingDataPlane()
    listen("h1", PreloadEndpoint("h1", RecordingPreloads()), VolumeEndpoint("h1", data_plane))
    with transport.opened(conf) as opened:
        client = AgentClient(opened, timeout=10.0)
        for message, _, arguments in CALLS:
            assert client.call("h1", message, volume=VOLUME, **arguments) == {"done": True}
        assert client.call("h1", "preload_status") == []
    assert data_plane.asked == [
        (method, {"volume": VOLUME, **arguments}) for _, method, arguments in CALLS
    ]
    assert all(timeout and timeout > 0 for timeout in data_plane.timeouts)


def test_error_of_the_data_plane_keeps_its_kind(conf: cfg.ConfigOpts, listen: Listen) -> None:
    data_plane = RecordingDataPlane()
    data_plane.error = exception.NotFoundError("volume is not open here", hint="open it")
    listen("h1", VolumeEndpoint("h1", data_plane))
    with (
        transport.opened(conf) as opened,
        pytest.raises(exception.NotFoundError, match="not open here"),
    ):
        AgentClient(opened, timeout=10.0).call("h1", "volume_push", volume=VOLUME)


def test_agent_of_an_older_release_says_what_to_do(conf: cfg.ConfigOpts, listen: Listen) -> None:
    listen("h1", PreloadEndpoint("h1", RecordingPreloads()))
    with transport.opened(conf) as opened:
        client = AgentClient(opened, timeout=10.0)
        with pytest.raises(exception.UnsupportedError) as caught:
            client.call("h1", "volume_push", volume=VOLUME)
        assert caught.value.hint == "upgrade ACStor on that host"
        assert client.call("h1", "preload_status") == []


def test_preloads_ask_for_no_newer_version_than_they_need() -> None:
    assert version_of("preload_start") == "1.1"
    assert version_of("volume_push") == "1.2"
    assert version_of("volume_thaw") == "1.4"


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("volume_push", {}),
        ("volume_push", {"volume": None}),
        ("volume_push", {"volume": "../../x"}),
        ("volume_push", {"volume": VOLUME.replace("-", "")}),
        ("volume_push", {"volume": [VOLUME]}),
        ("volume_push", {"volume": VOLUME, "more": 1}),
        ("volume_freeze", {"volume": VOLUME}),
        ("volume_freeze", {"volume": VOLUME, "timeout_s": 0}),
        ("volume_freeze", {"volume": VOLUME, "timeout_s": float("nan")}),
        ("volume_freeze", {"volume": VOLUME, "timeout_s": 1e9}),
        ("volume_freeze", {"volume": VOLUME, "timeout_s": True}),
        ("volume_freeze", {"volume": VOLUME, "timeout_s": 1.0, "holder": 1}),
        ("volume_thaw", {"volume": VOLUME, "holder": "x" * 65}),
        ("volume_resize", {"volume": VOLUME, "size_bytes": 0}),
        ("volume_resize", {"volume": VOLUME, "size_bytes": 513}),
        ("volume_resize", {"volume": VOLUME, "size_bytes": 512.0}),
        ("volume_resize", {"volume": VOLUME, "size_bytes": 1 << 60}),
        ("volume_set_durability", {"volume": VOLUME, "durability": "none"}),
        ("volume_set_limits", {"volume": VOLUME, "iops": 1}),
        ("volume_set_limits", {"volume": VOLUME, "iops": -1, "bytes_per_s": 0}),
        ("volume_set_limits", {"volume": VOLUME, "iops": 1, "bytes_per_s": "2"}),
    ],
)
def test_malformed_arguments_are_refused_and_do_nothing(
    method: str, arguments: dict[str, Any]
) -> None:
    data_plane = RecordingDataPlane()
    answer = getattr(VolumeEndpoint("h1", data_plane), method)({}, **arguments)
    assert answer["error"]["kind"] == "invalid"
    assert len(answer["error"]["message"]) < 300
    assert data_plane.asked == []
