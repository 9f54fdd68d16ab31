"""``openstack acstor schedule preview`` and ``schedule target add|remove``."""

import argparse
from collections.abc import Iterator
from typing import Any

from osc_lib.command import command

from acstorclient.osc import names
from acstorclient.osc.columns import Table
from acstorclient.osc.command import client_of, connection_of
from acstorclient.v1.schedule import SchedulePreview


class AddTarget(command.Command):
    """Have a schedule take versions of a server or volume, too."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_target(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Add it."""
        client = client_of(self.app)
        schedule = client.find_schedule(parsed_args.schedule)
        client.add_target(schedule, *_target(connection_of(self.app), parsed_args))


class RemoveTarget(command.Command):
    """Have a schedule take no more versions of a server or volume. Those that are there stay."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_target(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        client = client_of(self.app)
        schedule = client.find_schedule(parsed_args.schedule)
        client.remove_target(schedule, _target(connection_of(self.app), parsed_args)[0])


class PreviewSchedule(command.Lister):
    """Show the next runs of a schedule, and of each version why it stays or when it goes."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("schedule", metavar="<schedule>", help="Schedule (name or ID)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table: runs, then versions."""
        client = client_of(self.app)
        preview = client.preview_schedule(client.find_schedule(parsed_args.schedule))
        return ("Time", "Target ID", "Version ID", "Fate", "Reasons"), _lines(preview)


def _with_target(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("schedule", metavar="<schedule>", help="Schedule (name or ID)")
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--server", metavar="<server>", help="Server (name or ID)")
    whose.add_argument("--volume", metavar="<volume>", help="Volume (name or ID)")
    return parser


def _target(connection: Any, parsed_args: argparse.Namespace) -> tuple[str, str]:
    """Return id and kind of a target."""
    if parsed_args.server:
        return names.server_id(connection, parsed_args.server), "server"
    return names.volume_id(connection, parsed_args.volume), "volume"


def _lines(preview: SchedulePreview) -> Iterator[tuple[str, ...]]:
    for run in preview.runs or []:
        yield run["starts_at"], run["target_id"], "", "to be taken", ""
    for each in preview.versions or []:
        removed = each.get("removed_after")
        fate = f"goes after {removed}" if removed else "stays"
        reasons = ", ".join(each.get("reasons") or [])
        yield (
            each["created_at"],
            each["target_id"],
            each["id"],
            fate if each["kept"] else "goes now",
            reasons,
        )
