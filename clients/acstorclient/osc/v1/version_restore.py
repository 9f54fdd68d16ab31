"""``openstack acstor version restore``."""

import argparse
from collections.abc import Mapping
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from acstorclient.osc import names
from acstorclient.osc.columns import Fields, Lines, Row
from acstorclient.osc.command import add_wait, client_of, connection_of, settle, task_row
from acstorclient.v1.restore import RestoreMethod, RestorePreview


class RestoreVersion(command.ShowOne):
    """Put a version back into its server or volume.

    A server gets its root disk back, or by --group and --disk several of its disks as of one
    moment, all or none; a volume all of it. The present disk becomes a version first, unless
    --discard-current is given; what a running server writes after that is lost.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("version", metavar="<version>", help="Version (name or ID)")
        parser.add_argument(
            "--group",
            action="store_true",
            help="All disks of the same moment, not the version's alone",
        )
        parser.add_argument(
            "--disk",
            dest="disks",
            metavar="<disk>",
            action="append",
            help="Disk of the server to restore as of the same moment, for example vda, as "
            "'version list' has it; may be repeated. Written in place",
        )
        parser.add_argument(
            "--keep-uefi-variables",
            dest="restore_nvram",
            action="store_const",
            const=False,
            help="Leave the UEFI variables of the server as they are; else those of the version "
            "are written with the root disk, in place",
        )
        whose = parser.add_mutually_exclusive_group()
        whose.add_argument(
            "--server", metavar="<server>", help="Server (name or ID; default: the version's own)"
        )
        whose.add_argument(
            "--volume", metavar="<volume>", help="Volume (name or ID; default: the version's own)"
        )
        parser.add_argument(
            "--method",
            choices=[str(each).replace("_", "-") for each in RestoreMethod],
            default=str(RestoreMethod.AUTO),
            help="Of a server. auto: the one that loses nothing and moves fewest bytes (default); "
            "rebuild: by Nova, refused where the server has more than a root disk to lose; "
            "in-place: what the disk has otherwise is written below the stopped server",
        )
        parser.add_argument(
            "--preview",
            action="store_true",
            help="Restore nothing; show of each method what it moves and loses, and which is taken",
        )
        parser.add_argument(
            "--discard-current",
            "--no-keep-current",
            dest="discard_current",
            action="store_true",
            help="Do not make a version of the present disk: its content is lost",
        )
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Begin, and return the task."""
        client, connection = client_of(self.app), connection_of(self.app)
        version = client.find_version(parsed_args.version)
        server, volume = version.server_id, version.volume_id
        if parsed_args.server:
            server, volume = names.server_id(connection, parsed_args.server), None
        elif parsed_args.volume:
            server, volume = None, names.volume_id(connection, parsed_args.volume)
        if parsed_args.preview:
            return _preview(client.preview_restore(version, _required(server, version.id)))
        subject = (
            {"group_id": version.group_id} if parsed_args.group else {"version_id": version.id}
        )
        target = {"server_id": server} if server else {"volume_id": volume}
        task = client.create_restore(
            **subject,
            **target,
            disks=parsed_args.disks,
            restore_nvram=parsed_args.restore_nvram,
            method=parsed_args.method.replace("-", "_"),
            keep_current=not parsed_args.discard_current,
        )
        return task_row(settle(client, task, parsed_args.wait))


def _required(server: str | None, version: str) -> str:
    """Return the server of a preview.

    :raises CommandError: there is none.
    """
    if server is None:
        raise exceptions.CommandError(
            f"Version {version} is of a volume, whose restore destroys nothing but its content\n"
            "Hint: restore it, or name a --server"
        )
    return server


def _preview(preview: RestorePreview) -> Row:
    methods = {str(each["method"]): each for each in preview.methods or []}
    return (
        (
            "version_id",
            "server_id",
            "method",
            "reason",
            "hint",
            "losses",
            "compared_with",
            *methods,
        ),
        (
            preview.version_id,
            preview.server_id,
            preview.method,
            preview.reason,
            preview.hint,
            Lines(preview.losses or []),
            preview.compared_with,
            *(Fields(_without_name(each)) for each in methods.values()),
        ),
    )


def _without_name(method: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in method.items() if name != "method"}
