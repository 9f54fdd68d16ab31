"""Parts that the commands share: the client, waiting, arguments."""

import argparse
import datetime
import sys
from typing import Any, cast

from osc_lib import exceptions

from acstorclient.osc.columns import Fields, Row
from acstorclient.osc.progress import Progress
from acstorclient.v1.proxy import Proxy
from acstorclient.v1.task import Task


def client_of(app: Any) -> Proxy:
    """Return the proxy of the running OpenStack client."""
    return cast(Proxy, app.client_manager.acstor)


def connection_of(app: Any) -> Any:
    """Return the connection with the user's token, for the services beside ACStor."""
    return app.client_manager.sdk_connection


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add ``--wait [<seconds>]``, as ``openstack baremetal`` has it."""
    parser.add_argument(
        "--wait",
        metavar="<seconds>",
        nargs="?",
        type=seconds,
        const=0.0,
        default=None,
        help="Wait until it is done, that long at most; without a number until it ends. "
        "The exit status is not 0 where it fails or is not done by then",
    )


def seconds(text: str) -> float:
    """Read seconds of an argument; 0: without limit."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def moment(text: str) -> str:
    """Read a time of an argument, ISO 8601; without a zone it is of this machine's."""
    try:
        given = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time such as 2026-12-24T18:00 or 2026-12-24T18:00+01:00"
        ) from error
    return given.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def settle(client: Proxy, task: Task, wait: float | None) -> Task:
    """Return a task, and where somebody wants to wait, when it is done."""
    if wait is None:
        return task
    with Progress() as progress:
        return client.wait_for_task(task, seconds=wait, observe=progress.show_task)


def task_row(task: Task) -> Row:
    """Return what a command answers that has begun a task."""
    return (
        ("task_id", "kind", "state", "result"),
        (task.id, task.kind, task.state, Fields(dict(task.outcome))),
    )


def tell(text: str) -> None:
    """Say something that is no result, on standard error."""
    sys.stderr.write(f"{text}\n")


def each_of(names: list[str], verb: str, act: Any) -> None:
    """Do something with each of several, and go on where it fails.

    :raises CommandError: some failed, after all were tried.
    """
    failed = 0
    for name in names:
        try:
            act(name)
        except Exception as error:  # each of them is told, whatever it is
            failed += 1
            tell(f"{name}: {error}")
    if failed:
        raise exceptions.CommandError(f"{failed} of {len(names)} could not be {verb}")
