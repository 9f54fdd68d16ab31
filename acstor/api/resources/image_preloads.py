"""Preloads of an image, for administrators. Each is the task that does it."""

from typing import Any

from acstor.api import paging, task_requests, times
from acstor.api.errors import not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.paging import Page
from acstor.api.resources import tasks
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import images as schemas
from acstor.api.schemas import parts
from acstor.api.schemas import tasks as task_schemas
from acstor.api.user_services import Kind
from acstor.versions.database.tasks import Task, TaskKind, TaskQuery


def fields_of(task: Task) -> dict[str, Any]:
    """Return a preload as the API shows it."""
    return {
        "id": task.id,
        "hosts": task.parameters.get("hosts"),
        "rate_mib": task.parameters.get("rate_mib"),
        "state": task.state.value,
        "progress": task.progress,
        "created_at": times.text(task.created_at),
    }


class ImagePreloads(BackedResource):
    """Preloads: ``/v1/images/<id>/preloads``."""

    @operation(
        "preloads:list",
        "List the preloads of an image",
        {200: schemas.PRELOADS_LISTED},
        query=schemas.PRELOADS_QUERY,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer a page of them, those that have ended lately among them."""
        backends = self._backends
        page = Page.of(call, backends.limit_max, "created_at", is_descending=True)
        found = backends.stores.tasks.page(
            TaskQuery(
                project=call.scope,
                kinds=frozenset({TaskKind.PRELOAD}),
                resource=_resource_of(call),
                is_descending=page.is_descending,
                limit=page.limit,
                after=page.position(lambda one: tasks.position_of(tasks.find(backends, call, one))),
            )
        )
        last = tasks.position_of(found[-1]) if found else None
        items = [fields_of(each) for each in found]
        return Answer(paging.body(call, "preloads", items, page, last))

    @operation(
        "preloads:create",
        "Bring an image to hosts before anybody boots it",
        {202: task_schemas.SHOWN},
        body=schemas.CREATE_PRELOAD,
        headers=parts.IDEMPOTENCY,
    )
    def on_post(self, call: Call) -> Answer:
        """Queue a task."""
        image_id, wanted = call.path["image_id"], call.body["preload"]
        if self._backends.user_services.find(call.caller, Kind.IMAGE, image_id) is None:
            raise not_found("image", image_id, hint="list what there is: openstack image list")
        parameters = {
            "image": image_id,
            "hosts": wanted.get("hosts", "all"),
            "rate_mib": wanted.get("rate_mib"),
        }
        task = task_requests.queue(
            self._backends, call, TaskKind.PRELOAD, _resource_of(call), parameters
        )
        return task_requests.accepted(task)


class OneImagePreload(BackedResource):
    """One preload: ``/v1/images/<id>/preloads/<id>``."""

    @operation("preloads:delete", "Stop a preload", {204: None})
    def on_delete(self, call: Call) -> Answer:
        """Have it stop on the hosts; one that has ended stays as it is."""
        preload_id = call.path["preload_id"]
        found = tasks.find(self._backends, call, preload_id)
        if found.kind is not TaskKind.PRELOAD or found.resource != _resource_of(call):
            raise not_found("preload", preload_id, hint="openstack acstor image preload list")
        self._backends.stores.tasks.cancel(found.id)
        return Answer(status=204)


def _resource_of(call: Call) -> str:
    return f"image/{call.path['image_id']}"
