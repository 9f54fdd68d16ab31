"""Assembly of the API from a configuration: backends, routes, application."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.api import application, metrics_targets
from acstor.api.application import WsgiApplication
from acstor.api.authorization import Authorizer
from acstor.api.backends import Backends
from acstor.api.cluster import host_watch
from acstor.api.cluster.deployment import OriginDeployment
from acstor.api.cluster.host_watch import HostWatch
from acstor.api.operations import Gate, Resource
from acstor.api.quotas import Quotas, UnifiedLimits, Unlimited, UsageCounter
from acstor.api.resources import (
    exports,
    image_preloads,
    images,
    project,
    restore_preview,
    restores,
    schedule_preview,
    schedules,
    tasks,
    version_data,
    version_diff,
    version_image,
    version_tree,
    version_tree_content,
    version_tree_diff,
    versions,
    volumes,
)
from acstor.api.resources.deployment import cluster, hosts, origin_members
from acstor.api.routes import Route
from acstor.api.user_services import KeystoneServices
from acstor.api.version_files import VersionFiles
from acstor.cluster import member_list
from acstor.repository.versions.store import VersionStore
from acstor.repository.volumes.durability import Durability
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.signature import Signer, secrets_of
from acstor.rpc.worker_wake import TaskAnnouncements
from acstor.versions.database.opening import Stores, open_stores
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.tasks import TaskKind

ORIGIN_DEADLINE = 5.0
"""Seconds for which one call of the origin is repeated: a client waits for the answer."""
OWNER_SECONDS = 5.0
"""Seconds that a host may take to tell of a volume."""
KINDS = frozenset({
    TaskKind.CREATE,
    TaskKind.DELETE,
    TaskKind.EXPIRE,
    TaskKind.EXPORT,
    TaskKind.IMAGE,
    TaskKind.IMAGE_REMOVE,
    TaskKind.PRELOAD,
    TaskKind.RESTORE,
})  # fmt: skip
"""Kinds of tasks that the workers of this release do."""
RESTORABLE = frozenset(TargetKind)
"""Things that they put back in place."""


TABLE: tuple[tuple[str, Callable[[Backends], Resource]], ...] = (
    ("/versions", versions.Versions),
    ("/versions/{version_id:uuid}", versions.OneVersion),
    ("/versions/{version_id:uuid}/lock", versions.VersionLock),
    ("/versions/{version_id:uuid}/diff", version_diff.VersionDiff),
    ("/versions/{version_id:uuid}/data", version_data.VersionData),
    ("/versions/{version_id:uuid}/image", version_image.VersionImage),
    ("/versions/{version_id:uuid}/partitions", version_tree.VersionPartitions),
    ("/versions/{version_id:uuid}/files", version_tree.VersionListing),
    ("/versions/{version_id:uuid}/files/content", version_tree_content.VersionFileContent),
    ("/versions/{version_id:uuid}/files/archive", version_tree_content.VersionArchive),
    ("/versions/{version_id:uuid}/files/diff", version_tree_diff.VersionTreeDiff),
    ("/versions/{version_id:uuid}/restore-preview", restore_preview.RestorePreview),
    ("/schedules", schedules.Schedules),
    ("/schedules/{schedule_id:uuid}", schedules.OneSchedule),
    ("/schedules/{schedule_id:uuid}/preview", schedule_preview.SchedulePreview),
    ("/schedules/{schedule_id:uuid}/targets/{target_id:uuid}", schedules.ScheduleTarget),
    ("/tasks", tasks.Tasks),
    ("/tasks/{task_id:uuid}", tasks.OneTask),
    ("/exports", exports.Exports),
    ("/restores", restores.Restores),
    ("/restores/{restore_id:uuid}", restores.OneRestore),
    ("/defaults", project.Defaults),
    ("/usage", project.UsageAndLimits),
    ("/images", images.Images),
    ("/images/{image_id:uuid}", images.OneImage),
    ("/images/{image_id:uuid}/preloads", image_preloads.ImagePreloads),
    ("/images/{image_id:uuid}/preloads/{preload_id:uuid}", image_preloads.OneImagePreload),
    ("/volumes", volumes.Volumes),
    ("/volumes/{volume_id:uuid}", volumes.OneVolume),
    ("/origin/members", origin_members.OriginMemberList),
    ("/origin/members/{member}", origin_members.OneOriginMember),
    ("/hosts", hosts.Hosts),
    ("/hosts/{host}", hosts.Host),
    ("/ring", cluster.Ring),
    ("/decisions", cluster.Decisions),
    ("/pins", cluster.Pins),
    ("/pins/{host}", cluster.Pin),
    ("/cluster", cluster.LiveState),
)
"""Paths with their resources."""


def routes_of(backends: Backends) -> list[Route]:
    """Return all routes."""
    return [Route(template, make(backends)) for template, make in TABLE]


def documented_routes() -> list[Route]:
    """Return all routes as documents need them: nothing answers there."""
    return [Route(template, resource) for template, resource in TABLE]


def build(conf: cfg.ConfigOpts) -> WsgiApplication:
    """Return the application of a configuration.

    The origin may be away: what needs it answers 503 then.

    :raises ConfigurationError: when something that it needs is not configured.
    :raises UnavailableError: when the database cannot be reached.
    """
    stores = open_stores(conf)
    open_versions = Reopened(lambda: _open_versions(conf))
    deployment = OriginDeployment(
        lambda: open_versions().repository.origin,
        lambda: member_list.list_members(conf),
        _watched(conf),
        conf.api.cluster_max_age,
    )
    backends = Backends(
        gate=Gate(Authorizer.open(conf)),
        stores=stores,
        open_versions=open_versions,
        user_services=KeystoneServices.open(conf),
        quotas=quotas_of(conf, stores),
        deployment=deployment,
        kinds=KINDS,
        restorable=RESTORABLE,
        files=VersionFiles(
            lambda: open_versions().repository, conf.api.downloads_max, conf.api.looks_max
        ),
        ask_owner=lambda host, volume_id: _ask_owner(conf, host, volume_id),
        announce_task=_announcer(conf),
        tell_owner=lambda host, volume_id, durability: _tell_owner(
            conf, host, volume_id, durability
        ),
        limit_max=conf.api.max_limit,
        unfinished_tasks_max=conf.api.unfinished_tasks_max,
    )
    targets = metrics_targets.application(deployment.members, conf.api.metrics_targets_token)
    return application.build(conf, routes_of(backends), {metrics_targets.PATH: targets})


def _watched(conf: cfg.ConfigOpts) -> HostWatch:
    """Return the states of hosts, heard where a message transport is configured."""

    def listen(watch: HostWatch) -> None:
        name = f"acstor-api-{conf.host}-{os.getpid()}"
        host_watch.listener(watch, lambda: transport.open_transport(conf), name).start()

    return HostWatch(listen=listen) if transport.is_configured(conf) else HostWatch()


def _announcer(conf: cfg.ConfigOpts) -> Callable[[], None]:
    """Return what tells workers of tasks, where a message transport is configured."""
    return TaskAnnouncements(conf).announce if transport.is_configured(conf) else lambda: None


def _ask_owner(conf: cfg.ConfigOpts, host: str, volume_id: str) -> Mapping[str, Any]:
    """Return what a host says of a volume that it has open.

    :raises UnavailableError: when it does not answer.
    """
    with _agents(conf) as client:
        found = client.call(host, "volume_status", volume=volume_id)
    if not isinstance(found, Mapping):
        raise exception.UnavailableError(f"host {host} tells nonsense of volume {volume_id}")
    return found


def _tell_owner(conf: cfg.ConfigOpts, host: str, volume_id: str, durability: Durability) -> None:
    """Have a host take the durability of a volume that it has open.

    :raises UnavailableError: when it does not answer.
    """
    with _agents(conf) as client:
        fields = durability.to_fields()
        client.call(host, "volume_set_durability", volume=volume_id, durability=fields)


@contextlib.contextmanager
def _agents(conf: cfg.ConfigOpts) -> Iterator[AgentClient]:
    """Return a client of agents until the context ends."""
    secrets = secrets_of(conf)
    with transport.opened(conf) as opened:
        yield AgentClient(opened, OWNER_SECONDS, Signer(secrets[0] if secrets else None))


def quotas_of(conf: cfg.ConfigOpts, stores: Stores) -> Quotas:
    """Return the limits that a configuration asks for."""
    if not conf.api.use_unified_limits:
        return Unlimited()
    return UnifiedLimits(
        _enforcer_opener(list(conf.config_file or [])),
        UsageCounter(stores),
        conf.api.limits_max_age,
    )


def _enforcer_opener(files: Sequence[str]) -> Callable[[Callable[..., dict[str, int]]], Any]:
    """Return what opens oslo.limit's enforcer, which reads the global configuration."""
    from oslo_limit import limit

    lock = threading.Lock()
    is_read = False

    def open_enforcer(count: Callable[..., dict[str, int]]) -> Any:
        nonlocal is_read
        with lock:
            if not is_read:
                cfg.CONF([], project="acstor", default_config_files=list(files))
                is_read = True
        return limit.Enforcer(count)

    return open_enforcer


class Reopened:
    """Opening of the records at first use; one that failed is tried again."""

    def __init__(self, open_one: Callable[[], VersionStore]) -> None:
        """Open nothing yet."""
        self._open = open_one
        self._lock = threading.Lock()
        self._opened: VersionStore | None = None

    def __call__(self) -> VersionStore:
        """Return it.

        :raises UnavailableError: when it cannot be opened.
        """
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened


def _open_versions(conf: cfg.ConfigOpts) -> VersionStore:
    from acstor.origin import configured
    from acstor.origin.opening import open_origin
    from acstor.repository.opening import open_repository

    url, deadline = configured.origin_url(conf), min(ORIGIN_DEADLINE, conf.origin.timeout)
    return VersionStore(open_repository(lambda: open_origin(url, deadline)))
