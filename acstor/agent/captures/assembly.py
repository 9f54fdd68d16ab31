"""Assembly of the reconciler of captures, by the configuration."""

import contextlib
import logging
import os
import pwd
from collections.abc import Callable, Iterable, Iterator

from oslo_config import cfg

from acstor import exception
from acstor.agent.captures.orders import OriginOrder
from acstor.agent.captures.pins import PinKeeper
from acstor.agent.captures.processes import ChildProcesses
from acstor.agent.captures.reconciler import CaptureReconciler
from acstor.agent.captures.settings import CaptureSettings
from acstor.agent.captures.table import CaptureRecord, CaptureTable
from acstor.agent.hypervisor.base import Hypervisor
from acstor.agent.hypervisor.libvirt_driver import LibvirtHypervisor
from acstor.control.client import AdminClient
from acstor.drivers.nova.image_links import nova_settings
from acstor.origin import configured
from acstor.origin.opening import open_origin
from acstor.repository.opening import open_repository
from acstor.repository.versions.delta_capture import Settings
from acstor.repository.versions.store import VersionStore
from acstor.versions.delayed_commit import Bounds

LOG = logging.getLogger(__name__)


def build(
    conf: cfg.ConfigOpts,
    on_change: Callable[[Iterable[CaptureRecord]], None],
    on_end: Callable[[str], None],
) -> CaptureReconciler | None:
    """Return the reconciler of a host, None where captures are off.

    :param on_change: told all captures after each change, for metrics.
    :param on_end: told the state in which a capture ended.
    """
    if not conf.captures.enabled:
        return None
    hypervisor: Hypervisor | None = None
    problem = ""
    try:
        hypervisor = LibvirtHypervisor(
            conf.captures.libvirt_uri, uses_monitor=conf.captures.monitor
        )
    except exception.UnsupportedError as error:
        problem = exception.one_line(error, with_hint=True)
        LOG.warning("captures of servers: %s", problem)
    try:
        make_scratch(conf.captures.scratch_path, conf.captures.qemu_user)
    except (OSError, exception.ConfigurationError) as error:
        problem = problem or exception.one_line(error, with_hint=True)
        LOG.error("captures of running servers: %s", problem)
    pins = None
    if hypervisor is not None and conf.captures.pins:
        pins = PinKeeper(
            hypervisor,
            lambda: _instances_path(conf),
            conf.captures.pin_keep,
            conf.captures.pin_free_percent,
        )
    return CaptureReconciler(
        settings_of(conf),
        CaptureTable(conf.captures.path, conf.host, on_change),
        ChildProcesses(),
        hypervisor,
        lambda: _opened_store(conf),
        AdminClient(conf.dataplane.admin_socket),
        pins,
        no_hypervisor=problem,
        on_end=on_end,
    )


def make_scratch(path: str, user: str) -> None:
    """Make the folder in which QEMU keeps scratch files and sockets.

    :param user: that QEMU runs as; empty: root.
    :raises ConfigurationError: when there is no such user.
    :raises OSError: when it cannot be made.
    """
    os.makedirs(path, mode=0o711, exist_ok=True)
    if not user or os.geteuid() != 0:
        return
    try:
        found = pwd.getpwnam(user)
    except KeyError as error:
        raise exception.ConfigurationError(
            f"there is no user {user}", hint="let [captures] qemu_user be whom QEMU runs as"
        ) from error
    os.chown(path, found.pw_uid, found.pw_gid)


def settings_of(conf: cfg.ConfigOpts) -> CaptureSettings:
    """Return the settings of a host's captures."""
    options = conf.captures
    delta = Settings()
    return CaptureSettings(
        origin=OriginOrder(configured.origin_url(conf), conf.origin.timeout, conf.host),
        libvirt_uri=options.libvirt_uri,
        uses_monitor=options.monitor,
        scratch_path=options.scratch_path,
        scratch_max=options.scratch_max,
        jobs=options.jobs,
        read_rate=options.read_rate,
        write_rate=options.write_rate,
        capacity=options.capacity,
        reserve_percent=options.reserve_percent,
        nice=options.nice,
        bounds=Bounds(options.commit_delay, options.commit_bytes),
        hold_seconds=options.hold_max,
        keep_ended=options.keep_ended,
        pack_size=delta.pack_size,
        workers=delta.workers,
        known_chunks_max=delta.known_chunks_max,
        origin_reserve_percent=conf.origin.reserve_percent,
    )


def _instances_path(conf: cfg.ConfigOpts) -> str | None:
    try:
        return nova_settings.read(conf.image_links.nova_config_file).instances_path
    except exception.ConfigurationError as error:
        LOG.debug("pins: %s", error)
        return None


@contextlib.contextmanager
def _opened_store(conf: cfg.ConfigOpts) -> Iterator[VersionStore]:
    repository = open_repository(
        lambda: open_origin(configured.origin_url(conf), conf.origin.timeout)
    )
    try:
        yield VersionStore(repository)
    finally:
        repository.origin.close()
