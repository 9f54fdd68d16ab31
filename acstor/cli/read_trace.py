"""Commands on what one boot reads of an image: ``acstor trace ...``.

The data plane's operations are called ``ledger.*``, as in releases that called it so.
"""

import argparse
import logging
from typing import Any

from cliff import command, lister

from acstor import untrusted_json
from acstor.cli import dataplane
from acstor.control import protocol
from acstor.repository.layout import canonical_image_id

LOG = logging.getLogger(__name__)

_TRACE_CAPACITY = 50_000
_TRACE_COLUMNS = {
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


class _OfImage(command.Command):
    """Takes an image of this host's data plane."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take image and socket."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("image", help="id of the image (a UUID)")
        dataplane.add_socket(parser)
        return parser


class StartTrace(_OfImage):
    """Record the next reads of an image on this host: which chunk, which tier, how long.

    Start it before the guest boots, look with 'acstor trace show' afterwards.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the capacity too."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--capacity",
            type=int,
            default=_TRACE_CAPACITY,
            metavar="RECORDS",
            help=f"records to keep, at most {protocol.TRACE_ENTRIES_MAX} (default: %(default)s)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Start it."""
        image = canonical_image_id(parsed_args.image)
        dataplane.open_client(self.app, parsed_args).call(
            "ledger.start", image=image, capacity=parsed_args.capacity
        )


class StopTrace(_OfImage):
    """Stop recording the reads of an image, and forget them."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Stop it."""
        image = canonical_image_id(parsed_args.image)
        dataplane.open_client(self.app, parsed_args).call("ledger.stop", image=image)


class ShowTrace(_OfImage, lister.Lister):
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
        text = dataplane.open_client(self.app, parsed_args).call("ledger.get", image=image)
        kind = "read" if parsed_args.reads else "chunk"
        columns = _TRACE_COLUMNS[kind]
        rows = []
        for line in text.splitlines():
            record = untrusted_json.load(line, "a line of the trace")
            if record.get("kind") == kind:
                rows.append(tuple(record.get(key) for key in columns.values()))
            elif record.get("kind") == "lost":
                LOG.warning("%s older records did not fit: use --capacity", record.get("records"))
        return tuple(columns), rows
