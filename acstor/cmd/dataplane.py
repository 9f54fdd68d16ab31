"""``acstor-dataplane``: serves the disks of this host.

Starts in a fraction of a second, because guests wait while it does: what is heavy to import is
imported after READY, or not at all.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oslo_config import cfg

from acstor import exception
from acstor.conf import loading
from acstor.supervision.protocol import EXIT_STOPPED
from acstor.supervision.supervisor import Supervisor, take_descriptors, watchdog_interval

if TYPE_CHECKING:
    from acstor.dataplane.host import DataPlaneHost

LOG = logging.getLogger("acstor.native")

_PROGRAM = "acstor-dataplane"
_EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
_SWITCH_INTERVAL = 0.0005
"""Seconds that a Python thread may keep the interpreter while a pool thread needs it: at the
default of 5 ms a busy thread adds as much to each call of the origin."""
_TICK = 0.25
_ALIVE_INTERVAL = 1.0
_EXIT_GRACE = 2.0
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the data plane until a signal; return the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # before any thread exists
    supervisor = Supervisor.from_environment(os.environ)
    passed = take_descriptors(os.environ)
    try:
        conf = _configure(sys.argv[1:] if arguments is None else list(arguments))
    except exception.ConfigurationError as error:
        print(f"{_PROGRAM}: error: {error}; {error.hint}", file=sys.stderr)  # noqa: T201
        return _EXIT_CONFIGURATION
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        return _run(conf, supervisor, passed)
    except exception.AcstorError as error:
        LOG.error("cannot start: %s; %s", error, error.hint)
        return error.exit_status
    except OSError as error:
        LOG.error("cannot start: %s: %s", error.filename or "system", error.strerror)
        return 1


def _configure(arguments: list[str]) -> cfg.ConfigOpts:
    from oslo_log import log

    conf = loading.load(_PROGRAM, arguments, log.register_options)
    log.setup(conf, _PROGRAM)
    loading.warn_of_unknown(conf)
    return conf


def _run(conf: cfg.ConfigOpts, supervisor: Supervisor, passed: dict[str, int]) -> int:
    from acstor.dataplane import origin_source
    from acstor.dataplane.attachments import Attachments
    from acstor.dataplane.descriptors import InheritedDescriptors
    from acstor.dataplane.host import DataPlaneHost
    from acstor.mounting.opening import open_mounter
    from acstor.native import DataPlane

    started_at = time.monotonic()
    attachments = Attachments(os.path.join(conf.state_path, "dataplane"))
    chunk_size = origin_source.known_chunk_size(
        attachments, lambda: origin_source.read_chunk_size(conf)
    )
    source = origin_source.open_source(conf, attachments)
    host = DataPlaneHost(
        conf,
        chunk_size=chunk_size,
        origin=source,
        attachments=attachments,
        make_runtime=DataPlane,
        mounter=open_mounter(conf),
        supervisor=supervisor,
        inherited=InheritedDescriptors(passed),
        request_restart=lambda: os.kill(os.getpid(), signal.SIGTERM),
        request_stop=lambda: os.kill(os.getpid(), signal.SIGINT),
    )
    host.start()
    if source.members:
        from acstor.dataplane.member_opening import MemberFollower

        MemberFollower(conf, source, lambda: host.runtime, attachments).start()
    supervisor.notify(READY="1", STATUS="serving")
    LOG.info("serving after %.3f s", time.monotonic() - started_at)
    return _serve(host, supervisor, watchdog_interval(os.environ), conf.dataplane.stop_timeout)


def _serve(
    host: "DataPlaneHost", supervisor: Supervisor, watchdog: float | None, stop_timeout: float
) -> int:
    """Watch over the runtime until a signal ends it."""
    interval = min(_ALIVE_INTERVAL, watchdog / 3) if watchdog else _ALIVE_INTERVAL
    alive_at = 0.0
    while True:
        received = signal.sigtimedwait(_SIGNALS, _TICK)
        host.drain_log()
        host.retry_images()
        if received is not None and received.si_signo != signal.SIGHUP:
            is_final = received.si_signo == signal.SIGINT
            _stop(host, supervisor, stop_timeout, unmount=is_final or not host.leaves_mount())
            return EXIT_STOPPED if is_final and host.is_stopped_for_good else 0
        if time.monotonic() >= alive_at:
            alive_at = time.monotonic() + interval
            if not host.check_alive():
                _stop(host, supervisor, stop_timeout, unmount=False)
                return 1
            supervisor.refresh(WATCHDOG="1")


def _stop(
    host: "DataPlaneHost", supervisor: Supervisor, stop_timeout: float, *, unmount: bool
) -> None:
    supervisor.notify(STOPPING="1")
    LOG.info("stopping, %s", "unmounting" if unmount else "the mount stays for the next process")
    # Whatever hangs, the process ends: the next one is waiting for the store.
    longest = stop_timeout + (host.stop_push_timeout if unmount else 0.0)
    last_resort = threading.Timer(longest + _EXIT_GRACE, os._exit, (1,))
    last_resort.daemon = True
    last_resort.start()
    host.stop(unmount=unmount)
    last_resort.cancel()
