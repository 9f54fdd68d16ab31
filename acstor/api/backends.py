"""Backends of the resources: all that they work with."""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any

from acstor.api.cluster.deployment import Deployment
from acstor.api.operations import Gate
from acstor.api.quotas import Quotas
from acstor.api.user_services import UserServices
from acstor.api.version_files import VersionFiles
from acstor.repository.versions import version_refs
from acstor.repository.versions.store import VersionStore
from acstor.repository.volumes.durability import Durability
from acstor.versions.database.opening import Stores
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.tasks import TaskKind


@dataclasses.dataclass(frozen=True, slots=True)
class Backends:
    """Backends of one process."""

    gate: Gate
    stores: Stores
    """Database: index of versions, schedules, tasks."""
    open_versions: Callable[[], VersionStore]
    """Returns the records in the origin; raises while that is away."""
    user_services: UserServices
    quotas: Quotas
    deployment: Deployment
    """Hosts, ring, decision, for administrators."""
    kinds: frozenset[TaskKind]
    """Kinds of tasks that workers of this release can do."""
    restorable: frozenset[TargetKind]
    """Things that workers of this release can put back in place."""
    files: VersionFiles
    """Image files of versions, as they are downloaded."""
    ask_owner: Callable[[str, str], Mapping[str, Any]]
    """Returns what the host that has a volume open says of it: host, id of the volume."""
    tell_owner: Callable[[str, str, Durability], None]
    """Has the host that has a volume open take a durability: host, id of the volume."""
    announce_task: Callable[[], None] = lambda: None
    """Tells workers that a task was queued; neither waits nor raises."""
    limit_max: int = 1000
    """Most items of a page."""
    unfinished_tasks_max: int = 100
    """Most tasks of a project's users that have not ended; 0: without end."""
    now: Callable[[], datetime.datetime] = version_refs.utc_now
