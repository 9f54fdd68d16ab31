"""``openstack acstor origin list|show|drain|keep``, for administrators."""

import argparse

from osc_lib.command import command

from acstorclient.osc.columns import Row, Size, Table, fields, row, rows
from acstorclient.osc.command import client_of

SHOWN = fields(
    "name",
    "state",
    "is_home",
    "is_reachable",
    "owed_bytes",
    "sole_bytes",
    "refs_behind",
    "refs_age_seconds",
    "problem",
    "seen_at",
    owed_bytes=Size,
    sole_bytes=Size,
)
"""Columns of one member."""
LISTED = (
    ("Name", "name", None),
    ("State", "state", None),
    ("Home", "is_home", None),
    ("Reachable", "is_reachable", None),
    ("Lacks", "owed_bytes", Size),
    ("Alone Has", "sole_bytes", Size),
    ("Problem", "problem", None),
    ("Seen At", "seen_at", None),
)
"""Columns of a list."""


class ListMembers(command.Lister):
    """List the stores that the origin is in (admin only).

    Lacks: bytes of images that a store shall have and has not yet. Alone has: bytes that would be
    lost with it. Nothing is listed where the origin is one store.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        del parsed_args
        return rows(client_of(self.app).origin_members(), LISTED)


class _MemberCommand(command.Command):
    """Base of those that name one member."""

    is_draining: bool

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_member(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change it."""
        client_of(self.app).update_origin_member(parsed_args.member, draining=self.is_draining)


class ShowMember(command.ShowOne):
    """Show one store of the origin (admin only)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_member(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        return row(client_of(self.app).get_origin_member(parsed_args.member), SHOWN)


class DrainMember(_MemberCommand):
    """Have a store of the origin get nothing new (admin only).

    What it alone has is copied to the others. 'acstor origin remove' on a controller takes it away
    once that is done.
    """

    is_draining = True


class KeepMember(_MemberCommand):
    """Have a store of the origin that is drained be in use again (admin only)."""

    is_draining = False


def _with_member(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("member", metavar="<member>", help="Store of the origin (name)")
    return parser
