import copy
import uuid
from typing import Any

from acstor.preload.states import AdmittedPreloadState

IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"
OTHER = str(uuid.UUID(int=2))
HOST = "compute"

_PROGRESS: dict[str, Any] = {
    "nova_object.data": {
        "host": "compute",
        "id": 1,
        "images_cached": [IMAGE],
        "images_failed": [],
        "index": 1,
        "name": "my-aggregate",
        "total": 1,
        "uuid": "788608ec-ebdc-45c5-bc7f-e5f24ab92c80",
    },
    "nova_object.name": "AggregateCachePayload",
    "nova_object.namespace": "nova",
    "nova_object.version": "1.0",
}
"""Payload of ``aggregate.cache_images.progress`` as Nova's reference has it."""
START: dict[str, Any] = {
    "nova_object.data": {
        "hosts": ["compute"],
        "id": 1,
        "metadata": {"availability_zone": "nova"},
        "name": "my-aggregate",
        "uuid": "788608ec-ebdc-45c5-bc7f-e5f24ab92c80",
    },
    "nova_object.name": "AggregatePayload",
    "nova_object.namespace": "nova",
    "nova_object.version": "1.1",
}
"""Payload of ``aggregate.cache_images.start`` and of ``end``."""


def progress(**changes: object) -> dict[str, Any]:
    """Return the payload of a progress notification with other fields."""
    payload = copy.deepcopy(_PROGRESS)
    payload["nova_object.data"].update(changes)
    return payload


def status(**changes: object) -> dict[str, object]:
    """Return what an agent tells of one preload."""
    return {
        "host": HOST,
        "id": str(uuid.UUID(int=9)),
        "image": IMAGE,
        "what": "full",
        "pin": False,
        "state": str(AdmittedPreloadState.RUNNING),
        "is_late": False,
        "total_bytes": 1,
        "remaining_bytes": 1,
        "rate_bytes_per_s": 1 << 20,
        "recent_bytes_per_s": 0,
        "eta_s": None,
        "deadline_s": None,
        "age_s": 1.0,
        "error": None,
        **changes,
    }


class Agents:
    """Agents that answer what the test wants, and keep what they are asked."""

    def __init__(self) -> None:
        self.known: list[dict[str, object]] = []
        self.error: Exception | None = None
        self.started: list[tuple[str, dict[str, object]]] = []
        self.calls = 0

    def call(self, host: str, method: str, **arguments: object) -> Any:
        self.calls += 1
        if method == "preload_status":
            return self.known
        assert method == "preload_start"
        if self.error is not None:
            raise self.error
        self.started.append((host, arguments))
        return status()
