"""Image that servers boot a version from."""

from acstor.api import task_requests
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import parts
from acstor.api.schemas import tasks as task_schemas
from acstor.api.schemas import versions as schemas
from acstor.versions.database.tasks import TaskKind


class VersionImage(BackedResource):
    """Image: ``/v1/versions/<id>/image``."""

    @operation(
        "versions:create_image",
        "Make the image that servers boot a version from, or find it",
        {202: task_schemas.SHOWN},
        body=schemas.CREATE_IMAGE,
        headers=parts.IDEMPOTENCY,
    )
    def on_put(self, call: Call) -> Answer:
        """Queue a task, whose result has the id of the image."""
        return self._queue(call, TaskKind.IMAGE)

    @operation(
        "versions:delete_image",
        "Delete the image that servers boot a version from",
        {202: task_schemas.SHOWN},
    )
    def on_delete(self, call: Call) -> Answer:
        """Queue a task, which fails while a server is of the image."""
        return self._queue(call, TaskKind.IMAGE_REMOVE)

    def _queue(self, call: Call, kind: TaskKind) -> Answer:
        version = versions.restorable_of_caller(self._backends, call, call.path["version_id"])
        parameters = {"version_id": version.id}
        task = task_requests.queue(self._backends, call, kind, f"version/{version.id}", parameters)
        return task_requests.accepted(task)
