"""Servers with a port: address by DHCP, between hosts, what security groups let through."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.guest_network import GuestNetwork
from testbed.fixtures.instances import FLAVOR, Instance, Instances, instances_of
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.volumes import console
from testbed.onebox.control_plane import NETWORK

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

GROUP = "answering"
WORD = "checksummed"
TIMEOUT = 60.0


def typed(box: RunningBox, *arguments: str) -> Any:
    """Return what a user gets who types a command."""
    return json.loads(box.openstack(*arguments, "-f", "json"))


@pytest.fixture
def group(box: RunningBox) -> Iterator[str]:
    """A security group that lets nothing in."""
    made = box.api.connection.network.create_security_group(name=GROUP)
    yield str(made.id)
    box.api.connection.network.delete_security_group(made.id)


@pytest.fixture
def servers(
    box: RunningBox, group: str, tiny: Template
) -> Iterator[list[tuple[Instance, GuestNetwork]]]:
    """One on each host, on the network that all projects share."""
    with instances_of(box) as made:
        yield list(_connected(box, group, tiny, made))
        # Ports go with their servers, and only then may the group.
        box.api.wait_deleted(made.delete())


def _connected(
    box: RunningBox, group: str, tiny: Template, made: Instances
) -> Iterator[tuple[Instance, GuestNetwork]]:
    one, other = box.hosts
    network = box.api.connection.network.find_network(NETWORK)
    assert network is not None
    created = typed(
        box, "server", "create", "--image", tiny.id, "--flavor", FLAVOR, "--network", NETWORK,
        "--security-group", group, "--host", one.name, "connected",
    )  # fmt: skip
    # The same for the other host, by the API: a client takes seconds to start.
    asked = box.api.compute.create_server(
        name="connected-too",
        image_id=tiny.id,
        flavor_id=FLAVOR,
        networks=[{"uuid": network.id}],
        security_groups=[{"name": group}],
        host=other.name,
    )
    found = [made.adopt(identity, tiny) for identity in (created["id"], asked.id)]
    for server in found:
        server.wait()
    for server in found:
        server.checked(boot=1)
        yield server, GuestNetwork(console(server))


def test_servers_get_addresses_and_reach_each_other_as_their_group_says(
    box: RunningBox, group: str, servers: list[tuple[Instance, GuestNetwork]]
) -> None:
    addresses = []
    api = box.api.connection.network
    for server, network in servers:
        (port,) = api.ports(device_id=server.id)
        assert port.status == "ACTIVE"
        assert port.security_group_ids == [group]
        (fixed,) = port.fixed_ips
        assert network.ask_for_address() == fixed["ip_address"]
        addresses.append(fixed["ip_address"])
    asked, asking = servers[0]
    shown = typed(box, "server", "show", asked.id)
    assert shown["addresses"] == {NETWORK: [addresses[0]]}
    assert [each["name"] for each in shown["security_groups"]] == [GROUP]
    assert not asking.reaches(addresses[1])
    rule = typed(box, "security", "group", "rule", "create", "--protocol", "any", GROUP)
    wait_for("the rule lets in", lambda: asking.reaches(addresses[1]), TIMEOUT)
    servers[1][1].listen()
    asking.send(addresses[1], WORD)
    wait_for("what was sent is there", lambda: servers[1][1].received() == WORD, TIMEOUT)
    api.delete_security_group_rule(rule["id"])
    wait_for("nothing is let in again", lambda: not asking.reaches(addresses[1]), TIMEOUT)
