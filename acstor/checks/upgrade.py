"""All checks, in the order in which they are shown."""

import threading
from collections.abc import Callable

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result

from acstor import exception
from acstor.checks import (
    configuration,
    dependencies,
    host,
    image_signatures,
    nova,
    origin,
    peer_tls,
    platform,
    volumes,
)
from acstor.checks.data_plane_user import check_data_plane_user
from acstor.checks.verdict import Check, failure, failure_of, warning

CHECK_TIMEOUT = 30.0
"""Seconds that one check may take; a dead NFS server or FUSE file system can hold it for ever."""

FIRST: tuple[str, Check] = ("Configuration values", configuration.check_values)
"""Check that runs before all others: without valid values they would look at something else."""
OTHERS: tuple[tuple[str, Check], ...] = (
    ("Configuration options", configuration.check_names),
    ("Extension module", host.check_extension),
    ("Origin and repository format", origin.check_repository),
    ("Origin's mount", origin.check_mount),
    ("Access to the origin", origin.check_access),
    ("Signed images", image_signatures.check_signatures),
    ("Ring format", origin.check_ring),
    ("Coordination", dependencies.check_coordination),
    ("Messages", dependencies.check_messages),
    ("Calls of agents", dependencies.check_calls),
    ("Keystone and Glance", dependencies.check_identity),
    ("Agents of all hosts", dependencies.check_agents),
    ("Certificate for peers", peer_tls.check_certificate),
    ("Kernel", platform.check_kernel),
    ("QEMU", platform.check_qemu),
    ("libvirt", platform.check_libvirt),
    ("Image links", nova.check_image_links),
    ("Local files", nova.check_local_files),
    ("Host name", nova.check_host_name),
    ("Nova's scheduler", nova.check_scheduler),
    ("libvirt for volumes", volumes.check_libvirt),
    ("Access to volumes", volumes.check_access),
    ("Directories", host.check_directories),
    ("FUSE access", host.check_image_access),
    ("User of the data plane", check_data_plane_user),
    ("Chunk store format", host.check_chunk_store),
    ("Take-over of the mount", host.check_take_over),
    ("Running data plane", host.check_data_plane),
)


class UpgradeChecks(upgradecheck.UpgradeCommands):
    """``upgrade check`` of one configuration."""

    display_title = "ACStor upgrade check"

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._upgrade_checks = (
            (FIRST[0], lambda checks: checks.run_first()),
            *((name, _bound(check)) for name, check in OTHERS),
        )
        self._is_valid = False

    def run_first(self) -> Result:
        """Look at the values; the other checks depend on them."""
        result = run(FIRST[1], self._conf)
        self._is_valid = result.code is not Code.FAILURE
        return result

    def run_other(self, check: Check) -> Result:
        """Run one of the other checks where the values are valid."""
        if not self._is_valid:
            return warning("not checked: correct the configuration first")
        return run(check, self._conf)


def _bound(check: Check) -> Callable[[UpgradeChecks], Result]:
    return lambda checks: checks.run_other(check)


def run(check: Check, conf: cfg.ConfigOpts, timeout: float = CHECK_TIMEOUT) -> Result:
    """Return the result of one check; an error is a failure, and so is no end."""
    results: list[Result] = []

    def target() -> None:
        try:
            results.append(check(conf))
        except exception.AcstorError as error:
            results.append(failure_of(error))
        except Exception as error:
            text = exception.one_line(error)
            results.append(failure(f"the check itself failed: {type(error).__name__}: {text}"))

    thread = threading.Thread(target=target, name="check", daemon=True)
    thread.start()
    thread.join(timeout)
    if not results:
        return failure(
            f"no answer within {timeout:g} s: a mounted directory or a dependency hangs; look for "
            "processes in state D (ps) and at the mounts named in the configuration"
        )
    return results[0]
