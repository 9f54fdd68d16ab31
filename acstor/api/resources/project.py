"""Defaults, usage and limits of a project."""

from acstor.api.errors import ApiError
from acstor.api.operations import Answer, Call, operation
from acstor.api.quotas import export_bytes
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import project as schemas
from acstor.repository.versions.record import Trigger
from acstor.versions.database.project_settings import ProjectDefaults, triggers_of
from acstor.versions.retention import Policy


class Defaults(BackedResource):
    """Defaults: ``/v1/defaults``."""

    @operation("defaults:show", "Show the defaults of the project", {200: schemas.DEFAULTS})
    def on_get(self, call: Call) -> Answer:
        """Answer them."""
        return _shown(self._backends.stores.defaults.get(call.caller.project))

    @operation(
        "defaults:set",
        "Set the defaults of the project",
        {200: schemas.DEFAULTS},
        body=schemas.DEFAULTS,
    )
    def on_put(self, call: Call) -> Answer:
        """Set all of them."""
        wanted = call.body["defaults"]
        triggers = triggers_of(wanted["version_on"])
        if wanted["on_delete"]:
            triggers |= {Trigger.DELETE}
        defaults = ProjectDefaults(triggers, Policy.from_fields(wanted["version_keep"]))
        self._backends.stores.defaults.put(call.caller.project, defaults)
        return _shown(defaults)


def _shown(defaults: ProjectDefaults) -> Answer:
    # That of deletion is said by itself, since a version then outlives what its owner deleted.
    shown = sorted(one.value for one in defaults.version_on - {Trigger.DELETE})
    fields = {
        "version_on": shown,
        "version_keep": defaults.version_keep.to_fields(),
        "on_delete": Trigger.DELETE in defaults.version_on,
    }
    return Answer({"defaults": fields})


class UsageAndLimits(BackedResource):
    """Usage and limits: ``/v1/usage``."""

    @operation(
        "usage:show",
        "Show what the project has, and may have",
        {200: schemas.USAGE},
        query=schemas.USAGE_QUERY,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer it, of another project for administrators."""
        project = call.query.get("project_id", call.caller.project)
        if project != call.caller.project and not call.is_admin:
            raise ApiError(
                "project_id is for administrators",
                hint="leave it out",
                code="acstor.query.not_admin",
            )
        stores = self._backends.stores
        usage = stores.versions.usage(project)
        fields = {
            "versions": usage.versions,
            "unique_bytes": usage.unique_bytes,
            "shared_bytes": usage.shared_bytes,
            "schedules": stores.schedules.count(project),
            "export_bytes": export_bytes(stores, project),
        }
        limits = dict(self._backends.quotas.limits(project))
        return Answer({"usage": fields, "limits": limits})
