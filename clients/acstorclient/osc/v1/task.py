"""``openstack acstor task cancel|list|show``."""

import argparse
import itertools

from osc_lib.command import command

from acstorclient.osc.columns import Fields, Row, Share, Size, Table, fields, row, rows
from acstorclient.osc.command import add_wait, client_of, each_of, settle
from acstorclient.osc.listing import add_listing, listing_query
from acstorclient.v1.task import TaskState

SHOWN = fields(
    "id",
    "kind",
    "state",
    "step",
    "progress",
    "bytes_done",
    "bytes_total",
    "result",
    "error",
    "created_at",
    "finished_at",
    "project_id",
    progress=Share,
    bytes_done=Size,
    bytes_total=Size,
    result=Fields,
    error=Fields,
)
"""Columns of one task."""
LISTED = (
    ("ID", "id", None),
    ("Kind", "kind", None),
    ("State", "state", None),
    ("Step", "step", None),
    ("Progress", "progress", Share),
    ("Created At", "created_at", None),
    ("Finished At", "finished_at", None),
)
"""Columns of a list."""


class ListTasks(command.Lister):
    """List tasks, those of the last 30 days too, the newest first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--kind", metavar="<kind>", help="Only of this kind")
        parser.add_argument(
            "--state", choices=[str(each) for each in TaskState], help="Only in this state"
        )
        add_listing(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        query = {"kind": parsed_args.kind, "state": parsed_args.state}
        found = client_of(self.app).tasks(**query, **listing_query(parsed_args))
        return rows(itertools.islice(found, parsed_args.max_items), LISTED)


class ShowTask(command.ShowOne):
    """Show one task; with --wait when it is done."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("task", metavar="<task>", help="Task (ID)")
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        client = client_of(self.app)
        return row(settle(client, client.get_task(parsed_args.task), parsed_args.wait), SHOWN)


class CancelTask(command.Command):
    """Have tasks stop and undo what they did."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("tasks", metavar="<task>", nargs="+", help="Task(s) to cancel (ID)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Cancel them."""
        each_of(parsed_args.tasks, "cancelled", client_of(self.app).cancel_task)
