"""``openstack acstor host list|set|show``, for administrators."""

import argparse

from osc_lib.command import command

from acstorclient.osc.columns import Fields, Row, Table, fields, row, rows
from acstorclient.osc.command import client_of

SHOWN = fields(
    "name", "state", "is_draining", "topology", "store", "release", "seen_at", store=Fields
)
"""Columns of one host."""
LISTED = (
    ("Name", "name", None),
    ("State", "state", None),
    ("Draining", "is_draining", None),
    ("Release", "release", None),
    ("Seen At", "seen_at", None),
)
"""Columns of a list."""


class ListHosts(command.Lister):
    """List the hosts of the cluster (admin only)."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        del parsed_args
        return rows(client_of(self.app).hosts(), LISTED)


class ShowHost(command.ShowOne):
    """Show one host (admin only)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_host(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        return row(client_of(self.app).get_host(parsed_args.host), SHOWN)


class SetHost(command.Command):
    """Have a host leave the ring, or join it again (admin only)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_host(super().get_parser(prog_name))
        draining = parser.add_mutually_exclusive_group(required=True)
        draining.add_argument(
            "--drain", dest="is_draining", action="store_true", help="Give its share to the others"
        )
        draining.add_argument(
            "--undrain", dest="is_draining", action="store_false", help="Take a share again"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change it."""
        client_of(self.app).update_host(parsed_args.host, draining=parsed_args.is_draining)


def _with_host(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("host", metavar="<host>", help="Host (name)")
    return parser
