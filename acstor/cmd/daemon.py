"""Start and end of the programs of the control plane."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from oslo_config import cfg
from oslo_log import log

from acstor import exception, warning_filters
from acstor.conf import loading
from acstor.service import Watchdog
from acstor.supervision.supervisor import Supervisor, watchdog_interval

EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h


class Service(Protocol):
    """Service that reconciles until it is stopped."""

    def run(self, watchdog: Watchdog | None = None) -> None:
        """Work until stopped."""

    def stop(self) -> None:
        """End :meth:`run` soon; called from a signal handler."""

    def reconcile_soon(self) -> None:
        """Have a pass now; called from a signal handler."""


class Endpoint(Protocol):
    """Endpoint of the metrics."""

    @property
    def url(self) -> str:
        """Its address."""

    def start(self) -> None:
        """Serve."""

    def stop(self) -> None:
        """End."""


def serve(service: Service, endpoint: Endpoint, logger: logging.Logger) -> None:
    """Run a service with its metrics until SIGTERM or SIGINT; SIGHUP has it reconcile now.

    The supervisor is told that it runs and, where it has a watchdog, that it goes on.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    signal.signal(signal.SIGHUP, lambda *_: service.reconcile_soon())
    endpoint.start()
    logger.info("metrics at %s", endpoint.url)
    supervisor = Supervisor.from_environment(os.environ)
    supervisor.notify(READY="1", STATUS="running")
    interval = watchdog_interval(os.environ)
    watchdog = None
    if interval is not None:
        watchdog = Watchdog(interval, lambda: supervisor.notify(WATCHDOG="1"))
    try:
        service.run(watchdog)
    finally:
        endpoint.stop()


def run(
    program: str,
    logger: logging.Logger,
    work: Callable[[cfg.ConfigOpts], int],
    arguments: Sequence[str] | None = None,
) -> int:
    """Read the configuration, set the log up, and work until that ends.

    :param work: takes the configuration and returns the exit status.
    :param arguments: of the command line; by default of this process.
    :returns: the exit status: :data:`EXIT_CONFIGURATION` when a value of the configuration is
        wrong, that of the error when the work cannot begin. The reason is told before.
    """
    if arguments is None:
        warning_filters.exclude_eventlet()
    try:
        conf = loading.load(
            program, sys.argv[1:] if arguments is None else arguments, log.register_options
        )
    except exception.ConfigurationError as error:
        print(f"{program}: error: {error}; {error.hint}", file=sys.stderr)  # noqa: T201
        return EXIT_CONFIGURATION
    log.setup(conf, program)
    loading.warn_of_unknown(conf)
    try:
        return work(conf)
    except exception.AcstorError as error:
        logger.error("cannot start: %s; %s", error, error.hint)
        is_configuration = isinstance(error, exception.ConfigurationError)
        return EXIT_CONFIGURATION if is_configuration else error.exit_status
    except OSError as error:
        logger.error("cannot start: %s", error)
        return 1
