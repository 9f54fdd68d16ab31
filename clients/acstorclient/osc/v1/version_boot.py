"""``openstack acstor version boot``: an image of a version, then a server with the user's token."""

import argparse
import base64
import pathlib
from collections.abc import Sequence
from typing import Any

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
from osc_lib.cli import parseractions
from osc_lib.command import command

from acstorclient.osc import names
from acstorclient.osc.columns import Row
from acstorclient.osc.command import add_wait, client_of, connection_of
from acstorclient.osc.progress import Progress
from acstorclient.v1.version import Version

USER_DATA_BYTES_MAX = 65535 // 4 * 3
"""Most bytes of user data, that Nova takes in base64."""
SERVER_WAIT_SECONDS = 24 * 3600
"""Longest wait for a server that a user has put no limit to."""


class AppendNic(argparse.Action):
    """Adds a network or port, in the order of the interfaces."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Add one."""
        kind = (option_string or "").removeprefix("--")
        before = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*before, (kind, values)])


class BootVersion(command.ShowOne):
    """Create a server that boots a version.

    The server is created with your token, as 'openstack server create' does it: your quota, your
    keys, your networks.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("version", metavar="<version>", help="Version (name or ID)")
        parser.add_argument("server_name", metavar="<server-name>", help="New server name")
        parser.add_argument(
            "--flavor", metavar="<flavor>", required=True, help="Flavor (name or ID)"
        )
        for kind in ("network", "port"):
            parser.add_argument(
                f"--{kind}",
                metavar=f"<{kind}>",
                dest="nics",
                action=AppendNic,
                help=f"Create a NIC on the server and connect it to {kind} (name or ID; repeat "
                "option to create multiple NICs; default: as Nova allocates)",
            )
        parser.add_argument(
            "--security-group",
            metavar="<security-group>",
            dest="security_groups",
            action="append",
            help="Security group (name or ID; repeat option to set multiple groups)",
        )
        parser.add_argument("--key-name", metavar="<key-name>", help="Keypair to inject")
        parser.add_argument(
            "--user-data", metavar="<user-data>", help="User data file for the metadata server"
        )
        parser.add_argument(
            "--availability-zone", metavar="<zone-name>", help="Availability zone for the server"
        )
        parser.add_argument(
            "--property",
            metavar="<key=value>",
            dest="properties",
            action=parseractions.KeyValueAction,
            help="Property of the server (repeat option to set multiple values)",
        )
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Create it."""
        connection = connection_of(self.app)
        version = client_of(self.app).find_version(parsed_args.version)
        attributes = _attributes(connection, parsed_args)
        attributes["image_id"] = self._image_of(version, parsed_args.wait or 0)
        server = connection.compute.create_server(**attributes)
        if parsed_args.wait is not None:
            server = _wait_for(connection, server, parsed_args.wait or SERVER_WAIT_SECONDS)
        return (
            ("id", "name", "status", "image_id", "version_id", "flavor", "addresses"),
            (
                server.id,
                server.name or parsed_args.server_name,
                server.status,
                attributes["image_id"],
                version.id,
                parsed_args.flavor,
                _addresses(server),
            ),
        )

    def _image_of(self, version: Version, limit: float) -> str:
        """Return the image of a version, when it can be booted."""
        client = client_of(self.app)
        task = client.create_version_image(version)
        with Progress() as progress:
            done = client.wait_for_task(task, seconds=limit, observe=progress.show_task)
        return str(done.outcome["image_id"])


def _attributes(connection: Any, parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return what Nova is asked for, all names resolved; the image is not among it."""
    wanted: dict[str, Any] = {
        "name": parsed_args.server_name,
        "flavor_id": connection.compute.find_flavor(parsed_args.flavor, ignore_missing=False).id,
        "networks": names.nics(connection, parsed_args.nics or []),
        "key_name": parsed_args.key_name,
        "security_groups": [{"name": each} for each in parsed_args.security_groups or []] or None,
        "availability_zone": parsed_args.availability_zone,
        "metadata": parsed_args.properties or None,
        "user_data": _user_data(parsed_args.user_data) if parsed_args.user_data else None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _user_data(path: str) -> str:
    """Return a file as Nova takes user data.

    :raises CommandError: it cannot be read, or is too large.
    """
    try:
        with pathlib.Path(path).open("rb") as file:
            content = file.read(USER_DATA_BYTES_MAX + 1)
    except OSError as error:
        raise exceptions.CommandError(f"Cannot read user data {path}: {error.strerror}") from error
    if len(content) > USER_DATA_BYTES_MAX:
        raise exceptions.CommandError(
            f"User data {path} has more than the {USER_DATA_BYTES_MAX} bytes that Nova takes"
        )
    return base64.b64encode(content).decode()


def _wait_for(connection: Any, server: Any, limit: float) -> Any:
    """Return a server when it is active.

    :raises CommandError: it comes up with an error, or not by then.
    """
    try:
        return connection.compute.wait_for_server(server, wait=limit)
    except sdk_exceptions.ResourceFailure as error:
        fault = (connection.compute.get_server(server.id).fault or {}).get("message", str(error))
        raise exceptions.CommandError(f"Server {server.id} ended in error: {fault}") from error
    except sdk_exceptions.ResourceTimeout as error:
        raise exceptions.CommandError(
            f"Server {server.id} is not active after {limit:g} s; it goes on\n"
            f"Hint: openstack server show {server.id}"
        ) from error


def _addresses(server: Any) -> str:
    """Return the addresses as ``openstack server show`` has them."""
    return "; ".join(
        f"{network}={', '.join(each['addr'] for each in interfaces)}"
        for network, interfaces in (server.addresses or {}).items()
    )
