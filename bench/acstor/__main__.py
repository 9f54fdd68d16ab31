"""``python -m bench.acstor``: the tables and figures of the ACStor paper, measured."""

import argparse
import contextlib
import dataclasses
import datetime
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from acstor.exception import AcstorError
from bench.acstor import record, tables
from bench.acstor import report as reports
from bench.acstor.figures import FIGURES, Figure
from bench.acstor.report import OnStep, Report, Step
from bench.acstor.settings import EvaluationSettings, checked_approaches, require_tools
from bench.acstor.storm import OnDone
from bench.acstor.validation import IN_ORDER, LEFT_SHARE
from sim import tables as sim_tables
from testbed import interruption
from testbed.exception import TestbedError
from testbed.rates import LinkRate
from testbed.results import tables as result_tables
from testbed.results.record import write

_DESCRIPTION = """\
The evaluation of the ACStor paper on hosts that are network namespaces of this machine: recorded
boots are replayed on all hosts at once while other traffic takes parts of their links. Needs root.
Rates of traffic are given as on links of 1 Gbit/s and scaled like the links."""
_FLOATS = ("mean", "cv", "weight_lambda")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.acstor",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for figure in FIGURES.values():
        command = commands.add_parser(figure.name, help=figure.title)
        _add_figure_options(command, figure)
        command.set_defaults(action=_run_figure, figure=figure)
    overheads = commands.add_parser("overheads", help="what adapting costs while nobody boots")
    _add_settings(overheads)
    overheads.add_argument("--json", type=pathlib.Path, metavar="FILE")
    _add_format(overheads)
    overheads.set_defaults(action=_run_overheads)
    shares = commands.add_parser(
        "left-share", help="what UDP leaves of a full link to chunks, and who gets it first"
    )
    shares.add_argument("--rate", type=LinkRate.parse, default=EvaluationSettings().rate,
                        help="of every link (default: %(default)s)")  # fmt: skip
    shares.add_argument("--turns", type=int, default=3, help="(default: %(default)s)")
    shares.add_argument("--json", type=pathlib.Path, metavar="FILE")
    _add_format(shares)
    shares.set_defaults(action=_run_shares)
    validation = commands.add_parser(
        "validation", help="simulate the storms of a report, and show both side by side"
    )
    validation.add_argument("report", type=pathlib.Path)
    for name, default, help_text in (
        ("left-share", LEFT_SHARE, "of a link that is full of UDP, what others get"),
        ("in-order", IN_ORDER, "share of a link that who asked first gets"),
    ):
        validation.add_argument(
            f"--{name}", type=float, default=default, metavar="N",
            help=f"{help_text} (default: %(default)s, as measured)",
        )  # fmt: skip
    _add_format(validation)
    validation.set_defaults(action=_validate)
    plot = commands.add_parser("plot", help="draw a report that --json wrote")
    plot.add_argument("report", type=pathlib.Path)
    plot.add_argument("output", type=pathlib.Path, help="an SVG file")
    plot.set_defaults(action=_plot)
    recorded = commands.add_parser(
        "record", help="keep what pages show of a report that --json wrote, as a result of record"
    )
    recorded.add_argument("report", type=pathlib.Path)
    recorded.add_argument("output", type=pathlib.Path, help="a file below bench/results/evaluation")
    recorded.set_defaults(action=_record)
    show = commands.add_parser("show", help="show the tables of a report that --json wrote")
    show.add_argument("report", type=pathlib.Path)
    _add_format(show)
    show.set_defaults(action=_show)
    return parser


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--format", choices=("table", "json", "rst"), default="table")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    own = EvaluationSettings()
    parser.add_argument("--hosts", type=int, default=own.hosts, help="(default: %(default)s)")
    parser.add_argument(
        "--rate", type=LinkRate.parse, default=own.rate, metavar="RATE",
        help="of every link, such as 100mbit (default: %(default)s)",
    )  # fmt: skip
    for name, help_text in (
        ("guests-per-host", "guests on each host"),
        ("images", "different images"),
        ("reads", "reads of the trace that are replayed"),
        ("loops", "loops of a mix (Figure 9) that each guest does"),
        ("mix-mib", "MiB of each image that a mix's files are in"),
        ("think-scale", "factor on the guests' think times"),
        ("stagger", "seconds within which all guests start"),
        ("interval", "seconds between two collections, states and looks"),
        ("warm-up", "seconds of extra traffic before ACStor's guests start"),
        ("deadline", "seconds after which a guest counts as one that did not boot"),
        ("udp-share", "part of the extra traffic that keeps its rate; the rest is TCP"),
        ("congestion-control", "TCP's, of all hosts"),
        ("span", "chunks in a row that have one owner"),
        ("seed", "of traffic, images and starts; turn n adds n"),
    ):
        default = getattr(own, name.replace("-", "_"))
        parser.add_argument(
            f"--{name}", type=type(default), default=default, metavar="N",
            help=f"{help_text} (default: %(default)s)",
        )  # fmt: skip
    parser.add_argument("--weights", default=None, help="weight policy (default: headroom)")
    parser.add_argument(
        "--generated", action="store_true",
        help="random bytes on the disks in place of the recorded guest's, which is built otherwise",
    )  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep logs and state of the run")
    parser.add_argument("--root", type=pathlib.Path, default=own.root, help=argparse.SUPPRESS)


def _add_figure_options(parser: argparse.ArgumentParser, figure: Figure) -> None:
    _add_settings(parser)
    for name, help_text in (("mean", "MB/s of extra traffic"), ("cv", "its CV")):
        own = figure.axes.get(name, (figure.changes.get(name),))
        text = ",".join(str(value) for value in own if value is not None)
        parser.add_argument(f"--{name}", metavar="N,...", help=f"{help_text} (default: {text})")
    parser.add_argument(
        "--approaches", default=",".join(figure.approaches), metavar="NAME,...",
        help="(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--turns", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE",
        help="keep each storm there as soon as it is over; storms that it holds are not run again",
    )  # fmt: skip
    parser.add_argument(
        "--stop-after", type=float, metavar="SECONDS", help="begin no storm after so long"
    )
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="draw it, an SVG file")
    _add_format(parser)


def settings_of(arguments: argparse.Namespace, changes: dict[str, Any]) -> EvaluationSettings:
    """Return the settings that a command line asks for.

    :param changes: of the figure, which the command line goes before.
    """
    named = {
        field.name: getattr(arguments, field.name)
        for field in dataclasses.fields(EvaluationSettings)
        if hasattr(arguments, field.name) and field.name not in ("mean", "cv", "weights")
    }
    own = EvaluationSettings()
    given = {name: value for name, value in named.items() if value != getattr(own, name)}
    if arguments.weights is not None:
        given["weights"] = arguments.weights
    given["is_content_generated"] = arguments.generated
    return dataclasses.replace(own, **{**changes, **given})


def _axes(arguments: argparse.Namespace) -> dict[str, list[float]]:
    axes = {}
    for name in ("mean", "cv"):
        text = getattr(arguments, name)
        if text is not None:
            try:
                axes[name] = [float(value) for value in text.split(",")]
            except ValueError as error:
                raise TestbedError(f"--{name} {text!r} is no list of numbers") from error
    return axes


def _run_figure(arguments: argparse.Namespace) -> int:
    axes = _axes(arguments)
    figure: Figure = arguments.figure.with_axes(axes)
    fixed = {name: values[0] for name, values in axes.items() if name not in figure.axes}
    base = settings_of(arguments, {**figure.changes, **fixed})
    approaches = checked_approaches(arguments.approaches)
    require_tools(approaches)
    wanted = reports.steps(figure, approaches, arguments.turns)
    with _progress(len(wanted)) as on_step:
        report = reports.run_figure(
            figure, base, wanted, arguments.json, on_step, arguments.stop_after
        )
    if arguments.plot is not None:
        from testbed.results import drawing

        drawing.draw(record.of_report(report, figure), arguments.plot)
    _print(report, figure, arguments.format)
    return 0


@contextlib.contextmanager
def _progress(total: int) -> Iterator[OnStep]:
    """Show on standard error how far all storms, and the guests of the present one, are."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        storms = progress.add_task("storms", total=total)
        guests = progress.add_task("guests", total=None)

        def on_step(step: Step) -> OnDone:
            progress.advance(storms)
            values = ", ".join(f"{name} {value}" for name, value in step.point.items())
            progress.reset(guests, description=f"{step.approach} at {values}")

            def on_done(done: int, total: int) -> None:
                progress.update(guests, completed=done, total=total)

            return on_done

        yield on_step


def _print(report: Report, figure: Figure, form: str) -> None:
    found = tables.of_report(report, figure)
    ratios = tables.of_ratios(report, figure)
    if form == "json":
        document = {"rows": tables.as_objects(found), "ratios": tables.as_objects(ratios)}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    for title, rows in (
        (report.title, found),
        ("Times of static collaborative over those of the approach", ratios),
    ):
        if len(rows) == 1:
            continue
        if form == "rst":
            sys.stdout.write(f"{title}\n\n{result_tables.as_rst(rows)}\n")
        else:
            sim_tables.show(title, rows, Console(width=None if sys.stdout.isatty() else 160))


def _run_overheads(arguments: argparse.Namespace) -> int:
    from bench.acstor import overheads

    with Console(stderr=True).status("measuring overheads"):
        found = overheads.measure(settings_of(arguments, {}))
    if arguments.json is not None:
        arguments.json.write_text(overheads.as_json(found) + "\n")
    rows = [["what", "value", "unit", "how"]]
    rows += [[one.what, result_tables.number(one.value), one.unit, one.how] for one in found]
    if arguments.format == "json":
        sys.stdout.write(overheads.as_json(found) + "\n")
    elif arguments.format == "rst":
        sys.stdout.write(result_tables.as_rst(rows))
    else:
        sim_tables.show("Overheads", rows, Console(width=None if sys.stdout.isatty() else 160))
    return 0


def _run_shares(arguments: argparse.Namespace) -> int:
    from bench.acstor import convoys, link_shares

    with Console(stderr=True).status("measuring links"):
        shares = link_shares.measure(arguments.rate, arguments.turns)
        orders = convoys.measure(arguments.rate)
    if arguments.json is not None:
        found = {
            "shares": [dataclasses.asdict(one) for one in shares],
            "convoys": [dataclasses.asdict(one) for one in orders],
        }
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    found_tables = {
        "Shares of a link that chunks get beside UDP": link_shares.table(shares),
        "Chunks that are asked for at once": convoys.table(orders),
    }
    if arguments.format == "json":
        document = {title: tables.as_objects(rows) for title, rows in found_tables.items()}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return 0
    for title, rows in found_tables.items():
        if arguments.format == "rst":
            sys.stdout.write(f"{title}\n\n{result_tables.as_rst(rows)}\n")
        else:
            console = Console(width=None if sys.stdout.isatty() else 200)
            sim_tables.show(title, rows, console)
    return 0


def _validate(arguments: argparse.Namespace) -> int:
    from bench.acstor import validation

    with Console(stderr=True).status("simulating"):
        rows = validation.beside(
            Report.load(arguments.report), arguments.left_share, arguments.in_order
        )
    if arguments.format == "json":
        sys.stdout.write(json.dumps(tables.as_objects(rows), indent=1) + "\n")
    elif arguments.format == "rst":
        sys.stdout.write(result_tables.as_rst(rows))
    else:
        console = Console(width=None if sys.stdout.isatty() else 200)
        sim_tables.show("Simulated and measured", rows, console)
    return 0


def _loaded(path: pathlib.Path) -> tuple[Report, Figure]:
    report = Report.load(path)
    if report.figure not in FIGURES:
        raise TestbedError(f"{path} is of {report.figure}, which is no figure of this release")
    return report, FIGURES[report.figure]


def _plot(arguments: argparse.Namespace) -> int:
    from testbed.results import drawing

    drawing.draw(record.of_report(*_loaded(arguments.report)), arguments.output)
    return 0


def _record(arguments: argparse.Namespace) -> int:
    found = record.of_report(*_loaded(arguments.report))
    ran = datetime.date.fromtimestamp(arguments.report.stat().st_mtime)
    write(dataclasses.replace(found, source=f"{found.source}; {ran}"), arguments.output)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    _print(*_loaded(arguments.report), arguments.format)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        with interruption.raised():
            return int(parsed.action(parsed))
    except AcstorError as error:
        sys.stderr.write(f"bench.acstor: error: {error.message}; {error.hint}\n")
        return error.exit_status
    except interruption.Interrupted as interrupted:
        sys.stderr.write("ended; what was measured before is kept\n")
        return interrupted.exit_status


if __name__ == "__main__":
    sys.exit(main())
