"""Putting the parts of a registrar together, by the configuration."""

import logging
from collections.abc import Callable

from oslo_config import cfg

from acstor import exception
from acstor.origin.rados import binding
from acstor.origin.rados.connection import Connection
from acstor.rate_limit import RateLimit
from acstor.registrar.decision import Rules
from acstor.registrar.image_service.base import ImageService
from acstor.registrar.index_statements import IndexStatements
from acstor.registrar.registration.download import DownloadSettings
from acstor.registrar.registration.file_registration import FileRegistrar, FileSettings
from acstor.registrar.registration.job import JobSettings
from acstor.registrar.registration.jobs import Jobs
from acstor.registrar.registry_sync import RegistrySync, SyncSettings
from acstor.registrar.withdrawal import Withdrawals
from acstor.repository.dedup_scope import DedupScope
from acstor.repository.images import registration
from acstor.repository.images.configured_records import signed_records
from acstor.repository.repository import Repository

LOG = logging.getLogger(__name__)


def job_settings(conf: cfg.ConfigOpts, file_registrar: FileRegistrar) -> JobSettings:
    """Return how images are registered.

    :param file_registrar: registers files that are on this machine.
    """
    rbd = rbd_client(conf)
    return JobSettings(
        download=DownloadSettings(
            conf.registrar.spool_path,
            conf.registrar.spool_reserve,
            conf.glance.download_deadline,
            conf.glance.attempts,
        ),
        file=FileSettings(
            registration=registration.Settings(
                pack_size=conf.registration.pack_size,
                workers=conf.registration.workers,
                cache_path=conf.registration.cache_path,
                reserve_percent=conf.origin.reserve_percent,
            ),
            tool_timeout=conf.registration.tool_timeout,
            disk_size_max=conf.registrar.disk_size_max,
            rbd=rbd,
        ),
        file_registrar=file_registrar,
        datadir=conf.glance.filesystem_store_datadir,
        download_rate=RateLimit(conf.registrar.rate_max),
        scan_rate=RateLimit(conf.registrar.rate_max),
        dedup_scope=DedupScope(conf.repository.dedup_scope),
        rbd_pools=tuple(conf.registrar.rbd_pools) if rbd else (),
    )


def rbd_client(conf: cfg.ConfigOpts) -> Connection | None:
    """Return the client of the cluster that Glance stores images in.

    None where none is configured, or where there is no binding of librbd: images are downloaded.
    """
    options = conf.registrar
    if not options.rbd_user:
        return None
    try:
        binding.load(binding.RBD)
    except exception.UnsupportedError as error:
        LOG.warning(
            "[registrar] rbd_user has no effect, images in RBD are downloaded from Glance: %s",
            exception.one_line(error, with_hint=True),
        )
        return None
    return Connection(options.rbd_conf, options.rbd_user, options.rbd_timeout)


def rules(conf: cfg.ConfigOpts) -> Rules:
    """Return what is registered, and what may be pinned."""
    options = conf.registrar
    return Rules(
        options.size_max,
        options.disk_size_max,
        are_signed_left=options.signed_images == "leave",
        visibilities=frozenset(options.visibility),
        projects=frozenset(options.projects),
        are_snapshots_left=options.snapshots == "leave",
        pin_projects=frozenset(options.pin_projects),
    )


def registry_sync(
    conf: cfg.ConfigOpts,
    service: ImageService,
    repository: Repository,
    jobs: Jobs,
    name: str,
    on_removal: Callable[[], None],
    clock: Callable[[], float],
    monotonic: Callable[[], float],
) -> RegistrySync:
    """Return what keeps the image registry.

    :param name: of this registrar.
    :param on_removal: called when a withdrawn image was taken from the hosts.
    :param clock: seconds since the epoch.
    :param monotonic: seconds.
    """
    options = conf.registrar
    records = signed_records(conf)
    return RegistrySync(
        service,
        repository,
        jobs,
        Withdrawals(
            repository,
            options.withdraw_grace,
            conf.agent.interval + conf.image_links.scan_interval,
            on_removal,
            clock,
            monotonic,
        ),
        SyncSettings(
            registrar=name,
            rules=rules(conf),
            retry_delay=options.retry_delay,
            retry_delay_max=options.retry_delay_max,
        ),
        clock,
        IndexStatements(repository, records, clock, monotonic) if records else None,
    )
