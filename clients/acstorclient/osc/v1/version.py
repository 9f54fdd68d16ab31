"""``openstack acstor version create|delete|list|set|show``."""

import argparse
import itertools
from typing import Any

from osc_lib.cli import parseractions
from osc_lib.command import command

from acstorclient.osc import names
from acstorclient.osc.columns import Fields, Row, Size, Table, fields, row, rows
from acstorclient.osc.command import (
    add_wait,
    client_of,
    connection_of,
    each_of,
    moment,
    settle,
    task_row,
    tell,
)
from acstorclient.osc.listing import add_listing, listing_query
from acstorclient.v1.version import Consistency

SHOWN = fields(
    "id",
    "name",
    "group_id",
    "server_id",
    "volume_id",
    "disk",
    "state",
    "is_restorable",
    "consistency",
    "trigger",
    "parent_id",
    "base_image_id",
    "size_bytes",
    "unique_bytes",
    "shared_bytes",
    "created_at",
    "expires_at",
    "lock",
    "has_nvram",
    "project_id",
    "metadata",
    size_bytes=Size,
    unique_bytes=Size,
    shared_bytes=Size,
    lock=Fields,
    metadata=Fields,
)
"""Columns of one version."""

LISTED = (
    ("ID", "id", None),
    ("Name", "name", None),
    ("Created At", "created_at", None),
    ("Disk", "disk", None),
    ("State", "state", None),
    ("Restorable", "is_restorable", None),
    ("Consistency", "consistency", None),
    ("Locked", "lock", bool),
    ("Size", "size_bytes", Size),
    ("Unique", "unique_bytes", Size),
)
"""Columns of a list."""

LISTED_LONG = (
    ("Server ID", "server_id", None),
    ("Volume ID", "volume_id", None),
    ("Group ID", "group_id", None),
    ("Trigger", "trigger", None),
    ("Shared", "shared_bytes", Size),
    ("Expires At", "expires_at", None),
)
"""Columns of a long list, after those."""


class CreateVersion(command.ShowOne):
    """Take a version of each disk of a server, or of a volume."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", help="Name of the new versions")
        whose = parser.add_mutually_exclusive_group(required=True)
        whose.add_argument("--server", metavar="<server>", help="Server (name or ID)")
        whose.add_argument("--volume", metavar="<volume>", help="Volume (name or ID)")
        parser.add_argument(
            "--consistency",
            choices=[str(each) for each in Consistency],
            default=str(Consistency.BEST),
            help="crash: as after a power cut; fs: file systems frozen by the guest agent, or no "
            "version; best: fs where the agent answers (default)",
        )
        parser.add_argument(
            "--expires", metavar="<time>", type=moment, help="Time at which it may be deleted"
        )
        _add_properties(parser)
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Begin, and return the task."""
        client, connection = client_of(self.app), connection_of(self.app)
        target = (
            {"server_id": names.server_id(connection, parsed_args.server)}
            if parsed_args.server
            else {"volume_id": names.volume_id(connection, parsed_args.volume)}
        )
        task = client.create_version(
            **target,
            name=parsed_args.name,
            consistency=parsed_args.consistency,
            expires_at=parsed_args.expires,
            metadata=parsed_args.properties or None,
        )
        return task_row(settle(client, task, parsed_args.wait))


class ListVersions(command.Lister):
    """List versions, the newest first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--name", metavar="<name>", help="Only those of this name")
        parser.add_argument("--server", metavar="<server>", help="Only of this server (name or ID)")
        parser.add_argument("--volume", metavar="<volume>", help="Only of this volume (name or ID)")
        parser.add_argument("--group", metavar="<group>", help="Only of one moment (group ID)")
        parser.add_argument("--state", metavar="<state>", help="Only in this state")
        parser.add_argument("--trigger", metavar="<trigger>", help="Only of this cause")
        parser.add_argument(
            "--consistency", choices=["crash", "fs"], help="Only of this consistency"
        )
        locked = parser.add_mutually_exclusive_group()
        locked.add_argument(
            "--locked", dest="locked", action="store_true", default=None, help="Only locked ones"
        )
        locked.add_argument(
            "--unlocked", dest="locked", action="store_false", help="Only those without a lock"
        )
        parser.add_argument(
            "--created-after", metavar="<time>", type=moment, help="Only from this time on"
        )
        parser.add_argument(
            "--created-before", metavar="<time>", type=moment, help="Only before this time"
        )
        parser.add_argument("--long", action="store_true", help="List additional fields")
        add_listing(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        client, connection = client_of(self.app), connection_of(self.app)
        server, volume = parsed_args.server, parsed_args.volume
        query: dict[str, Any] = {
            "name": parsed_args.name,
            "server_id": names.server_id(connection, server) if server else None,
            "volume_id": names.volume_id(connection, volume) if volume else None,
            "group_id": parsed_args.group,
            "state": parsed_args.state,
            "trigger": parsed_args.trigger,
            "consistency": parsed_args.consistency,
            "locked": parsed_args.locked,
            "created_at": _period(parsed_args.created_after, parsed_args.created_before),
        }
        found = client.versions(**query, **listing_query(parsed_args))
        shown = (*LISTED, *LISTED_LONG) if parsed_args.long else LISTED
        return rows(itertools.islice(found, parsed_args.max_items), shown)


class ShowVersion(command.ShowOne):
    """Show one version."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_version(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        return row(client_of(self.app).find_version(parsed_args.version), SHOWN)


class SetVersion(command.Command):
    """Change name, expiry or properties of a version."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_version(super().get_parser(prog_name))
        parser.add_argument("--name", metavar="<name>", help="New name")
        expiry = parser.add_mutually_exclusive_group()
        expiry.add_argument(
            "--expires", metavar="<time>", type=moment, help="Time at which it may be deleted"
        )
        expiry.add_argument("--no-expiry", action="store_true", help="Keep it until it is deleted")
        _add_properties(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change it."""
        client = client_of(self.app)
        version = client.find_version(parsed_args.version)
        changes: dict[str, Any] = {}
        if parsed_args.name is not None:
            changes["name"] = parsed_args.name
        if parsed_args.expires is not None or parsed_args.no_expiry:
            changes["expires_at"] = parsed_args.expires
        if parsed_args.properties:
            changes["metadata"] = {**(version.metadata or {}), **parsed_args.properties}
        if changes:
            client.update_version(version, **changes)


class DeleteVersion(command.Command):
    """Delete versions. Deleting is not erasing: see the user guide."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "versions", metavar="<version>", nargs="+", help="Version(s) to delete (name or ID)"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete them."""
        each_of(parsed_args.versions, "deleted", self._delete)

    def _delete(self, name_or_id: str) -> None:
        client = client_of(self.app)
        if not client.delete_version(client.find_version(name_or_id)):
            tell(f"{name_or_id} is in use and goes with its last use")


def _with_version(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("version", metavar="<version>", help="Version (name or ID)")
    return parser


def _add_properties(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--property",
        metavar="<key=value>",
        dest="properties",
        action=parseractions.KeyValueAction,
        help="Property to set (repeat option to set multiple properties)",
    )


def _period(begin: str | None, end: str | None) -> list[str] | None:
    """Return the filter of a time from ``begin`` on and before ``end``."""
    found = [f"gte:{begin}"] if begin else []
    return ([*found, f"lt:{end}"] if end else found) or None
