"""Schedules: times of versions of servers and volumes, and which of them stay."""

import datetime
from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.api import paging, task_requests, times
from acstor.api.backends import Backends
from acstor.api.errors import not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.paging import Page
from acstor.api.quotas import SCHEDULES
from acstor.api.resources.base import BackedResource
from acstor.api.resources.versions import require_target
from acstor.api.schemas import parts
from acstor.api.schemas import schedules as schemas
from acstor.versions import schedules as times_of
from acstor.versions.database.engine import to_ms
from acstor.versions.database.schedule_store import (
    NewSchedule,
    ScheduleQuery,
    StoredSchedule,
    Target,
    TargetKind,
    WantedConsistency,
)
from acstor.versions.database.tasks import Position
from acstor.versions.retention import Policy

TARGETS_SHOWN_MAX = 100
"""Most targets that one schedule shows."""
_TIMES = ("every", "at", "on", "timezone", "window_minutes")
_HINT = "list what there is: openstack acstor schedule list"


def find(backends: Backends, call: Call, schedule_id: str) -> StoredSchedule:
    """Return a schedule that the caller may see.

    :raises NotFoundError: when there is none, or it is another project's.
    """
    try:
        return backends.stores.schedules.get(schedule_id, call.scope)
    except exception.NotFoundError as error:
        raise not_found("schedule", schedule_id, hint=_HINT) from error


def position_of(stored: StoredSchedule) -> Position:
    """Return the place of a schedule in a list."""
    return Position(to_ms(stored.created_at), stored.id)


def fields_of(backends: Backends, stored: StoredSchedule) -> dict[str, Any]:
    """Return a schedule as the API shows it."""
    targets = backends.stores.schedules.targets(stored.id, None, TARGETS_SHOWN_MAX)
    schedule = stored.schedule
    return {
        "id": stored.id,
        "name": stored.name,
        "every": schedule.every.value,
        "at": schedule.at,
        "on": schedule.on,
        "timezone": schedule.timezone,
        "window_minutes": schedule.window_minutes,
        "keep": stored.keep.to_fields(),
        "enabled": stored.is_enabled,
        "consistency": stored.consistency.value,
        "targets": [{"id": each.id, "type": each.kind.value} for each in targets],
        "next_run_at": times.optional_text(_next_run(stored, targets, backends.now())),
        "created_at": times.text(stored.created_at),
        "project_id": stored.project,
    }


def _next_run(
    stored: StoredSchedule, targets: list[Target], now: datetime.datetime
) -> datetime.datetime | None:
    """Return the moment of the next run of any target; None: there is none."""
    if not stored.is_enabled:
        return None
    ahead = (times_of.next_runs(stored.schedule, target.id, now, 1) for target in targets)
    return min((runs[0].starts_at for runs in ahead if runs), default=None)


def changed(
    schedule_id: str, project: str, before: Mapping[str, Any], wanted: Mapping[str, Any]
) -> NewSchedule:
    """Return a schedule as a call wants it.

    :param before: fields of the schedule so far, as the API shows them; empty of a new one.
    :raises InvalidError: when it makes no sense.
    """
    fields = {**before, **wanted}
    if wanted.get("every", before.get("every")) != before.get("every") and "on" not in wanted:
        fields.pop("on", None)  # a day of the week is none of the month
    known = {name: fields[name] for name in _TIMES if fields.get(name) is not None}
    if known["every"] == times_of.Every.HOUR and "window_minutes" not in known:
        known["window_minutes"] = times_of.HOUR_WINDOW_MINUTES_MAX
    return NewSchedule(
        schedule=times_of.Schedule.from_fields(schedule_id, known),
        project=project,
        name=fields["name"],
        keep=Policy.from_fields(fields.get("keep", {})),
        consistency=WantedConsistency(fields.get("consistency", WantedConsistency.BEST)),
        is_enabled=fields.get("enabled", True),
    )


class Schedules(BackedResource):
    """Schedules: ``/v1/schedules``."""

    @operation("schedules:list", "List schedules", {200: schemas.LISTED}, query=schemas.QUERY)
    def on_get(self, call: Call) -> Answer:
        """Answer a page. Of a name there is one in a project, so it needs no page."""
        backends = self._backends
        page = Page.of(call, backends.limit_max, "created_at", is_descending=False)
        project, name = paging.project_of(call), call.query.get("name")
        if name is not None and project is not None:
            one = backends.stores.schedules.find_name(project, name)
            found = [] if one is None else [one]
        else:
            found = backends.stores.schedules.page(
                ScheduleQuery(
                    project=project,
                    target=call.query.get("target_id"),
                    is_descending=page.is_descending,
                    limit=page.limit,
                    after=page.position(lambda each: position_of(find(backends, call, each))),
                )
            )
        last = position_of(found[-1]) if found else None
        count = len(found)
        items = [fields_of(backends, each) for each in found if _is_wanted(each, call)]
        body = paging.body(call, "schedules", items, page, last)
        if count == page.limit and len(items) < count and last is not None:
            body["links"] = paging.links(call, last)
        return Answer(body)

    @operation(
        "schedules:create",
        "Make a schedule",
        {201: schemas.SHOWN},
        body=schemas.CREATE,
        headers=parts.IDEMPOTENCY,
    )
    def on_post(self, call: Call) -> Answer:
        """Make it; it has no targets yet."""
        backends, project = self._backends, call.caller.project
        schedule_id = task_requests.new_id(backends, call)
        new = changed(schedule_id, project, {}, call.body["schedule"])
        stored = backends.stores.schedules.create(new)
        try:
            backends.quotas.require(project, [SCHEDULES])
        except exception.AcstorError:
            backends.stores.schedules.delete(stored.id)
            raise
        return Answer({"schedule": fields_of(backends, stored)}, 201)


def _is_wanted(stored: StoredSchedule, call: Call) -> bool:
    """Return whether a schedule is as the filters of a list have it that the database lacks."""
    query = call.query
    has_name = query.get("name") in (None, stored.name)
    return has_name and query.get("enabled") in (None, stored.is_enabled)


class OneSchedule(BackedResource):
    """One schedule: ``/v1/schedules/<id>``."""

    @operation("schedules:show", "Show a schedule", {200: schemas.SHOWN})
    def on_get(self, call: Call) -> Answer:
        """Answer the schedule."""
        return self._shown(find(self._backends, call, call.path["schedule_id"]))

    @operation("schedules:update", "Change a schedule", {200: schemas.SHOWN}, body=schemas.CHANGE)
    def on_patch(self, call: Call) -> Answer:
        """Change what is named."""
        backends = self._backends
        stored = find(backends, call, call.path["schedule_id"])
        before = fields_of(backends, stored)
        new = changed(stored.id, stored.project, before, call.body["schedule"])
        return self._shown(backends.stores.schedules.replace(stored.id, stored.revision, new))

    @operation("schedules:delete", "Delete a schedule", {204: None})
    def on_delete(self, call: Call) -> Answer:
        """Delete it; the versions that it has taken stay."""
        stored = find(self._backends, call, call.path["schedule_id"])
        self._backends.stores.schedules.delete(stored.id)
        return Answer(status=204)

    def _shown(self, stored: StoredSchedule) -> Answer:
        return Answer({"schedule": fields_of(self._backends, stored)})


class ScheduleTarget(BackedResource):
    """Target of a schedule: ``/v1/schedules/<id>/targets/<id>``."""

    @operation(
        "schedules:add_target",
        "Have a schedule take versions of a server or volume, too",
        {204: None},
        body=schemas.ADD_TARGET,
    )
    def on_put(self, call: Call) -> Answer:
        """Add it; repeating that is safe."""
        backends, target_id = self._backends, call.path["target_id"]
        stored = find(backends, call, call.path["schedule_id"])
        kind = TargetKind(call.body["target"]["type"])
        require_target(backends, call, {f"{kind.value}_id": target_id})
        if stored.project != call.caller.project:
            raise not_found("schedule", stored.id, hint="take a token of its project")
        backends.stores.schedules.add_target(stored.id, kind, target_id)
        return Answer(status=204)

    @operation(
        "schedules:remove_target",
        "Have a schedule take no more versions of a server or volume",
        {204: None},
    )
    def on_delete(self, call: Call) -> Answer:
        """Remove it, if it is one."""
        stored = find(self._backends, call, call.path["schedule_id"])
        self._backends.stores.schedules.remove_target(stored.id, call.path["target_id"])
        return Answer(status=204)
