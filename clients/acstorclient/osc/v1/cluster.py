"""``openstack acstor ring show`` and ``decision list``, for administrators."""

import argparse

from osc_lib.command import command

from acstorclient.osc.columns import Lines, Row, Table, fields, row, rows
from acstorclient.osc.command import client_of

RING = fields("generation", "term", "arcs", arcs=Lines)
"""Columns of the ring."""
DECISIONS = (
    ("ID", "id", None),
    ("Created At", "created_at", None),
    ("Policy", "policy", None),
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
    """List the decisions of the policy service, with their reasons (admin only)."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        del parsed_args
        return rows(client_of(self.app).decisions(), DECISIONS)
