"""``openstack acstor schedule create|delete|list|set|show``."""

import argparse
import itertools
from typing import Any

from osc_lib.command import command

from acstorclient.osc.columns import Fields, Lines, Row, Table, fields, row, rows
from acstorclient.osc.command import client_of, each_of
from acstorclient.osc.listing import add_listing, listing_query
from acstorclient.osc.retention import add_keep, keep_of
from acstorclient.v1.schedule import Every

SHOWN = fields(
    "id",
    "name",
    "is_enabled",
    "every",
    "on",
    "at",
    "timezone",
    "window_minutes",
    "consistency",
    "keep",
    "targets",
    "next_run_at",
    "created_at",
    "project_id",
    keep=Fields,
    targets=Lines,
)
"""Columns of one schedule."""
LISTED = (
    ("ID", "id", None),
    ("Name", "name", None),
    ("Enabled", "is_enabled", None),
    ("Every", "every", None),
    ("On", "on", None),
    ("At", "at", None),
    ("Time Zone", "timezone", None),
    ("Keep", "keep", Fields),
    ("Targets", "targets", lambda targets: len(targets or ())),
    ("Next Run At", "next_run_at", None),
)
"""Columns of a list."""


class CreateSchedule(command.ShowOne):
    """Create a schedule. It takes versions of nothing before 'schedule target add'."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", help="New schedule name")
        _add_times(parser, is_new=True)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Create it."""
        given = {"name": parsed_args.name, **_given(parsed_args)}
        return row(client_of(self.app).create_schedule(**given), SHOWN)


class SetSchedule(command.Command):
    """Change a schedule. With any --keep option, those that are not given no longer count."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_schedule(super().get_parser(prog_name))
        parser.add_argument("--name", metavar="<name>", help="New name")
        _add_times(parser, is_new=False)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change it."""
        client = client_of(self.app)
        changes = _given(parsed_args)
        if parsed_args.name is not None:
            changes["name"] = parsed_args.name
        if changes:
            client.update_schedule(client.find_schedule(parsed_args.schedule), **changes)


class ListSchedules(command.Lister):
    """List schedules."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        add_listing(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        found = client_of(self.app).schedules(**listing_query(parsed_args))
        return rows(itertools.islice(found, parsed_args.max_items), LISTED)


class ShowSchedule(command.ShowOne):
    """Show one schedule."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_schedule(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        return row(client_of(self.app).find_schedule(parsed_args.schedule), SHOWN)


class DeleteSchedule(command.Command):
    """Delete schedules. The versions that they made stay."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "schedules", metavar="<schedule>", nargs="+", help="Schedule(s) to delete (name or ID)"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete them."""
        client = client_of(self.app)
        each_of(
            parsed_args.schedules,
            "deleted",
            lambda name: client.delete_schedule(client.find_schedule(name)),
        )


def _with_schedule(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("schedule", metavar="<schedule>", help="Schedule (name or ID)")
    return parser


def _add_times(parser: argparse.ArgumentParser, *, is_new: bool) -> None:
    parser.add_argument(
        "--every",
        choices=[str(each) for each in Every],
        default=str(Every.DAY) if is_new else None,
        help="Distance of its runs" + (" (default: day)" if is_new else ""),
    )
    parser.add_argument(
        "--at", metavar="<hh:mm>", help="Local time of a run; of an hourly one the minutes count"
    )
    parser.add_argument(
        "--on",
        metavar="<day>",
        type=int,
        help="Day of a weekly run, 1 (Monday) to 7, or of a monthly one, 1 to 31",
    )
    parser.add_argument(
        "--time-zone", metavar="<zone>", help="Zone of the times, such as Europe/Berlin"
    )
    parser.add_argument(
        "--window", metavar="<minutes>", type=int, help="Minutes over which targets are spread"
    )
    parser.add_argument(
        "--consistency", choices=["best", "crash", "fs"], help="Consistency of its versions"
    )
    enabled = parser.add_mutually_exclusive_group()
    enabled.add_argument(
        "--enable", dest="is_enabled", action="store_true", default=None, help="Have it run"
    )
    enabled.add_argument("--disable", dest="is_enabled", action="store_false", help="Have it rest")
    add_keep(parser)


def _given(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return what the arguments say, and nothing that they do not."""
    wanted = {
        "every": parsed_args.every,
        "at": parsed_args.at,
        "on": parsed_args.on,
        "timezone": parsed_args.time_zone,
        "window_minutes": parsed_args.window,
        "consistency": parsed_args.consistency,
        "enabled": parsed_args.is_enabled,
        "keep": keep_of(parsed_args) or None,
    }
    return {name: value for name, value in wanted.items() if value is not None}
