"""The Ceph of a one-box: made once, keys by the kind of host; half a cluster is made anew."""

import os
import pathlib
from collections.abc import Mapping, Sequence

import pytest

from testbed import ceph_clients
from testbed.onebox import network
from testbed.onebox.accounts import Account
from testbed.onebox.ceph import Ceph
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.service_control import ServiceControl
from testbed.onebox.services import Service

HOSTS = (network.CONTROLLER, "compute1", "compute2")


class TypedHost(Host):
    """A host that notes commands, and makes a keyring as ``ceph-authtool`` does."""

    def __init__(self, directory: OneBoxDirectory, name: str) -> None:
        super().__init__(directory, name, network.address_of(name))
        self.commands: list[list[str]] = []
        self._keyring = directory.host(name) / "ceph" / "keyring"

    def run(
        self, argv: Sequence[str], *, environment: Mapping[str, str], timeout_s: float = 60.0
    ) -> str:
        self.commands.append(list(argv))
        if "--create-keyring" in argv:
            self._keyring.write_text("")
        elif "--gen-key" in argv:
            name = argv[argv.index("--name") + 1]
            with self._keyring.open("a") as keyring:
                keyring.write(f'[{name}]\n\tkey = KEY-OF-{name}==\n\tcaps mon = "allow *"\n')
        return ""


class NotedControl(ServiceControl):
    """Notes which services are stopped."""

    def __init__(self, directory: OneBoxDirectory, hosts: dict[str, Host]) -> None:
        super().__init__(directory, hosts)
        self.stopped: list[str] = []

    def stop(self, service: Service, *, kill: bool = False) -> None:
        self.stopped.append(service.name)


class Box:
    """Hosts that are not up."""

    def __init__(self, root: pathlib.Path) -> None:
        self.directory = OneBoxDirectory(pathlib.Path("/nowhere"))
        self.directory.hosts = root / "hosts"
        self.state = self.directory.host(network.CONTROLLER) / "ceph"
        self.state.mkdir(parents=True)
        self.controller = TypedHost(self.directory, network.CONTROLLER)
        self.hosts: dict[str, Host] = {
            name: self.controller if name == network.CONTROLLER else TypedHost(self.directory, name)
            for name in HOSTS
        }
        self.control = NotedControl(self.directory, self.hosts)
        self.ceph = Ceph(self.directory, self.hosts, self.control)

    def make(self) -> list[list[str]]:
        """Do all steps and return what was typed."""
        self.controller.commands.clear()
        for step in (
            self.ceph.make_monitor, self.ceph.make_osd, self.ceph.make_pools, self.ceph.complete,
        ):  # fmt: skip
            step()
        return self.controller.commands

    def keyrings(self, host: str) -> dict[str, str]:
        """Return the keyrings of a host by the name."""
        folder = self.directory.etc(host) / "ceph"
        return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def box(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setattr(
        "testbed.onebox.accounts.user_of",
        lambda directory, host: Account(os.getuid(), os.getgid()),
    )
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: None)
    return Box(tmp_path)


def test_cluster_has_the_clients_and_the_pools_of_the_guide(box: Box) -> None:
    typed = box.make()
    for name, capabilities in ceph_clients.capabilities().items():
        (made,) = (command for command in typed if f"client.{name}" in command)
        for pair in capabilities.items():
            assert list(pair) == made[made.index(pair[0]) :][:2]
    pools = [command[4] for command in typed if command[1:4] == ["osd", "pool", "create"]]
    assert pools == ["acstor-refs", "acstor", "acstor-stripes"]
    assert [command for command in typed if not command[0].startswith("/usr/bin/")] == []


def test_each_host_has_the_key_of_its_kind_and_no_other(box: Box) -> None:
    box.make()
    for name in HOSTS:
        client = "acstor" if name == network.CONTROLLER else "acstor-host"
        assert box.keyrings(name) == {
            f"ceph.client.{client}.keyring": f"[client.{client}]\nkey = KEY-OF-client.{client}==\n"
        }
        path = box.directory.etc(name) / "ceph" / f"ceph.client.{client}.keyring"
        assert path.stat().st_mode & 0o777 == 0o640


def test_whole_cluster_is_left_as_it_is_and_gives_a_new_host_its_key(box: Box) -> None:
    box.make()
    before = (box.state / "keyring").read_text()
    box.control.stopped.clear()
    box.hosts["compute3"] = TypedHost(box.directory, "compute3")
    assert box.make() == []
    assert box.control.stopped == []
    assert (box.state / "keyring").read_text() == before
    assert list(box.keyrings("compute3")) == ["ceph.client.acstor-host.keyring"]


def test_half_a_cluster_is_ended_and_made_anew(box: Box) -> None:
    (box.state / "osd.0").mkdir()
    (box.state / "osd.0" / "block").write_text("of another cluster")
    (box.state / "monmap").write_text("of another cluster")
    assert box.make() != []
    assert box.control.stopped == ["ceph-mgr", "ceph-osd", "ceph-mon"]
    assert not (box.state / "osd.0" / "block").exists()
    assert not (box.state / "monmap").exists()
