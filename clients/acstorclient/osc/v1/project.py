"""``openstack acstor defaults set|show`` and ``usage show``."""

import argparse
from typing import Any

from osc_lib.command import command

from acstorclient.osc.columns import Fields, Lines, Row, Size, fields, row
from acstorclient.osc.command import client_of
from acstorclient.osc.retention import add_keep, keep_of

DEFAULTS = fields("version_on", "version_keep", "on_delete", version_on=Lines, version_keep=Fields)
"""Columns of the defaults."""
EVENTS = ("shutdown", "resize", "rebuild", "quota")
"""Events of a server at which a version can be taken; quota: its host has no more room."""
NO_EVENT = "none"
"""Argument in place of all events."""


class ShowDefaults(command.ShowOne):
    """Show the project's rules for servers and volumes that say nothing themselves."""

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        del parsed_args
        return row(client_of(self.app).get_defaults(), DEFAULTS)


class SetDefaults(command.Command):
    """Change the project's rules for servers and volumes that say nothing themselves.

    Needs the role manager. With any --keep option, those that are not given no longer count.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--version-on",
            metavar="<event>",
            dest="events",
            action="append",
            choices=[*EVENTS, NO_EVENT],
            help="Take a version before this event: shutdown, resize, rebuild, or quota, when its "
            "host has no more room (repeat option for several); none: before none",
        )
        on_delete = parser.add_mutually_exclusive_group()
        on_delete.add_argument(
            "--on-delete",
            action="store_true",
            default=None,
            help="Leave a version of each server that is deleted",
        )
        on_delete.add_argument(
            "--no-on-delete", dest="on_delete", action="store_false", help="Leave none"
        )
        add_keep(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change them."""
        changes: dict[str, Any] = {}
        if parsed_args.events:
            changes["version_on"] = [each for each in parsed_args.events if each != NO_EVENT]
        if keep := keep_of(parsed_args):
            changes["version_keep"] = keep
        if parsed_args.on_delete is not None:
            changes["on_delete"] = parsed_args.on_delete
        if changes:
            client_of(self.app).update_defaults(**changes)


class ShowUsage(command.ShowOne):
    """Show how many versions the project has, their bytes, and its limits."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--project", metavar="<project-id>", help="Project (admin only)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        found = client_of(self.app).get_usage(project_id=parsed_args.project)
        used = {
            name: Size(value) if name.endswith("_bytes") else value
            for name, value in found.usage.items()
        }
        limits = {f"limit_{name}": value for name, value in found.limits.items()}
        shown = {**used, **limits}
        return tuple(shown), tuple(shown.values())
