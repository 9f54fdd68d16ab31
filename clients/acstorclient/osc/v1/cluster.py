"""``openstack acstor ring show`` and ``decision list``, for administrators."""

import argparse
import itertools

from osc_lib.command import command

from acstorclient.osc.columns import Lines, Row, Table, fields, row, rows
from acstorclient.osc.command import client_of
from acstorclient.osc.listing import add_listing, listing_query

RING = fields("generation", "term", "arcs", arcs=Lines)
"""Columns of the ring."""
DECISIONS = (
    ("ID", "id", None),
    ("Created At", "created_at", None),
    ("Term", "term", None),
    ("Generation", "generation", None),
    ("Result", "result", None),
    ("Reasons", "reasons", Lines),
)
"""Columns of the decisions."""


class ShowRing(command.ShowOne):
    """Show the ring in force (admin only)."""

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        del parsed_args
        return row(client_of(self.app).get_ring(), RING)


class ListDecisions(command.Lister):
    """List decisions of the policy service with their reasons (admin only)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", metavar="<host>", help="Only those that concern this host")
        add_listing(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        query = {**listing_query(parsed_args), "host": parsed_args.host}
        found = client_of(self.app).decisions(**query)
        return rows(itertools.islice(found, parsed_args.max_items), DECISIONS)
