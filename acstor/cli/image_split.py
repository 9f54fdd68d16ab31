"""``acstor image split``: an image whose paths have partitions named for their durability."""

import argparse
import itertools
from typing import Any

from cliff import show

from acstor import exception
from acstor.cli import sizes
from acstor.cli.columns import Fields, Names, Size
from acstor.repository import progress
from acstor.repository.volumes.durability import format_regions
from acstor.splitting import splitting, table
from acstor.splitting.plan import Plan

TOOL_TIMEOUT_S = 60.0
"""Seconds that qemu-img may take to describe the input."""
Row = tuple[tuple[str, ...], tuple[Any, ...]]


class SplitImage(show.ShowOne):
    """Make an image whose directories are on partitions that are named for a durability class.

    The regions that are shown belong into the extra spec acstor:regions of the volume type. The
    input is not changed, and needs no origin; nothing of it is mounted.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("input", metavar="INPUT", help="the image file")
        parser.add_argument("output", metavar="OUTPUT", help="the file to be made")
        parser.add_argument(
            "--path",
            metavar="PATH=CLASS[@SECONDS][,SIZE]",
            action="append",
            default=[],
            help="a directory and its durability, such as /var/cache=none,2GiB; may be repeated",
        )
        parser.add_argument("--table", metavar="FILE", help="directories and durabilities, TOML")
        parser.add_argument(
            "--disk-format",
            default="raw",
            choices=splitting.OUTPUT_FORMATS,
            help="what the input is declared to be; its content must agree (raw)",
        )
        parser.add_argument(
            "--output-format",
            choices=splitting.OUTPUT_FORMATS,
            help="what the output is to be (as the input)",
        )
        parser.add_argument(
            "--root-partition",
            metavar="NUMBER",
            type=int,
            help="partition with the root file system (the one that has /etc)",
        )
        parser.add_argument(
            "--root-size",
            metavar="SIZE",
            type=sizes.size,
            help="bytes that the root's partition is to grow to: what is behind it now, it cannot "
            "grow into at the first boot",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would be done, and write nothing"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Split, and return what was made."""
        rules = itertools.chain(
            table.load(parsed_args.table) if parsed_args.table else (),
            map(table.parse_option, parsed_args.path),
        )
        request = splitting.Request(
            input_path=parsed_args.input,
            input_format=parsed_args.disk_format,
            output_path=parsed_args.output,
            output_format=parsed_args.output_format or parsed_args.disk_format,
            rules=table.combine(rules),
            root_partition=parsed_args.root_partition,
            root_size_bytes=parsed_args.root_size,
            tool_timeout=TOOL_TIMEOUT_S,
        )
        if parsed_args.dry_run:
            return _row(splitting.describe(request), request)
        try:
            with progress.for_stream(self.app.stderr) as shown:
                plan = splitting.split(request, shown)
        except KeyboardInterrupt:
            raise exception.UnavailableError(
                "stopped; no output was made", hint="run it again"
            ) from None
        return _row(plan, request)


def _row(plan: Plan, request: splitting.Request) -> Row:
    fields = {
        "output": request.output_path,
        "format": request.output_format,
        "size": Size(plan.disk_size_bytes),
        "root_partition": plan.root_number or 1,
        "partitions": Fields(list(splitting.summary(plan))),
        "regions": format_regions(plan.regions),
        "fstab": Names([one.mount.line.decode() for one in plan.partitions]),
        "is_moved_into_table": plan.kind.value == "none",
    }
    return tuple(fields), tuple(fields.values())
