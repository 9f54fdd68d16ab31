"""``acstor-mount``: mounts for a data plane that is not root, and hands the descriptor over.

It holds nothing that guests depend on: it may end and start at any time.
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence

from oslo_config import cfg

from acstor.cmd import daemon
from acstor.conf import loading

LOG = logging.getLogger("acstor.mount")

_PROGRAM = "acstor-mount"
_GIVE_STATE = "--give-state"
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer the data plane until a signal; return the exit status.

    With ``--give-state`` the data plane's user is given what one wrote that was root instead.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # before any thread exists
    given = list(sys.argv[1:] if arguments is None else arguments)
    if _GIVE_STATE in given:
        given.remove(_GIVE_STATE)
        return daemon.run(_PROGRAM, LOG, _give_state, given)
    return daemon.run(_PROGRAM, LOG, lambda conf: _serve(conf, given), given)


def _give_state(conf: cfg.ConfigOpts) -> int:
    from acstor.dataplane.given_state import give_state

    give_state(conf)
    return 0


def _serve(conf: cfg.ConfigOpts, arguments: list[str]) -> int:
    from acstor.mounting.direct import DirectMounter
    from acstor.mounting.mounter import Mounter, MountOptions
    from acstor.mounting.server import GuardedMounter, MountServer
    from acstor.supervision.supervisor import Supervisor

    def load() -> MountOptions:
        # Anew each time: a data plane that starts with another mount point finds it here, too.
        return MountOptions.from_conf(loading.load(_PROGRAM, arguments, _register_log))

    def make(options: MountOptions) -> Mounter:
        return GuardedMounter(options, DirectMounter(options))

    server = MountServer(conf.dataplane.mount_socket, conf.dataplane.user, load, make)
    server.start()
    Supervisor.from_environment(os.environ).notify(READY="1", STATUS="waiting for requests")
    LOG.info("mounts at %s for %s", conf.dataplane.mount_point, conf.dataplane.user)
    signal.sigwait(_SIGNALS)
    server.stop()
    return 0


def _register_log(conf: cfg.ConfigOpts) -> None:
    from oslo_log import log

    log.register_options(conf)
