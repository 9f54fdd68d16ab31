"""``openstack acstor image preload create|delete|list``."""

import argparse

from osc_lib.command import command

from acstorclient.osc import names
from acstorclient.osc.columns import Row, Share, Table, rows
from acstorclient.osc.command import add_wait, client_of, connection_of, each_of, settle, task_row

ALL_HOSTS = "all"
"""Hosts of a preload where none are named."""
LISTED = (
    ("ID", "id", None),
    ("State", "state", None),
    ("Hosts", "hosts", lambda hosts: hosts if isinstance(hosts, str) else ", ".join(hosts or ())),
    ("MiB/s", "rate_mib", None),
    ("Progress", "progress", Share),
    ("Created At", "created_at", None),
)
"""Columns of a list."""


class CreatePreload(command.ShowOne):
    """Bring an image to hosts before anybody boots it (admin only)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_image(super().get_parser(prog_name))
        parser.add_argument(
            "--host",
            metavar="<host>",
            dest="hosts",
            action="append",
            help="Host (repeat option for several; default: all)",
        )
        parser.add_argument(
            "--rate", metavar="<MiB/s>", type=int, help="Limit of each host (default: the hosts')"
        )
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Begin, and return the task."""
        client = client_of(self.app)
        image = names.image_id(connection_of(self.app), parsed_args.image)
        task = client.create_preload(
            image, hosts=parsed_args.hosts or ALL_HOSTS, rate_mib=parsed_args.rate
        )
        return task_row(settle(client, task, parsed_args.wait))


class ListPreloads(command.Lister):
    """List the preloads of an image (admin only)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_image(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        image = names.image_id(connection_of(self.app), parsed_args.image)
        return rows(client_of(self.app).preloads(image), LISTED)


class DeletePreload(command.Command):
    """Stop preloads of an image (admin only). Chunks that have come stay while there is room."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_image(super().get_parser(prog_name))
        parser.add_argument(
            "preloads", metavar="<preload>", nargs="+", help="Preload(s) to stop (ID)"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Stop them."""
        client = client_of(self.app)
        image = names.image_id(connection_of(self.app), parsed_args.image)
        each_of(parsed_args.preloads, "stopped", lambda one: client.delete_preload(image, one))


def _with_image(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("image", metavar="<image>", help="Image (name or ID)")
    return parser
