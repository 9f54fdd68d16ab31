"""Putting a worker together as the configuration says."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from oslo_config import cfg

from acstor import exception, identity
from acstor.cluster import member_list
from acstor.cluster.leader_lock import Leadership
from acstor.cluster.membership import CoordinationSettings
from acstor.conf import nova
from acstor.origin import configured
from acstor.origin.opening import open_origin
from acstor.repository.opening import refuse_backup
from acstor.repository.repository import Repository
from acstor.repository.versions.record import Trigger
from acstor.repository.versions.store import VersionStore
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.notification_listener import NotificationListener, NotificationSource
from acstor.rpc.signature import Signer, secrets_of
from acstor.rpc.worker_wake import WakeServer
from acstor.versions.database import opening
from acstor.versions.host_capture.triggers import ALLOWED
from acstor.versions.lifecycle import followed_servers, server_events
from acstor.versions.lifecycle.followed_servers import FollowedServers, Tell
from acstor.versions.lifecycle.own_tasks import OwnTasks
from acstor.versions.lifecycle.server_events import ServerEvents
from acstor.versions.lifecycle.server_requests import ServerRequests
from acstor.versions.services.captures import RpcCaptures
from acstor.versions.services.compute import NovaCompute
from acstor.versions.services.image_store import open_store
from acstor.versions.services.images import open_images
from acstor.versions.services.preloads import RpcPreloads
from acstor.versions.services.restores import RpcRestores
from acstor.versions.services.services import Services
from acstor.versions.worker.flow_books import FlowBooks
from acstor.versions.worker.flow_runner import FlowRunner
from acstor.versions.worker.metrics import WorkerMetrics
from acstor.versions.worker.service import WorkerService

WAKE_STOP_TIMEOUT = 5.0
"""Seconds for which the end waits for the server that hears of tasks."""


@contextlib.contextmanager
def open_service(conf: cfg.ConfigOpts, metrics: WorkerMetrics) -> Iterator[WorkerService]:
    """Return a worker; what it holds open is closed when the context ends.

    :raises ConfigurationError: when something that it needs is not configured.
    :raises AcstorError: when a database cannot be reached or has other tables.
    """
    transport.require(conf)
    stores = opening.open_stores(conf)
    own_tasks = OwnTasks(stores.tasks, conf.worker.own_tasks_max)
    session = identity.open_session(conf)
    compute = _open_compute(conf, session)
    images = open_images(conf, session)
    signing = secrets_of(conf)
    with (
        contextlib.closing(open_books(conf)) as books,
        transport.opened(conf) as opened,
    ):
        client = AgentClient(
            opened, conf.worker.call_timeout, Signer(signing[0] if signing else None)
        )
        requests = ServerRequests(stores, images.properties)
        followed = FollowedServers(requests, _teller(client))
        service = WorkerService(
            conf,
            stores=stores,
            runner=FlowRunner(books),
            books=books,
            services=Services(
                RpcCaptures.over(client),
                compute,
                images,
                open_store(conf, session),
                RpcPreloads(client, lambda: member_list.list_members(conf)),
                RpcRestores.over(client),
            ),
            leader=_leadership(conf),
            listener=_listener(conf, ServerEvents(stores, requests, own_tasks), followed),
            followed=followed if conf.worker.nova_notification_topics else None,
            open_versions=_versions_of(conf),
            metrics=metrics,
        )
        wake = WakeServer(conf, conf.host, service.reconcile_soon)
        wake.start()
        try:
            yield service
        finally:
            wake.stop(WAKE_STOP_TIMEOUT)


def open_books(conf: cfg.ConfigOpts) -> FlowBooks:
    """Return the rows of flows of ``[worker] flow_connection``.

    :raises ConfigurationError: when none is named, or that of the other tables.
    """
    url = conf.worker.flow_connection
    if not url:
        raise exception.ConfigurationError(
            "[worker] flow_connection is not set",
            hint="name a database for flows: mysql+pymysql://USER:PASSWORD@HOST/acstor_flows",
        )
    if url == conf.database.connection:
        raise exception.ConfigurationError(
            "[worker] flow_connection and [database] connection name the same database",
            hint="make a second one: both keep the revision of their tables under one name",
        )
    return FlowBooks.of_database(url, **opening.pool_of(conf, url))


def _open_compute(conf: cfg.ConfigOpts, session: Any) -> NovaCompute:
    adapter = identity.open_adapter(conf, nova.GROUP, session, nova.SERVICE_TYPE)
    options: dict[str, Any] = {
        "service_type": adapter.service_type,
        "service_name": adapter.service_name,
        "region_name": adapter.region_name,
        "interface": adapter.interface,
        "endpoint_override": adapter.endpoint_override,
        "connect_retries": identity.CONNECT_RETRIES,
    }
    return NovaCompute.open(session, **options)


def _teller(client: AgentClient) -> Tell:
    def tell(host: str, server: str, on: frozenset[Trigger]) -> None:
        wanted = sorted(trigger.value for trigger in on.intersection(ALLOWED))
        client.call(host, "capture_follow", server=server, triggers=wanted)

    return tell


def _listener(
    conf: cfg.ConfigOpts, events: ServerEvents, followed: FollowedServers
) -> NotificationListener | None:
    options = conf.worker
    if not options.nova_notification_topics:
        return None
    source = NotificationSource(
        options.nova_notification_exchange,
        options.nova_notification_topics,
        options.notification_pool,
        [name.replace(".", r"\.") for name in (*server_events.EVENTS, *followed_servers.EVENTS)],
    )

    def hear(event_type: str, payload: Any) -> None:
        events.hear(event_type, payload)
        followed.hear(event_type, payload)

    return NotificationListener(conf, "server-events", source, hear)


def _leadership(conf: cfg.ConfigOpts) -> Leadership:
    options = conf.coordination
    settings = CoordinationSettings(
        options.backend_url, options.group, options.heartbeat_interval, options.member_timeout
    )
    member = f"worker-{conf.host}/{os.getpid()}-{secrets.token_hex(2)}"
    return Leadership(settings, "worker", member, lambda: None)


def _versions_of(conf: cfg.ConfigOpts) -> Callable[[], VersionStore]:
    def open_versions() -> VersionStore:
        origin = open_origin(configured.origin_url(conf), conf.origin.timeout)
        try:
            refuse_backup(origin)
            return VersionStore(Repository.open(origin))
        except BaseException:
            origin.close()
            raise

    return open_versions
