"""``acstor-holder``: keeps a process and its descriptors alive where there is no systemd."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from acstor.supervision.holder.holder import Holder, HolderSettings
from acstor.supervision.holder.notify_socket import HolderRunningError

_EXIT_USAGE = 2
_EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
_EXIT_NOT_EXECUTABLE = 127

_DESCRIPTION = """\
Run COMMAND, restart it whenever it ends, and keep the descriptors that it stores (FUSE, sockets)
for the next one, as systemd's descriptor store does. SIGHUP replaces the process, SIGTERM stops
it for good."""


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="acstor-holder",
        description=_DESCRIPTION,
        usage="acstor-holder [options] [--] COMMAND [ARGUMENT ...]",
    )
    parser.add_argument(
        "--config-file",
        action="append",
        default=[],
        metavar="FILE",
        help="configuration from which [dataplane] holder_socket is taken",
    )
    parser.add_argument(
        "--socket", metavar="PATH", help="notification socket; no file is read then"
    )
    parser.add_argument(
        "--stop-timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="after which a process that was asked to leave is killed (default: %(default)s)",
    )
    parser.add_argument(
        "--watchdog",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="after which a process that stopped sending WATCHDOG=1 is killed, 0: never "
        "(default: %(default)s)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parsed = parser.parse_args(arguments)
    if parsed.command[:1] == ["--"]:
        del parsed.command[0]
    if not parsed.command:
        parser.error("name the command to run, e.g. acstor-holder -- acstor-dataplane")
    if not (0 < parsed.stop_timeout <= 3600 and 0 <= parsed.watchdog <= 3600):
        parser.error("--stop-timeout and --watchdog are seconds, at most 3600")
    return parsed


def _socket_path(parsed: argparse.Namespace) -> str:
    if parsed.socket:
        return str(parsed.socket)
    # Not needed with --socket, and a fifth of the memory of this long-lived process.
    from acstor.conf import loading

    arguments = [part for name in parsed.config_file for part in ("--config-file", name)]
    return str(loading.load("acstor-holder", arguments).dataplane.holder_socket)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the holder; return its exit code."""
    parsed = _parse(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s acstor-holder %(message)s"
    )
    from acstor.exception import AcstorError

    try:
        path = _socket_path(parsed)
    except AcstorError as error:
        print(f"acstor-holder: error: {error}", file=sys.stderr)  # noqa: T201
        return _EXIT_CONFIGURATION
    settings = HolderSettings(parsed.command, path, parsed.stop_timeout, parsed.watchdog)
    try:
        return Holder(settings, os.environ).run()
    except HolderRunningError as error:
        print(f"acstor-holder: error: {error}", file=sys.stderr)  # noqa: T201
        return _EXIT_USAGE
    except OSError as error:
        name = error.filename or path
        print(f"acstor-holder: error: {name}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return _EXIT_NOT_EXECUTABLE
