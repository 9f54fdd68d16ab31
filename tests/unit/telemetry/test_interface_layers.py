"""Interfaces upon interfaces: what leaves the machine counts once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2 import NetNS, netns
from pyroute2.netlink.exceptions import NetlinkError

from acstor.telemetry.interface_layers import Layer, lowest

KINDS = [None, "vlan", "macvlan", "bridge", "vrf", "bond", "team", "tun", "veth", "vxlan", "dummy"]


@given(
    st.lists(
        st.builds(
            Layer,
            st.integers(1, 9),
            st.sampled_from(KINDS),
            st.none() | st.integers(1, 9),
            st.none() | st.integers(1, 9),
        ),
        max_size=9,
        unique_by=lambda layer: layer.index,
    ),
    st.sets(st.integers(1, 10), min_size=1),
)
def test_whatever_the_layers_it_ends_with_some_that_exist(
    layers: list[Layer], wanted: set[int]
) -> None:
    there = {each.index for each in layers}
    found = lowest(layers, wanted)
    assert found <= there
    if all(each.lower != each.index and each.master != each.index for each in layers):
        assert lowest(layers, found) == found or _has_cycle(layers)


def _has_cycle(layers: list[Layer]) -> bool:
    """Return whether there may be a cycle; the kernel makes none."""
    return any(
        (each.lower or 0) >= each.index or (each.master is not None and each.master <= each.index)
        for each in layers
    )


def test_layers_that_are_above_each_other_end() -> None:
    layers = [Layer(1, "vlan", lower=2), Layer(2, "vlan", lower=1)]
    assert lowest(layers, [1]) <= {1, 2}


@pytest.fixture
def namespace() -> Iterator[tuple[str, Any]]:
    name = f"acstor-layers-{os.getpid()}"
    opened = NetNS(name)
    try:
        yield name, opened
    finally:
        opened.close()
        netns.remove(name)


def add(opened: Any, name: str, kind: str, address: str | None = None, **more: Any) -> int:
    """Add an interface, up; return its index."""
    opened.link("add", ifname=name, kind=kind, **more)
    index = int(opened.link_lookup(ifname=name)[0])
    opened.link("set", index=index, state="up")
    if address is not None:
        opened.addr("add", index=index, address=address, prefixlen=24)
    return index


def enslave(opened: Any, member: int, master: int) -> None:
    opened.link("set", index=member, state="down")
    opened.link("set", index=member, master=master)
    opened.link("set", index=member, state="up")


NIC0, NIC1, BOND, VLAN, BRIDGE, TAP, VETH, LONELY = range(1, 9)
STACK = [
    Layer(NIC0, None, master=BOND),
    Layer(NIC1, None, master=BOND),
    Layer(BOND, "bond"),
    Layer(VLAN, "vlan", lower=BOND, master=BRIDGE),
    Layer(BRIDGE, "bridge"),
    Layer(TAP, "tun", master=BRIDGE),
    Layer(VETH, "veth", lower=99, master=BRIDGE),
    Layer(LONELY, "bridge"),
]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({BRIDGE}, {BOND}),
        ({VLAN}, {BOND}),
        ({BRIDGE, VLAN, BOND, NIC0, NIC1}, {BOND}),
        ({NIC0}, {NIC0}),
        ({NIC0, NIC1}, {NIC0, NIC1}),
        ({LONELY}, {LONELY}),
        ({TAP}, {TAP}),
        ({42}, set()),
    ],
)
def test_bond_vlan_and_bridge_count_once(wanted: set[int], expected: set[int]) -> None:
    assert lowest(STACK, wanted) == expected


def test_vlan_on_what_is_in_another_namespace_counts_itself() -> None:
    assert lowest([Layer(5, "vlan", lower=None)], [5]) == {5}


def add_nic(opened: Any, name: str, address: str | None = None) -> int:
    """Add what stands for a network card: one end of a cable."""
    return add(opened, name, "veth", address, peer=f"{name}-far")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_real_bridge_tunnel_and_guests_count_once(namespace: tuple[str, Any]) -> None:
    name, opened = namespace
    nic = add_nic(opened, "nic0", "198.51.100.1")
    add(opened, "macvlan0", "macvlan", "203.0.113.1", link=nic)
    bridge = add(opened, "br0", "bridge", "192.0.2.1")
    add_nic(opened, "guest0")
    opened.link("add", ifname="tap0", kind="tuntap", mode="tap")
    for guest in ("guest0", "tap0"):
        enslave(opened, opened.link_lookup(ifname=guest)[0], bridge)
    assert seen_in(name, [], "192.0.2.1") == ["br0"], "nothing leaves by it: it counts itself"
    tunnel = add(opened, "vxlan0", "vxlan", vxlan_id=4, vxlan_link=nic, vxlan_port=4789)
    enslave(opened, tunnel, bridge)
    for address in ("198.51.100.1", "203.0.113.1", "192.0.2.1"):
        assert seen_in(name, [], address) == ["nic0"], address
    assert seen_in(name, ["br0", "vxlan0", "macvlan0", "nic0"]) == ["nic0"]
    assert seen_in(name, ["tap0", "no-such"]) == ["tap0"]
    opened.link("del", index=tunnel)
    assert seen_in(name, [], "192.0.2.1") == ["br0"], "the uplink has gone"


@pytest.mark.root
@pytest.mark.extended  # not every kernel that the tests run on has bonds
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_real_bond_and_vlan_count_once(namespace: tuple[str, Any]) -> None:
    name, opened = namespace
    members = [add_nic(opened, f"nic{number}") for number in range(2)]
    try:
        bond = add(opened, "bond0", "bond", "198.51.100.1")
        vlan = add(opened, "bond0.7", "vlan", "203.0.113.1", link=bond, vlan_id=7)
    except NetlinkError as error:
        pytest.skip(f"the kernel has no bonds or no VLANs: {error}")
    for member in members:
        enslave(opened, member, bond)
    bridge = add(opened, "br0", "bridge", "192.0.2.1")
    enslave(opened, vlan, bridge)
    for address in ("198.51.100.1", "203.0.113.1", "192.0.2.1"):
        assert seen_in(name, [], address) == ["bond0"], address
    assert seen_in(name, ["br0", "bond0.7", "bond0", "nic0", "nic1"]) == ["bond0"]
    assert seen_in(name, ["nic0", "nic1"]) == ["nic0", "nic1"]


def seen_in(namespace: str, names: list[str], address: str = "") -> list[str]:
    """Read in a child that enters the namespace: this process must stay where it is."""
    program = (
        "import sys; from pyroute2 import netns; netns.setns(sys.argv[1]);"
        "from acstor.telemetry.traffic import NetlinkInterfaces;"
        "found = NetlinkInterfaces(sys.argv[3:], None).read(sys.argv[2] + ':7420');"
        "print(*sorted(each.name for each in found))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, namespace, address, *names],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout.split()  # fmt: skip
