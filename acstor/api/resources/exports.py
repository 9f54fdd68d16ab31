"""Exports: images with bytes of their own, made of versions."""

from acstor.api import quotas, task_requests
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import exports as schemas
from acstor.api.schemas import parts
from acstor.api.schemas import tasks as task_schemas
from acstor.repository.reading.image_files import ImageFormat
from acstor.versions.database.tasks import TaskKind


class Exports(BackedResource):
    """Exports: ``/v1/exports``. Each is the task that does it; what it makes is an image."""

    @operation(
        "exports:create",
        "Make an image of a version that outlives it",
        {202: task_schemas.SHOWN},
        body=schemas.CREATE,
        headers=parts.IDEMPOTENCY,
    )
    def on_post(self, call: Call) -> Answer:
        """Queue a task, of the project that the version is of, where its limit allows it."""
        wanted = call.body["export"]
        version = versions.restorable_of_caller(self._backends, call, wanted["version_id"])
        size_bytes = version.record.size_bytes
        parameters = {
            "version_id": version.id,
            "disk_format": wanted.get("disk_format", ImageFormat.QCOW2.value),
            "name": wanted.get("name"),
            quotas.SIZE_PARAMETER: size_bytes,
        }
        task = task_requests.queue(
            self._backends,
            call,
            TaskKind.EXPORT,
            f"version/{version.id}",
            parameters,
            require=lambda: quotas.require_export(
                self._backends.quotas, call.caller.project, size_bytes
            ),
        )
        return task_requests.accepted(task)
