"""Assembly of the reconciler of local files, by the configuration."""

import logging
from collections.abc import Callable, Iterable

from oslo_config import cfg

from acstor import exception
from acstor.agent.reconcilers.image_links import ImageLinksReconciler
from acstor.agent.reconcilers.local_files import known_files
from acstor.agent.reconcilers.local_files.content import ImageContent
from acstor.agent.reconcilers.local_files.known_files import KnownFile, KnownFiles
from acstor.agent.reconcilers.local_files.making import DiskFileMaker
from acstor.agent.reconcilers.local_files.reading import ChildReader
from acstor.agent.reconcilers.local_files.reconciler import LocalFiles
from acstor.agent.reconcilers.local_files.room import Budget, refusal
from acstor.agent.reconcilers.local_files.table import LocalFileTable
from acstor.agent.reconcilers.local_files.work import LocalFileWork, WorkSettings
from acstor.drivers.nova.image_links.base_names import target_path
from acstor.drivers.nova.image_links.local_directory import LocalDirectory
from acstor.repository.disk_manifest import load_manifest

LOG = logging.getLogger(__name__)


def build(
    conf: cfg.ConfigOpts,
    links: ImageLinksReconciler,
    preloaded: Callable[[], frozenset[str]],
    count_files: Callable[[Iterable[KnownFile]], None],
    count_job: Callable[[str], None],
) -> LocalFiles | None:
    """Return the reconciler of a host; None where there are no local files and never were.

    :param preloaded: returns the ids of the images that are preloaded whole, and pinned.
    :raises AcstorError: when what is known of the files was written by a newer release.
    """
    path = known_files.path_in(conf.state_path)
    try:
        known = known_files.load(path)
    except exception.CorruptError as error:
        LOG.error("%s; %s", error, error.hint)
        known = KnownFiles()
    if known is None and not conf.local_files.enabled:
        return None
    table = LocalFileTable(path, known or KnownFiles(), count_files)
    settings = settings_of(conf)
    work = LocalFileWork(
        table,
        lambda base: DiskFileMaker(
            LocalDirectory(base),
            lambda image_id: ChildReader(target_path(conf.dataplane.mount_point, image_id)),
        ),
        lambda origin, manifest: ImageContent(load_manifest(origin, manifest)),
        settings,
        refuse=refusal,
        on_done=count_job,
    )
    files = LocalFiles(
        table,
        work,
        links,
        settings,
        is_enabled=conf.local_files.enabled and conf.image_links.enabled,
        preloaded=preloaded,
    )
    links.follow_local_files(files.linkable)
    return files


def settings_of(conf: cfg.ConfigOpts) -> WorkSettings:
    """Return the limits that are configured."""
    options = conf.local_files
    return WorkSettings(
        Budget(options.capacity, options.reserve_percent / 100),
        options.rate,
        options.verify_interval,
        options.verify_rate,
    )
