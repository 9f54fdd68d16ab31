"""``openstack acstor version lock|unlock``."""

import argparse

from osc_lib.command import command

from acstorclient.osc.command import client_of, moment


class LockVersion(command.Command):
    """Lock a version: it is not deleted, does not expire, and its expiry is not brought forward."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("version", metavar="<version>", help="Version (name or ID)")
        parser.add_argument(
            "--reason", metavar="<reason>", required=True, help="Reason that others are shown"
        )
        parser.add_argument(
            "--until", metavar="<time>", type=moment, help="End of the lock (default: none)"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Lock it."""
        client = client_of(self.app)
        version = client.find_version(parsed_args.version)
        client.lock_version(version, parsed_args.reason, parsed_args.until)


class UnlockVersion(command.Command):
    """Unlock a version (role manager)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("version", metavar="<version>", help="Version (name or ID)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Unlock it."""
        client = client_of(self.app)
        client.unlock_version(client.find_version(parsed_args.version))
