"""Events of servers' lives, as Nova's versioned notifications tell of them, as tasks.

A notification comes when it comes: the host keeps the disk until then by a hard link, and the state
of a disk whose server was started again meanwhile is that of then.
"""

import dataclasses
import functools
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from acstor import exception
from acstor.backoff import BackOff
from acstor.repository import layout
from acstor.repository.versions.record import Trigger
from acstor.versions.database.opening import Stores
from acstor.versions.database.tasks import NewTask, TaskKind
from acstor.versions.lifecycle.delayed_calls import DelayedCalls
from acstor.versions.lifecycle.own_tasks import EVENTS_SHARE, OwnTasks
from acstor.versions.lifecycle.server_requests import ServerRequests

LOG = logging.getLogger(__name__)

EVENTS: Mapping[str, Trigger] = {
    "instance.power_off.end": Trigger.SHUTDOWN,
    "instance.resize.start": Trigger.RESIZE,
    "instance.rebuild.start": Trigger.REBUILD,
    "instance.delete.start": Trigger.DELETE,
}
"""Trigger of a version by the event type of the notification (nova/compute/manager.py)."""
ATTEMPTS_MAX = 12
"""Times that an event is taken while what it needs is away: some ten minutes."""
BACK_OFF = BackOff(first=5.0, longest=90.0)
"""Delays between them."""
_DATA = "nova_object.data"
_TASKS = uuid.UUID("5d0ac4a0-1c35-5b5f-9a3e-7e0b2b6f6a1d")
"""Name space of the ids of tasks: a notification that comes twice makes one."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerPayload:
    """Server as a notification describes it."""

    server: str
    project: str
    host: str
    image: str | None
    request: str
    """Id of the request to Nova; tells the event from another of the same server."""
    metadata: Mapping[str, str]
    flavor_specs: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class ServerEvent:
    """Event in a server's life."""

    trigger: Trigger
    payload: ServerPayload


def event_of(event_type: str, payload: object) -> ServerEvent | None:
    """Return the event that a notification tells of, None where it tells of none."""
    trigger = EVENTS.get(event_type)
    found = None if trigger is None else payload_of(payload)
    return None if trigger is None or found is None else ServerEvent(trigger, found)


def payload_of(payload: object) -> ServerPayload | None:
    """Return the server that a notification describes, None where it describes none on a host."""
    data = _data(payload)
    host, project = data.get("host"), data.get("tenant_id")
    if not isinstance(host, str) or not host or not isinstance(project, str):
        return None
    try:
        server = layout.canonical_id(str(data.get("uuid")), "server")
        image = data.get("image_uuid")
        image = layout.canonical_id(str(image), "image") if image else None
    except exception.InvalidError as error:
        LOG.debug("ignoring a notification: %s", error)
        return None
    return ServerPayload(
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

    :param own_tasks: bound on the tasks of a project.
    :param later: makes a call after some seconds; returns whether it will.
    """

    def __init__(
        self,
        stores: Stores,
        requests: ServerRequests,
        own_tasks: OwnTasks,
        later: Callable[[float, Callable[[], None]], bool] | None = None,
    ) -> None:
        """Keep what to ask."""
        self._stores = stores
        self._requests = requests
        self._own_tasks = own_tasks
        self._later = later or DelayedCalls()

    def hear(self, event_type: str, payload: Any) -> None:
        """Take a notification; from any thread. What is wrong with it is told, and no error.

        Where Glance or the database is away it is taken later: it comes once.
        """
        event = event_of(event_type, payload)
        if event is not None:
            self._take(event, 1)

    def _take(self, event: ServerEvent, attempt: int) -> None:
        try:
            task = self.task_of(event)
            if task is not None:
                self._require_room(task.project)
                self._stores.tasks.create(task)
                LOG.info("a version of server %s is taken: %s", event.payload.server, event.trigger)
        except exception.AcstorError as error:
            is_away = isinstance(error, exception.UnavailableError)
            if is_away and attempt < ATTEMPTS_MAX:
                again = functools.partial(self._take, event, attempt + 1)
                if self._later(BACK_OFF.seconds(attempt), again):
                    LOG.warning(
                        "the version of server %s at %s is taken later: %s",
                        event.payload.server, event.trigger, exception.one_line(error),
                    )  # fmt: skip
                    return
            LOG.error(
                "no version of server %s is taken at %s: %s",
                event.payload.server,
                event.trigger,
                exception.one_line(error, with_hint=True),
            )
        except Exception:
            # A fault of one notification is not to end the others.
            LOG.exception("a notification of server %s failed", event.payload.server)

    def task_of(self, event: ServerEvent) -> NewTask | None:
        """Return the task that an event asks for, None where nobody asked."""
        of = event.payload
        found = self._requests.of(of.server, of.project, of.metadata, of.flavor_specs, of.image)
        if event.trigger not in found.version_on:
            return None
        name = f"{of.server} {event.trigger} {of.request}"
        parameters = {
            "kind": "server",
            "owner": of.server,
            "name": f"before {event.trigger}" if event.trigger in _BEFORE else str(event.trigger),
            "trigger": event.trigger.value,
            "consistency": "best",
            "host": of.host,
            "base_image": of.image,
            "keep": found.version_keep.to_fields(),
        }
        return NewTask(
            id=str(uuid.uuid5(_TASKS, name)),
            project=of.project,
            kind=TaskKind.CREATE,
            resource=f"server/{of.server}",
            parameters=parameters,
        )

    def _require_room(self, project: str) -> None:
        if not self._own_tasks.has_room(project, EVENTS_SHARE):
            raise exception.OverloadedError(
                f"project {project} has too many tasks that have not ended",
                hint="see why they do not end: openstack acstor task list; or raise [worker] "
                "own_tasks_max",
            )


_BEFORE = frozenset({Trigger.RESIZE, Trigger.REBUILD, Trigger.DELETE})


def _data(payload: object) -> Mapping[str, Any]:
    data = payload.get(_DATA) if isinstance(payload, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _texts(found: object) -> dict[str, str]:
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(value) for name, value in found.items()}
