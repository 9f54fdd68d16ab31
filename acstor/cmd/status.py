"""``acstor-status``: says whether this machine is ready for the installed release."""

import logging
import sys
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log
from oslo_upgradecheck import upgradecheck

from acstor import version, warning_filters
from acstor.checks.upgrade import UpgradeChecks
from acstor.conf import config_files, opts

_PROGRAM = "acstor-status"
_EXIT_ERROR = 255
"""Exit status of an error of the program; 0 to 2 are results of checks: success, warning,
failure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``upgrade check``; return the worst result."""
    if arguments is None:
        warning_filters.exclude_eventlet()
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    log.register_options(conf)
    upgradecheck.register_cli_options(conf, UpgradeChecks(conf))
    # Not upgradecheck.main: that would read default_config_dirs, which no other program reads.
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        conf(
            config_files.with_secrets(given),
            project="acstor",
            prog=_PROGRAM,
            version=version.release(),
            default_config_files=[],
            default_config_dirs=[],
        )
    except cfg.Error as error:
        print(f"{_PROGRAM}: error: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        return _EXIT_ERROR
    upgradecheck.CONF = conf  # where it looks whether --json was given
    # Not oslo.log's: that writes to stdout, where the results are.
    logging.basicConfig(level=logging.ERROR, format=f"{_PROGRAM}: %(levelname)s: %(message)s")
    return int(upgradecheck.run(conf))
