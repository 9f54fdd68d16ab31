"""``tools/testbed``: hosts as network namespaces, real guests, the demo, boot traces."""

import argparse
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

from acstor.exception import AcstorError
from testbed import interruption
from testbed.exception import TestbedError
from testbed.rates import LinkRate
from testbed.run_directory import DEFAULT_ROOT
from testbed.testbed import HOST_RATE, ORIGIN_RATE

_DESCRIPTION = """\
Compute hosts as network namespaces of this machine, joined by shaped links, with an origin behind
a link of its own. Needs root. Everything that a command makes is removed when it ends, also after
^C; 'up' leaves it until 'down'."""

Action = Callable[[argparse.Namespace], int]


def _rate(text: str) -> LinkRate:
    try:
        return LinkRate.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def approaches_of(text: str) -> tuple[str, ...]:
    """Return the approaches that a comma-separated list names, for argparse."""
    from testbed.approaches.names import APPROACHES

    names = tuple(APPROACHES) if text == "all" else tuple(text.split(","))
    for name in names:
        if name not in APPROACHES:
            raise argparse.ArgumentTypeError(f"{name!r}; known are: {', '.join(APPROACHES)}, all")
    return names


def _add_network_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--origin-link", type=_rate, default=ORIGIN_RATE, metavar="RATE",
        help="rate of the origin's link, each direction (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--host-link", type=_rate, default=HOST_RATE, metavar="RATE",
        help="rate of each host's link (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep logs and state of the run")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/testbed",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="say more of what is done")
    parser.add_argument(
        "--root", type=pathlib.Path, default=DEFAULT_ROOT, metavar="DIR",
        help="where runs and built guests are kept (default: %(default)s)",
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_stay_up(commands)
    _add_trace(commands)
    _add_origin(commands)
    return parser


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser("demo", help="boot a guest on every host at once, in several ways")
    _add_network_options(demo)
    demo.add_argument(
        "--approaches", type=approaches_of, default="all", metavar="NAME,...",
        help="which to compare, in this order (default: %(default)s)",
    )  # fmt: skip
    demo.add_argument("--guests-per-host", type=int, default=1, metavar="N")
    demo.add_argument(
        "--check-content", action="store_true",
        help="each guest hashes a tree of files, which is compared with the image",
    )  # fmt: skip
    demo.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the measurements")
    demo.add_argument("--report", type=pathlib.Path, metavar="FILE", help="write an HTML report")
    demo.set_defaults(action=_demo)


def _add_stay_up(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = commands.add_parser("up", help="start hosts with ACStor and leave them up")
    _add_network_options(up)
    up.set_defaults(action=_up)
    down = commands.add_parser("down", help="remove runs: those named, or all that no one owns")
    down.add_argument("runs", nargs="*", metavar="RUN")
    down.set_defaults(action=_down)
    runs = commands.add_parser("runs", help="list the runs that are up")
    runs.set_defaults(action=_runs)
    boot = commands.add_parser("boot", help="boot guests on the hosts of a run that is up")
    boot.add_argument("run", nargs="?", help="(default: the newest that is up)")
    boot.add_argument("--check-content", action="store_true")
    boot.set_defaults(action=_boot)


def _add_trace(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    trace = commands.add_parser("trace", help="record what a guest reads; replay it on many hosts")
    kinds = trace.add_subparsers(required=True, metavar="COMMAND")
    record = kinds.add_parser("record", help="boot the guest once and record its reads")
    record.add_argument("trace", type=pathlib.Path)
    record.set_defaults(action=_record)
    replay = kinds.add_parser("replay", help="replay a trace on every host at once")
    replay.add_argument("trace", type=pathlib.Path)
    _add_network_options(replay)
    replay.add_argument("--think-scale", type=float, default=1.0, metavar="FACTOR")
    replay.add_argument("--buffered", action="store_true", help="read through the page cache")
    replay.add_argument("--approach", choices=("acstor", "static-collaborative"), default="acstor")
    replay.add_argument("--json", type=pathlib.Path, metavar="FILE")
    replay.set_defaults(action=_replay)


def _add_origin(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    origin = commands.add_parser("origin", help="serve an origin over HTTP, without authentication")
    origin.add_argument("url", help="of the origin to serve, for instance posix:///srv/acstor")
    origin.add_argument("--address", default="127.0.0.1", metavar="IP")
    origin.add_argument("--port", type=int, default=8420)
    origin.set_defaults(action=_origin)


def _demo(arguments: argparse.Namespace) -> int:
    from testbed import demo, live_view, report
    from testbed.testbed import TestbedSettings

    require_root()
    approaches = arguments.approaches
    view = live_view.LiveView(live_view.console())
    result = demo.run_demo(
        demo.DemoSettings(
            testbed=TestbedSettings(arguments.hosts, arguments.origin_link, arguments.host_link),
            approaches=approaches_of(approaches) if isinstance(approaches, str) else approaches,
            guests_per_host=arguments.guests_per_host,
            check_content=arguments.check_content,
            keep=arguments.keep,
            root=arguments.root,
        ),
        view,
    )
    view.summary(result)
    report.write(result, arguments.json, arguments.report)
    for path in (arguments.json, arguments.report):
        if path is not None:
            view.console.print(f"written: {path.resolve()}")
    return 0 if result.is_complete else TestbedError("").exit_status


def _down(arguments: argparse.Namespace) -> int:
    from testbed import cleanup
    from testbed.run_directory import RunDirectory

    require_root()
    runs = {run.id: run for run in RunDirectory.all(arguments.root)}
    for name in arguments.runs:
        if name not in runs:
            raise TestbedError(f"there is no run {name}", hint="tools/testbed runs lists them")
    chosen = [runs[name] for name in arguments.runs]
    if not chosen:
        chosen = [run for run in runs.values() if not run.is_owned]
    for run in chosen:
        run.adopt()
        with interruption.held_back():
            cleanup.remove(run)
        sys.stdout.write(f"removed {run.id}\n")
    return 0


def _runs(arguments: argparse.Namespace) -> int:
    from testbed.run_directory import RunDirectory

    for run in RunDirectory.all(arguments.root):
        state = "up" if run.is_detached else "running" if run.is_owned else "abandoned"
        sys.stdout.write(f"{run.id}  {state}  {run.path}\n")
    return 0


def _up(arguments: argparse.Namespace) -> int:
    from testbed import stay_up
    from testbed.testbed import TestbedSettings

    require_root()
    settings = TestbedSettings(arguments.hosts, arguments.origin_link, arguments.host_link)
    sys.stdout.write(stay_up.bring_up(settings, arguments.root))
    return 0


def _boot(arguments: argparse.Namespace) -> int:
    from testbed import live_view, stay_up

    require_root()
    view = live_view.LiveView(live_view.console())
    result = stay_up.boot_guests(
        arguments.run, arguments.root, view, check_content=arguments.check_content
    )
    return 0 if result.is_complete else TestbedError("").exit_status


def _record(arguments: argparse.Namespace) -> int:
    from testbed import boot_trace, trace_recorder

    require_root()
    trace = trace_recorder.record_guest(arguments.root)
    boot_trace.save(trace, arguments.trace)
    sys.stdout.write(
        f"{arguments.trace}: {len(trace.reads)} reads, {trace.bytes_read / 1e6:.1f} MB\n"
    )
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from testbed import live_view, replay_storm
    from testbed.testbed import TestbedSettings

    require_root()
    settings = replay_storm.ReplayStormSettings(
        testbed=TestbedSettings(arguments.hosts, arguments.origin_link, arguments.host_link),
        approach=arguments.approach,
        trace=arguments.trace,
        think_scale=arguments.think_scale,
        direct=not arguments.buffered,
        keep=arguments.keep,
        root=arguments.root,
    )
    result = replay_storm.run_replays(settings)
    replay_storm.show(result, live_view.console())
    if arguments.json is not None:
        replay_storm.write_json(result, arguments.json)
    return 0


def _origin(arguments: argparse.Namespace) -> int:
    from acstor.origin import opening
    from testbed.origin_server import OriginServer

    origin = opening.open_origin(arguments.url, 10.0)
    with OriginServer((arguments.address, arguments.port), origin) as server:
        try:
            server.serve_forever()
        finally:
            origin.close()
    return 0


def require_root() -> None:
    """Refuse to go on as another user than root."""
    if os.geteuid() != 0:
        raise TestbedError(
            "the testbed makes network namespaces and mounts, which needs root",
            hint="run it as root, for instance with sudo",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    parsed = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if parsed.verbose else logging.WARNING,
        format="tools/testbed: %(levelname)s: %(message)s",
    )
    action: Action = parsed.action
    try:
        with interruption.raised():
            return action(parsed)
    except interruption.Interrupted as interrupted:
        sys.stderr.write(f"tools/testbed: {interrupted}; everything is removed\n")
        return interrupted.exit_status
    except AcstorError as error:
        sys.stderr.write(f"tools/testbed: error: {error.message}; {error.hint}\n")
        return error.exit_status
