"""``openstack acstor version restore``."""

import argparse

from osc_lib.command import command

from acstorclient.osc import names
from acstorclient.osc.columns import Row
from acstorclient.osc.command import add_wait, client_of, connection_of, settle, task_row
from acstorclient.v1.restore import RestoreMethod


class RestoreVersion(command.ShowOne):
    """Put a version back into its server or volume.

    The present disk becomes a version first, unless --discard-current is given.
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
            help="auto: least bytes moved, nothing lost (default); rebuild: by Nova, UEFI "
            "variables are lost; in-place: the disk is exchanged below the stopped server",
        )
        parser.add_argument(
            "--discard-current",
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
        subject = (
            {"group_id": version.group_id} if parsed_args.group else {"version_id": version.id}
        )
        target = {"server_id": server} if server else {"volume_id": volume}
        task = client.create_restore(
            **subject,
            **target,
            method=parsed_args.method.replace("-", "_"),
            keep_current=not parsed_args.discard_current,
        )
        return task_row(settle(client, task, parsed_args.wait))
