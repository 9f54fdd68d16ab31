"""Start of a control plane process: setup before its work, and the exit where it cannot begin."""

import logging
import sys
from collections.abc import Callable, Sequence

from oslo_config import cfg
from oslo_log import log

from acstor import exception, warning_filters
from acstor.conf import loading

EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h


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
    warning_filters.ignore_eventlet()
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
