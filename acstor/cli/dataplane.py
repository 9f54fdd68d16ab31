"""``acstor dataplane ...`` and ``acstor ledger ...``: the data plane of this host."""

import argparse
import logging
from typing import Any

from cliff import command, lister, show

from acstor import untrusted_json
from acstor.cli import deployment
from acstor.cli.columns import Fields, Size
from acstor.control import protocol
from acstor.control.client import AdminClient
from acstor.repository.layout import canonical_image_id

LOG = logging.getLogger(__name__)

_LEDGER_CAPACITY = 50_000
_LEDGER_COLUMNS = {
    "chunk": {
        "At us": "at_us",
        "Chunk": "chunk",
        "Offset": "offset",
        "Length": "length",
        "Tier": "tier",
        "Wait us": "wait_us",
        "Source": "source",
    },
    "read": {
        "At us": "at_us",
        "Offset": "offset",
        "Length": "length",
        "Think us": "think_us",
        "Wait us": "wait_us",
    },
}
"""Per kind of record: column, key of the record."""


def _add_socket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket", metavar="PATH", help="admin socket, instead of [dataplane] admin_socket"
    )


def _client(app: Any, parsed_args: argparse.Namespace) -> AdminClient:
    return AdminClient(parsed_args.socket or deployment.configuration(app).dataplane.admin_socket)


class ShowStatus(show.ShowOne):
    """Show what the data plane of this host does: process, store, reads, tiers."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        _add_socket(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Return the fields."""
        status: dict[str, Any] = _client(self.app, parsed_args).call("status")
        values = (
            Fields(value) if isinstance(value, dict | list) else value for value in status.values()
        )
        return tuple(status), tuple(values)


class ListAttached(lister.Lister):
    """List the images that the data plane of this host offers."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        _add_socket(parser)
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
            for image in _client(self.app, parsed_args).call("image.list")
        ]
        return ("Image", "Size", "Pinned", "Open handles", "Hidden", "Manifest"), rows


class ListVolumes(lister.Lister):
    """List the volumes that are open on this host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        _add_socket(parser)
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
            for volume in _client(self.app, parsed_args).call("volume.list")
        ]
        columns = ("Volume", "State", "Epoch", "Size", "Not pushed", "Clients", "Waiting", "Error")
        return columns, rows


class PrintMetrics(command.Command):
    """Print all metrics of the data plane of this host (OpenMetrics)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        _add_socket(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print them."""
        self.app.stdout.write(_client(self.app, parsed_args).call("metrics"))


class _OfImage(command.Command):
    """Takes an image of this host's data plane."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take image and socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("image", help="id of the image (a UUID)")
        _add_socket(parser)
        return parser


class StartLedger(_OfImage):
    """Record the next reads of an image on this host: which chunk, which tier, how long.

    Start it before the guest boots, look with 'acstor ledger show' afterwards.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the capacity too."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--capacity",
            type=int,
            default=_LEDGER_CAPACITY,
            metavar="RECORDS",
            help=f"records to keep, at most {protocol.LEDGER_ENTRIES_MAX} (default: %(default)s)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Start it."""
        image = canonical_image_id(parsed_args.image)
        _client(self.app, parsed_args).call(
            "ledger.start", image=image, capacity=parsed_args.capacity
        )


class StopLedger(_OfImage):
    """Stop recording the reads of an image, and forget them."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Stop it."""
        image = canonical_image_id(parsed_args.image)
        _client(self.app, parsed_args).call("ledger.stop", image=image)


class ShowLedger(_OfImage, lister.Lister):
    """Show what was recorded of an image, oldest first: each chunk, or with --reads each read.

    'Wait us' is how long the guest waited for it; 'Think us' how long the guest did nothing
    before the read.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take what to show too."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--reads", action="store_true", help="show the guest's reads instead of the chunks"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table."""
        image = canonical_image_id(parsed_args.image)
        text = _client(self.app, parsed_args).call("ledger.get", image=image)
        kind = "read" if parsed_args.reads else "chunk"
        columns = _LEDGER_COLUMNS[kind]
        rows = []
        for line in text.splitlines():
            record = untrusted_json.load(line, "a line of the ledger")
            if record.get("kind") == kind:
                rows.append(tuple(record.get(key) for key in columns.values()))
            elif record.get("kind") == "lost":
                LOG.warning("%s older records did not fit: use --capacity", record.get("records"))
        return tuple(columns), rows
