"""The Ceph of a one-box whose origin is in it: made once, with the clients of the guide."""

import configparser
import os
import pathlib
import shutil
import uuid
from collections.abc import Mapping, Sequence

from testbed import ceph_clients
from testbed.onebox import accounts, network
from testbed.onebox.configuration import ceph, writer
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.service_control import ServiceControl
from testbed.onebox.services import base_environment, ceph_services

_COMMAND_TIMEOUT_S = 240.0
_KEYRING_MODE = 0o640


class Ceph:
    """The daemons' data, the pools, and the keyrings of the hosts.

    :param hosts: by name, the controller among them.
    """

    def __init__(
        self, directory: OneBoxDirectory, hosts: Mapping[str, Host], control: ServiceControl
    ) -> None:
        self._directory = directory
        self._hosts = hosts
        self._control = control
        self._state = directory.host(network.CONTROLLER) / "ceph"
        self._complete = self._state / "complete"

    def make_monitor(self) -> None:
        """Make keys and monitor, unless the cluster is whole; what is left of half a one goes.

        :raises ToolFailedError: when one of Ceph's programs fails.
        """
        if not self._complete.exists():
            for service in reversed(ceph_services()):
                self._control.stop(service)
            _empty(self._state)
            for folder in ceph.CLUSTER.folders():
                (self._state / folder.removeprefix(f"{ceph.STATE}/")).mkdir()
            clients = {
                f"client.{name}": capabilities
                for name, capabilities in ceph_clients.capabilities().items()
            }
            for command in ceph.CLUSTER.key_commands(clients=clients):
                self._run(command)
            for command in ceph.CLUSTER.monitor_commands():
                self._run(command)
        self._give_keys()

    def make_osd(self) -> None:
        """Make the OSD, unless the cluster is whole; the monitor is up.

        :raises ToolFailedError: when one of Ceph's programs fails.
        """
        if not self._complete.exists():
            for command in ceph.CLUSTER.osd_commands(0, str(uuid.uuid4())):
                self._run(command)

    def make_pools(self) -> None:
        """Make the pools, unless the cluster is whole; the monitor is up.

        :raises ToolFailedError: when one of Ceph's programs fails.
        """
        if not self._complete.exists():
            for pool in (ceph.REF_POOL, ceph.POOL, ceph.STRIPE_POOL):
                self._run(("ceph", "osd", "pool", "create", pool, str(ceph.PLACEMENT_GROUPS)))
                self._run(("ceph", "osd", "pool", "application", "enable", pool, "acstor"))

    def complete(self) -> None:
        """Note that the cluster is whole."""
        self._complete.touch()

    def _give_keys(self) -> None:
        """Give each host the key of its kind, for ACStor's user to read, and no other one."""
        keys = configparser.ConfigParser(interpolation=None)
        keys.read_string(_unindented((self._state / "keyring").read_text()))
        user = accounts.user_of(self._directory, network.CONTROLLER)
        for name in self._hosts:
            is_controller = name == network.CONTROLLER
            client = ceph_clients.CONTROLLER if is_controller else ceph_clients.HOST
            path = self._directory.etc(name) / "ceph" / ceph.keyring_of(client)
            section = f"client.{client}"
            text = writer.render({section: {"key": keys[section]["key"]}})
            writer.write(path, text, _KEYRING_MODE)
            os.chown(path, 0, user.gid)

    def _run(self, command: Sequence[str]) -> str:
        environment = base_environment(self._directory)
        return self._hosts[network.CONTROLLER].run(
            [f"/usr/bin/{command[0]}", *command[1:]],
            environment=environment,
            timeout_s=_COMMAND_TIMEOUT_S,
        )


def _empty(folder: pathlib.Path) -> None:
    """Remove what is in a folder; a host has it mounted."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _unindented(keyring: str) -> str:
    return "\n".join(line.strip() for line in keyring.splitlines())
