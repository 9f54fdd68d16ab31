"""Commands on the data plane of this host: ``acstor dataplane ...``."""

import argparse
import logging
from typing import Any

from cliff import command, lister, show

from acstor.cli import deployment
from acstor.cli.columns import Fields, Size
from acstor.control.client import AdminClient

LOG = logging.getLogger(__name__)


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Take the path of an admin socket."""
    parser.add_argument(
        "--socket", metavar="PATH", help="admin socket, instead of [dataplane] admin_socket"
    )


def open_client(app: Any, parsed_args: argparse.Namespace) -> AdminClient:
    """Return a client of the admin socket that was named, or configured."""
    return AdminClient(parsed_args.socket or deployment.configuration(app).dataplane.admin_socket)


class ShowStatus(show.ShowOne):
    """Show what the data plane of this host does: process, store, reads, tiers."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_socket(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Return the fields."""
        status: dict[str, Any] = open_client(self.app, parsed_args).call("status")
        values = (
            Fields(value) if isinstance(value, dict | list) else value for value in status.values()
        )
        return tuple(status), tuple(values)


class ListAttached(lister.Lister):
    """List the images that the data plane of this host offers."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_socket(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table."""
        rows = [
            (
                image["id"],
                Size(image["size_bytes"]),
                Size(image["pinned_bytes"]),
                image["open_handles"],
                image["hidden"],
                # An older data plane has all of them in memory.
                image.get("manifest_state", "in-memory"),
            )
            for image in open_client(self.app, parsed_args).call("image.list")
        ]
        return ("Image", "Size", "Pinned", "Open handles", "Hidden", "Manifest"), rows


class ListVolumes(lister.Lister):
    """List the volumes that are open on this host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_socket(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table; of a volume that is not opened yet only what is known."""
        rows = [
            (
                volume["volume"],
                volume["state"],
                volume.get("epoch"),
                Size(volume["size_bytes"]) if "size_bytes" in volume else None,
                Size(volume["dirty_bytes"]) if "dirty_bytes" in volume else None,
                volume.get("clients"),
                volume.get("waiting_requests"),
                volume["error"],
            )
            for volume in open_client(self.app, parsed_args).call("volume.list")
        ]
        columns = ("Volume", "State", "Epoch", "Size", "Not pushed", "Clients", "Waiting", "Error")
        return columns, rows


class PrintMetrics(command.Command):
    """Print all metrics of the data plane of this host (OpenMetrics)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_socket(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print them."""
        self.app.stdout.write(open_client(self.app, parsed_args).call("metrics"))
