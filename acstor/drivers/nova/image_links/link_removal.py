"""Removing all links of a host, and the local files that they led to, for taking ACStor off it."""

from dataclasses import dataclass

from oslo_config import cfg

from acstor.drivers.nova.image_links import known_links, nova_settings
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.known_links import KnownLink, KnownLinks
from acstor.drivers.nova.image_links.link_keeper import why_kept
from acstor.drivers.nova.image_links.link_states import LinkEvent, LinkState
from acstor.drivers.nova.image_links.local_directory import LocalDirectory, file_name
from acstor.drivers.nova.image_links.only_linker import OnlyLinker
from acstor.drivers.nova.image_links.planting import Planter


@dataclass(frozen=True)
class Removal:
    """Result of the removal of one link."""

    image_id: str
    path: str
    is_removed: bool
    reason: str
    """Reason for which it stays."""


def remove_all(conf: cfg.ConfigOpts) -> list[Removal]:
    """Remove every link that no overlay uses; return what became of each, ordered by image.

    Links to another mount point are removed as well: they were made before that was changed.

    :param conf: the host's checked configuration.
    :raises FencedError: while an agent that would plant them again runs.
    :raises AcstorError: when Nova's settings cannot be read.
    :raises OSError: when Nova's directories cannot be.
    """
    only = OnlyLinker(conf.state_path)
    only.take()
    try:
        settings = nova_settings.read(conf.image_links.nova_config_file)
        mount_point = conf.dataplane.mount_point
        planter = Planter(settings, mount_point, conf.host, FileOperations())
        removals = [
            _remove(settings, planter, image_id) for image_id in sorted(planter.planted_images())
        ]
        _note(conf, settings, removals)
        _remove_files(LocalDirectory(settings.base_directory), planter.local_images())
        return removals
    finally:
        only.give_up()


def _remove(settings: nova_settings.NovaSettings, planter: Planter, image_id: str) -> Removal:
    path = planter.path(image_id)
    try:
        outcome = planter.remove(image_id, lambda: why_kept(settings, image_id), of_any_mount=True)
    except OSError as error:
        return Removal(image_id, path, False, str(error))
    is_removed = outcome.event not in (LinkEvent.KEEP, LinkEvent.LOCKED)
    return Removal(image_id, path, is_removed, "" if is_removed else outcome.reason)


def _remove_files(directory: LocalDirectory, linked: frozenset[str]) -> None:
    """Remove every local file that no link leads to; guests that have one open go on with it."""
    kept = {file_name(image_id) for image_id in linked}
    for name in directory.names():
        if name not in kept:
            directory.remove(name)


def _note(
    conf: cfg.ConfigOpts, settings: nova_settings.NovaSettings, removals: list[Removal]
) -> None:
    """Have 'acstor links list' show what is left."""
    path = known_links.path_in(conf.state_path)
    links = {
        removal.image_id: KnownLink(LinkState.KEPT, removal.reason)
        for removal in removals
        if not removal.is_removed
    }
    known = known_links.load(path) or KnownLinks()
    known_links.save(path, known.followed_by(settings.base_directory, links))
