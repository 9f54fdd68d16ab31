"""Events of servers' lives, as Nova's versioned notifications tell of them, as tasks.

A notification comes when it comes: the host keeps the disk until then by a hard link, and the state
of a disk whose server was started again meanwhile is that of then.
"""

import dataclasses
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from acstor import exception
from acstor.repository import layout
from acstor.repository.versions.record import Trigger
from acstor.versions.database.opening import Stores
from acstor.versions.database.project_settings import ProjectDefaults
from acstor.versions.database.tasks import NewTask, TaskKind
from acstor.versions.lifecycle.requested_versions import place_of, requested

LOG = logging.getLogger(__name__)

EVENTS: Mapping[str, Trigger] = {
    "instance.power_off.end": Trigger.SHUTDOWN,
    "instance.resize.start": Trigger.RESIZE,
    "instance.rebuild.start": Trigger.REBUILD,
    "instance.delete.start": Trigger.DELETE,
}
"""Trigger of a version by the event type of the notification (nova/compute/manager.py)."""
_DATA = "nova_object.data"
_TASKS = uuid.UUID("5d0ac4a0-1c35-5b5f-9a3e-7e0b2b6f6a1d")
"""Name space of the ids of tasks: a notification that comes twice makes one."""

ImageProperties = Callable[[str], Mapping[str, str]]
"""Returns the properties of an image, none where there is no such image."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerEvent:
    """Event in a server's life."""

    trigger: Trigger
    server: str
    project: str
    host: str
    image: str | None
    request: str
    """Id of the request to Nova; tells the event from another of the same server."""
    metadata: Mapping[str, str]
    flavor_specs: Mapping[str, str]


def event_of(event_type: str, payload: object) -> ServerEvent | None:
    """Return the event that a notification tells of, None where it tells of none."""
    trigger = EVENTS.get(event_type)
    data = _data(payload)
    host, project = data.get("host"), data.get("tenant_id")
    if trigger is None or not isinstance(host, str) or not isinstance(project, str):
        return None
    try:
        server = layout.canonical_id(str(data.get("uuid")), "server")
        image = data.get("image_uuid")
        image = layout.canonical_id(str(image), "image") if image else None
    except exception.InvalidError as error:
        LOG.debug("ignoring a notification %s: %s", event_type, error)
        return None
    return ServerEvent(
        trigger=trigger,
        server=server,
        project=project,
        host=host.lower(),
        image=image,
        request=str(data.get("request_id") or data.get("updated_at") or ""),
        metadata=_texts(data.get("metadata")),
        flavor_specs=_texts(_data(data.get("flavor")).get("extra_specs")),
    )


class ServerEvents:
    """Turns notifications into tasks.

    :param properties_of: asked for the image where neither server nor flavor says all.
    """

    def __init__(self, stores: Stores, properties_of: ImageProperties) -> None:
        """Keep what to ask."""
        self._stores = stores
        self._properties_of = properties_of

    def hear(self, event_type: str, payload: Any) -> None:
        """Take a notification; from any thread. What is wrong with it is told, and no error."""
        event = event_of(event_type, payload)
        if event is None:
            return
        try:
            task = self.task_of(event)
            if task is not None:
                self._stores.tasks.create(task)
                LOG.info("a version of server %s is taken: %s", event.server, event.trigger)
        except exception.AcstorError as error:
            LOG.error(
                "no version of server %s is taken at %s: %s",
                event.server,
                event.trigger,
                exception.one_line(error, with_hint=True),
            )
        except Exception:
            # A fault of one notification is not to end the others.
            LOG.exception("a notification %s failed", event_type)

    def task_of(self, event: ServerEvent) -> NewTask | None:
        """Return the task that an event asks for, None where nobody asked."""
        found = self._requested(event)
        if event.trigger not in found.version_on:
            return None
        name = f"{event.server} {event.trigger} {event.request}"
        parameters = {
            "kind": "server",
            "owner": event.server,
            "name": f"before {event.trigger}" if event.trigger in _BEFORE else str(event.trigger),
            "trigger": event.trigger.value,
            "consistency": "best",
            "host": event.host,
            "base_image": event.image,
            "keep": found.version_keep.to_fields(),
        }
        return NewTask(
            id=str(uuid.uuid5(_TASKS, name)),
            project=event.project,
            kind=TaskKind.CREATE,
            resource=f"server/{event.server}",
            parameters=parameters,
        )

    def _requested(self, event: ServerEvent) -> ProjectDefaults:
        places = [
            place_of(f"metadata of server {event.server}", event.metadata),
            place_of(f"flavor of server {event.server}", event.flavor_specs),
        ]
        says_all = all(
            any(getattr(place, name) is not None for place in places)
            for name in ("version_on", "version_keep")
        )
        if event.image is not None and not says_all:
            properties = self._properties_of(event.image)
            places.append(place_of(f"image {event.image}", properties, is_image=True))
        return requested(places, self._stores.defaults.get(event.project))


_BEFORE = frozenset({Trigger.RESIZE, Trigger.REBUILD, Trigger.DELETE})


def _data(payload: object) -> Mapping[str, Any]:
    data = payload.get(_DATA) if isinstance(payload, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _texts(found: object) -> dict[str, str]:
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(value) for name, value in found.items()}
