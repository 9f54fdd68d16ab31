"""Schedules: times of versions, and which of them stay."""

import enum
from typing import Any

from openstack import resource

from acstorclient.v1.base import Resource, listing


class Schedule(Resource):
    """A rule of a project for its servers and volumes; its name is unique there."""

    resource_key = "schedule"
    resources_key = "schedules"
    base_path = "/schedules"
    allow_create = True
    allow_fetch = True
    allow_list = True
    allow_commit = True
    allow_delete = True
    _query_mapping = listing("name", "enabled", "target_id")

    every: str = resource.Body("every")
    """``hour``, ``day``, ``week`` or ``month``."""
    at: str | None = resource.Body("at")
    """Local time, ``02:30``."""
    on: int | None = resource.Body("on")
    """Of a weekly one the day, 1 (Monday) to 7; of a monthly one 1 to 31."""
    timezone: str = resource.Body("timezone")
    """Zone of the IANA, ``Europe/Berlin``."""
    window_minutes: int = resource.Body("window_minutes")
    """Minutes from ``at`` over which the targets are spread."""
    keep: dict[str, Any] = resource.Body("keep")
    """Retention in restic's words: ``last``, ``daily``, ``within`` ..."""
    is_enabled: bool = resource.Body("enabled", type=bool)
    consistency: str | None = resource.Body("consistency")
    targets: list[dict[str, Any]] = resource.Body("targets")
    """Servers and volumes: ``id`` and ``type`` of each."""
    next_run_at: str | None = resource.Body("next_run_at")
    created_at: str | None = resource.Body("created_at")
    project_id: str | None = resource.Body("project_id")


class Every(enum.StrEnum):
    """Distance of the runs of a schedule."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class SchedulePreview(Resource):
    """Effect of a schedule if nothing changes: the next runs, the fate of each version."""

    resource_key = "preview"
    base_path = "/schedules/%(schedule_id)s/preview"
    allow_fetch = True
    requires_id = False

    schedule_id: str = resource.URI("schedule_id")
    runs: list[dict[str, Any]] = resource.Body("runs")
    """``target_id`` and ``starts_at`` of each, the next one first."""
    versions: list[dict[str, Any]] = resource.Body("versions")
    """``id``, ``target_id``, ``created_at``, ``kept``, ``reasons``, ``removed_after`` of each."""
