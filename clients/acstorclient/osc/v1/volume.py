"""``openstack acstor volume show`` and ``volume durability set``."""

import argparse

from osc_lib.command import command

from acstorclient.osc import names
from acstorclient.osc.columns import Fields, Row, Size, fields, row
from acstorclient.osc.command import client_of, connection_of
from acstorclient.v1.volume import Durability

SHOWN = fields(
    "id",
    "name",
    "durability",
    "interval_seconds",
    "recovery_point",
    "dirty_bytes",
    "size_bytes",
    "host",
    recovery_point=Fields,
    dirty_bytes=Size,
    size_bytes=Size,
)
"""Columns of one volume."""


class ShowVolume(command.ShowOne):
    """Show durability and recovery point of a volume."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_volume(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        volume = names.volume_id(connection_of(self.app), parsed_args.volume)
        return row(client_of(self.app).get_volume(volume), SHOWN)


class SetDurability(command.ShowOne):
    """Change the durability of a volume within what its type allows."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_volume(super().get_parser(prog_name))
        parser.add_argument(
            "durability",
            metavar="<durability>",
            choices=[str(each) for each in Durability],
            help="write-through: written is in the origin; write-back: pushed there every "
            "interval; none: it never leaves the host",
        )
        parser.add_argument(
            "--interval", metavar="<seconds>", type=int, help="Interval of write-back"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Change it."""
        volume = names.volume_id(connection_of(self.app), parsed_args.volume)
        changes = {"durability": parsed_args.durability}
        if parsed_args.interval is not None:
            changes["interval_seconds"] = parsed_args.interval
        return row(client_of(self.app).update_volume(volume, **changes), SHOWN)


def _with_volume(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("volume", metavar="<volume>", help="Volume (name or ID)")
    return parser
