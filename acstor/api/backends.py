"""Backends of the resources: all that they work with."""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any

from acstor.api.cluster.deployment import Deployment
from acstor.api.operations import Gate
from acstor.api.quotas import Quotas
from acstor.api.user_services import UserServices
from acstor.repository.versions import version_refs
from acstor.repository.versions.store import VersionStore
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
    ask_owner: Callable[[str, str], Mapping[str, Any]]
    """Returns what the host that has a volume open says of it: host, id of the volume."""
    limit_max: int = 1000
    """Most items of a page."""
    now: Callable[[], datetime.datetime] = version_refs.utc_now
