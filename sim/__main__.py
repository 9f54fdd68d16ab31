"""``python -m sim``: list, run, compare and plot scenarios."""

import argparse
import datetime
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from acstor.exception import AcstorError
from sim import page, scenario, tables
from sim.scenario import Scenario
from testbed.results.record import DIRECTORY

RECORDS = DIRECTORY / "simulator"
_WRITE_INTERVAL = 20.0
"""Seconds between two writes of what has been found so far."""
_DESCRIPTION = """\
The data-centre simulator: flows under max-min fair sharing over a tree of switches, with the real
ring and the real policy. Scenarios are files (sim/scenarios/*.toml, or any path that ends so)."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sim", description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listed = commands.add_parser("list", help="list the scenarios")
    _add_format(listed)
    listed.set_defaults(action=_list)
    run = commands.add_parser("run", help="run a scenario and show medians over its seeds")
    _add_run_options(run)
    run.set_defaults(action=_run)
    compare = commands.add_parser(
        "compare", help="run a scenario, or take results, and show ratios"
    )
    _add_run_options(compare)
    compare.add_argument("--base", default="static-collaborative", metavar="VARIANT")
    compare.add_argument("--metric", default="boot_mean_s", metavar="NAME")
    compare.add_argument(
        "--results", type=pathlib.Path, metavar="FILE", help="of a former run, instead of running"
    )
    compare.add_argument(
        "--testbed", type=pathlib.Path, metavar="FILE",
        help="a report of the testbed to set beside the simulated boot times",
    )  # fmt: skip
    compare.set_defaults(action=_compare)
    plot = commands.add_parser("plot", help="draw the results of a run")
    plot.add_argument("results", type=pathlib.Path)
    plot.add_argument("output", type=pathlib.Path, help="an SVG file")
    plot.set_defaults(action=_plot)
    recorded = commands.add_parser(
        "record", help="run the scenarios of the results' page and write what it is drawn from"
    )
    recorded.add_argument(
        "--output", type=pathlib.Path, default=RECORDS, metavar="DIR",
        help="of the results of record (default: %(default)s)",
    )  # fmt: skip
    recorded.add_argument(
        "--results", type=pathlib.Path, required=True, metavar="DIR",
        help="where results are kept: what is there is not run again",
    )  # fmt: skip
    recorded.add_argument("--jobs", type=int, default=1, metavar="N")
    recorded.add_argument("--scenarios", metavar="NAME,...", help="(default: all of them)")
    recorded.set_defaults(action=_record)
    return parser


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario")
    _add_format(parser)
    parser.add_argument(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        help="write all results (FILE.part while it runs)",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="(default: the scenario's)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--axis", action="append", default=[], metavar="TABLE.KEY=VALUE[,VALUE...]",
        help="run only these values of an axis, or add one",
    )  # fmt: skip
    parser.add_argument("--variants", metavar="NAME,...", help="run only these")


def _chosen(arguments: argparse.Namespace) -> Scenario:
    axes: dict[str, list[Any]] = {}
    for text in arguments.axis:
        name, _, values = text.partition("=")
        axes[name] = [scenario.parse_value(value) for value in values.split(",")]
    variants = arguments.variants.split(",") if arguments.variants else None
    return scenario.load(arguments.scenario).only(axes, variants, arguments.seeds)


def _run_all(chosen: Scenario, jobs: int, path: pathlib.Path | None = None) -> dict[str, Any]:
    """Run all cases; what there is so far is kept beside ``path``, lest it be lost."""
    from sim import sweep

    partial = path.with_name(f"{path.name}.part") if path is not None else None
    so_far: list[dict[str, Any]] = []
    written = time.monotonic()

    total = len(list(chosen.cases()))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(chosen.name, total=total)

        def on_result(done: int, _total: int, result: dict[str, Any]) -> None:
            nonlocal written
            progress.update(task, completed=done)
            so_far.append(result)
            if partial is not None and time.monotonic() > written + _WRITE_INTERVAL:
                _write(sweep.document(chosen, so_far), partial)
                written = time.monotonic()

        results = sweep.run_all(chosen, jobs, on_result)
    if partial is not None:
        partial.unlink(missing_ok=True)
    return sweep.document(chosen, results)


def _write(document: dict[str, Any], path: pathlib.Path | None) -> None:
    if path is not None:
        path.write_text(json.dumps(document) + "\n")


def _list(arguments: argparse.Namespace) -> int:
    loaded = [scenario.load(name) for name in scenario.names()]
    if arguments.format == "json":
        fields = [
            {"name": one.name, "title": one.title, "runs": len(list(one.cases()))} for one in loaded
        ]
        sys.stdout.write(json.dumps(fields, indent=1) + "\n")
        return 0
    rows = [["scenario", "title", "runs"]]
    rows += [[one.name, one.title, str(len(list(one.cases())))] for one in loaded]
    tables.show("Scenarios", rows, Console())
    return 0


def _run(arguments: argparse.Namespace) -> int:
    chosen = _chosen(arguments)
    document = _run_all(chosen, arguments.jobs, arguments.json)
    _write(document, arguments.json)
    if arguments.format == "json":
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        rows = tables.of_medians(document["results"], chosen.metrics)
        tables.show(chosen.title, rows, Console())
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from sim import sweep, testbed_report

    if arguments.results is not None:
        document = sweep.read_document(arguments.results)
    else:
        document = _run_all(_chosen(arguments), arguments.jobs, arguments.json)
        _write(document, arguments.json)
    if arguments.testbed is not None:
        rows = testbed_report.beside(document["results"], testbed_report.read(arguments.testbed))
    else:
        rows = tables.of_ratios(document["results"], arguments.metric, arguments.base)
    if arguments.format == "json":
        fields = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
        sys.stdout.write(json.dumps(fields, indent=1) + "\n")
    else:
        tables.show(document["title"], rows, Console())
    return 0


def _plot(arguments: argparse.Namespace) -> int:
    from sim import record, sweep
    from testbed.results import drawing

    document = sweep.read_document(arguments.results)
    drawing.draw(record.of_document(document, str(arguments.results)), arguments.output)
    return 0


def _record(arguments: argparse.Namespace) -> int:
    from sim import record, sweep
    from testbed.results.record import write

    arguments.results.mkdir(parents=True, exist_ok=True)
    for name in arguments.scenarios.split(",") if arguments.scenarios else page.ORDER:
        path = arguments.results / f"{name}.json"
        if not path.exists():
            _write(_run_all(scenario.load(name), arguments.jobs), path)
        ran = datetime.date.fromtimestamp(path.stat().st_mtime)
        found = record.of_document(sweep.read_document(path), f"python -m sim record, {ran}")
        write(found, arguments.output / f"{name}.json")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.action(parsed))
    except AcstorError as error:
        sys.stderr.write(f"sim: error: {error.message}; {error.hint}\n")
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
