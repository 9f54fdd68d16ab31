"""``python -m bench.quickstart``, which ``tools/quickstart`` runs when everything is built."""

import argparse
import logging
import os
import pathlib
import sys

from acstor.exception import AcstorError
from bench.quickstart import many_hosts, page
from bench.quickstart.live import StormView
from testbed import command, demo, interruption, live_view
from testbed.approaches.collaborative import Acstor
from testbed.exception import TestbedError
from testbed.measurement import DemoResult
from testbed.rates import LinkRate
from testbed.run_directory import DEFAULT_ROOT
from testbed.testbed import ORIGIN_RATE, TestbedSettings

GUESTS_MAX = 4
NO_GUESTS = 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/quickstart", description=__doc__)
    parser.add_argument(
        "--hosts", type=int, default=many_hosts.HOSTS, metavar="N",
        help="of the storm (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--link", type=LinkRate.parse, default=many_hosts.RATE, metavar="RATE",
        help="rate of each link of the storm, each direction (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--approaches", type=command.approaches_of, default="all", metavar="NAME,...",
        help="which to compare, in this order (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--guests", type=int, default=min(GUESTS_MAX, os.cpu_count() or 1), metavar="N",
        help="real guests at once, each on a host of its own; 0: none (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--guest-approaches", type=command.approaches_of, default=Acstor.name, metavar="NAME,...",
        help="by which the real guests boot (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--origin-link", type=LinkRate.parse, default=ORIGIN_RATE, metavar="RATE",
        help="rate of the origin's link while real guests boot (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--check-content", action="store_true",
        help="each real guest hashes a tree of files, which is compared with the image",
    )  # fmt: skip
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the measurements")
    parser.add_argument("--report", type=pathlib.Path, metavar="FILE", help="write an HTML report")
    parser.add_argument("--keep", action="store_true", help="keep logs and state of the runs")
    parser.add_argument("--root", type=pathlib.Path, default=DEFAULT_ROOT, help=argparse.SUPPRESS)
    return parser


def _boot_guests(arguments: argparse.Namespace, view: live_view.LiveView) -> DemoResult:
    settings = demo.DemoSettings(
        testbed=TestbedSettings(arguments.guests, arguments.origin_link),
        approaches=_names(arguments.guest_approaches),
        check_content=arguments.check_content,
        keep=arguments.keep,
        root=arguments.root,
    )
    result = demo.run_demo(settings, view)
    view.summary(result)
    return result


def _names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return command.approaches_of(value) if isinstance(value, str) else value


def run(arguments: argparse.Namespace) -> int:
    """Boot guests, run the storm, show both and write the report."""
    command.require_root()
    console = live_view.console()
    settings = many_hosts.settings_of(arguments.hosts, arguments.link, arguments.root)
    guests = None
    if arguments.guests != NO_GUESTS:
        guests = _boot_guests(arguments, live_view.LiveView(console))
    view = StormView(console)
    storm = many_hosts.run(settings, _names(arguments.approaches), view)
    view.summary(storm)
    page.write(guests, storm, arguments.json, arguments.report)
    for path in (arguments.json, arguments.report):
        if path is not None:
            console.print(f"written: {path.resolve()}")
    is_complete = storm.is_complete and (guests is None or guests.is_complete)
    return 0 if is_complete else TestbedError("").exit_status


def main() -> int:
    """Run the command and return the exit status."""
    arguments = _parser().parse_args()
    logging.basicConfig(
        level=logging.WARNING, format="tools/quickstart: %(levelname)s: %(message)s"
    )
    try:
        with interruption.raised():
            return run(arguments)
    except interruption.Interrupted as interrupted:
        sys.stderr.write(f"tools/quickstart: {interrupted}; everything is removed\n")
        return interrupted.exit_status
    except AcstorError as error:
        sys.stderr.write(f"tools/quickstart: error: {error.message}; {error.hint}\n")
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
