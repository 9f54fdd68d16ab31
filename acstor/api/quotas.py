"""Limits of what a project may have: Keystone's unified limits, by oslo.limit.

Bytes are counted in MiB, since Keystone's limits are 32 bits. What is asked for is queued first and
counted then: of two that ask at the same time not both are let pass. A project that has too many
bytes takes no new version; nothing of what it has is deleted. Exports count by the logical size of
their versions, which bounds what they read of the origin and write to Glance, until they end.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from acstor import exception
from acstor.api.errors import ExportBacklogError, QuotaError
from acstor.versions.database.engine import to_ms
from acstor.versions.database.opening import Stores
from acstor.versions.database.task_states import UNFINISHED
from acstor.versions.database.tasks import PAGE_MAX, Position, Task, TaskKind, TaskQuery

VERSIONS = "acstor_versions"
VERSION_MIB = "acstor_version_mib"
SCHEDULES = "acstor_schedules"
EXPORT_MIB = "acstor_export_mib"
NAMES: Mapping[str, str] = {
    "versions": VERSIONS,
    "version_mib": VERSION_MIB,
    "schedules": SCHEDULES,
    "export_mib": EXPORT_MIB,
}
"""Names of limits in Keystone, by the names that the API shows."""
SIZE_PARAMETER = "size_bytes"
"""Parameter of a task that exports: the logical size of its version."""
UNLIMITED = -1
_MIB = 1 << 20


class Quotas(Protocol):
    """Limits of projects."""

    def require(self, project: str, names: Sequence[str]) -> None:
        """Refuse what a project has already, where that is more than it may have.

        :param names: of :data:`NAMES`' values.
        :raises QuotaError: naming the limit.
        :raises ExportBacklogError: when it is that of exports, which end by themselves.
        :raises UnavailableError: when nobody can say.
        """

    def limits(self, project: str) -> Mapping[str, int]:
        """Return the limits of a project by their names in the API; -1: there is none."""


class Unlimited:
    """No limits."""

    def require(self, project: str, names: Sequence[str]) -> None:
        """Let everything pass."""

    def limits(self, project: str) -> Mapping[str, int]:
        """Return no limit."""
        del project
        return dict.fromkeys(NAMES, UNLIMITED)


class UnifiedLimits:
    """Limits of Keystone.

    :param open_enforcer: returns oslo.limit's enforcer for a function that counts; it asks
        Keystone, and is called anew when what it told is old.
    :param count: returns what a project has of some names.
    :param max_age: seconds for which limits are believed.
    """

    def __init__(
        self,
        open_enforcer: Callable[[Callable[..., dict[str, int]]], Any],
        count: Callable[[str | None, Sequence[str]], dict[str, int]],
        max_age: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nobody yet."""
        self._open_enforcer = open_enforcer
        self._count = count
        self._max_age = max_age
        self._clock = clock
        self._lock = threading.Lock()  # of the two below
        self._enforcer: Any = None
        self._opened_at = 0.0

    def require(self, project: str, names: Sequence[str]) -> None:
        """Refuse what is too much; see :meth:`Quotas.require`."""
        from oslo_limit import exception as limit_exception

        with _asking():
            try:
                self._present().enforce(project, dict.fromkeys(names, 0))
            except limit_exception.ProjectOverLimit as error:
                raise _over(error) from error

    def limits(self, project: str) -> Mapping[str, int]:
        """Return the limits of a project."""
        with _asking():
            found = dict(self._present().get_project_limits(project, list(NAMES.values())))
        return {name: int(found.get(limit, 0)) for name, limit in NAMES.items()}

    def _present(self) -> Any:
        with self._lock:
            now = self._clock()
            if self._enforcer is None or now - self._opened_at >= self._max_age:
                self._enforcer = self._open_enforcer(self._count)
                self._opened_at = now
            return self._enforcer


class UsageCounter:
    """Counter of the things that projects have, by the names of limits."""

    def __init__(self, stores: Stores) -> None:
        """Keep the database."""
        self._stores = stores

    def __call__(self, project: str | None, names: Sequence[str]) -> dict[str, int]:
        """Return the counts of a project, with what is queued."""
        assert project is not None
        return {name: self._one(project, name) for name in names}

    def _one(self, project: str, name: str) -> int:
        if name == SCHEDULES:
            return self._stores.schedules.count(project)
        if name == EXPORT_MIB:
            return -(-export_bytes(self._stores, project) // _MIB)
        usage = self._stores.versions.usage(project)
        if name == VERSION_MIB:
            return -(-usage.unique_bytes // _MIB)
        return usage.versions + sum(1 for _ in _unfinished(self._stores, project, TaskKind.CREATE))


def require_export(quotas: Quotas, project: str, size_bytes: int) -> None:
    """Refuse an export that is queued, where its project exports too much at a time.

    :param size_bytes: logical size of its version.
    :raises ExportBacklogError: when it has to wait for others.
    :raises QuotaError: when it would wait in vain: it is larger than the limit by itself.
    :raises UnavailableError: when nobody can say.
    """
    try:
        quotas.require(project, [EXPORT_MIB])
    except ExportBacklogError as error:
        limit, wanted = quotas.limits(project)["export_mib"], -(-size_bytes // _MIB)
        if wanted <= limit:
            raise
        raise QuotaError(
            f"the version has {wanted} MiB, and the project exports {limit} MiB at a time at most",
            hint=f"ask for a higher limit {EXPORT_MIB}",
            code=error.code,
        ) from error


def export_bytes(stores: Stores, project: str) -> int:
    """Return the logical size, bytes, of the versions whose exports have not ended.

    Tasks that a release before this one queued say none, and count nothing.
    """
    return sum(
        int(task.parameters.get(SIZE_PARAMETER, 0))
        for task in _unfinished(stores, project, TaskKind.EXPORT)
    )


def _unfinished(stores: Stores, project: str, kind: TaskKind) -> Iterator[Task]:
    """Yield the tasks of a project that have not ended; one that ends meanwhile may be left out."""
    after: Position | None = None
    while True:
        query = TaskQuery(
            project=project,
            states=UNFINISHED,
            kinds=frozenset({kind}),
            limit=PAGE_MAX,
            after=after,
        )
        page = stores.tasks.page(query)
        yield from page
        if len(page) < PAGE_MAX:
            return
        after = Position(to_ms(page[-1].created_at), page[-1].id)


def _over(error: Any) -> QuotaError | ExportBacklogError:
    shown = {limit: name for name, limit in NAMES.items()}
    first = error.over_limit_info_list[0]
    name = shown.get(first.resource_name, first.resource_name)
    if first.resource_name == EXPORT_MIB:
        return ExportBacklogError(
            f"the project would export {first.current_usage} of {first.limit} MiB at a time",
            hint=f"{ExportBacklogError.default_hint}; or ask for a higher limit {EXPORT_MIB}",
        )
    return QuotaError(
        f"the project would have {first.current_usage} of {first.limit} {name}",
        hint=f"delete some, or ask for a higher limit {first.resource_name}",
        code=f"acstor.quota.{name}",
    )


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """Tell what Keystone's libraries raise as our own.

    :raises UnavailableError: when limits cannot be read.
    """
    from keystoneauth1 import exceptions as ks_exceptions
    from openstack import exceptions as sdk_exceptions
    from oslo_limit import exception as limit_exception

    try:
        yield
    except (
        limit_exception.SessionInitError,
        ks_exceptions.ClientException,
        sdk_exceptions.SDKException,
        ValueError,
    ) as error:
        raise exception.UnavailableError(
            f"the limits of the project cannot be read: {type(error).__name__}",
            hint="check [oslo_limit]: the endpoint, the user's role reader on the system, and that "
            "the limits are registered",
        ) from error
