"""``openstack acstor image list|show``."""

import argparse
import itertools
from typing import Any

from osc_lib.command import command

from acstorclient.osc import names
from acstorclient.osc.columns import Fields, Row, Size, Table, fields, row, rows
from acstorclient.osc.command import client_of, connection_of
from acstorclient.osc.listing import add_pages, pages_query

SHOWN = fields("id", "name", "state", "coverage", "size_bytes", coverage=Fields, size_bytes=Size)
"""Columns of one image."""


def _coverage(counts: dict[str, Any] | None) -> str:
    known = counts or {}
    return f"{known.get('hosts_whole', 0)} of {known.get('hosts', 0)}"


LISTED = (
    ("ID", "id", None),
    ("Name", "name", None),
    ("State", "state", None),
    ("Whole On Hosts", "coverage", _coverage),
)
"""Columns of a list."""


class ListImages(command.Lister):
    """List images as the hosts have them."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--name", metavar="<name>", help="Only those of this name")
        add_pages(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        found = client_of(self.app).images(name=parsed_args.name, **pages_query(parsed_args))
        return rows(itertools.islice(found, parsed_args.max_items), LISTED)


class ShowImage(command.ShowOne):
    """Show how many hosts have an image, and how many of them whole."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("image", metavar="<image>", help="Image (name or ID)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        image = names.image_id(connection_of(self.app), parsed_args.image)
        return row(client_of(self.app).get_image(image), SHOWN)
