"""Hosts as network namespaces, joined by a bridge through shaped links.

The bridge lives in a namespace of its own, the switch, so that nothing appears in the machine's own
network and every run may use the same addresses. Each member (a compute host or the origin) has
one link: ``eth0`` in its namespace, a port of the member's name in the switch. HTB shapes both
ends, so a rate holds for what a member sends and for what it receives.

Deleting a namespace deletes its interfaces; there is nothing else to remove.

Counters are read at the switch's ports. They count the bytes of Ethernet frames as the bridge sees
them; a TCP segment that the kernel did not cut yet (GSO) counts one header for up to 64 KiB, so
figures are 2-4 % below what a wire would carry.
"""

import dataclasses
import ipaddress
import logging
import pathlib
from typing import Any

from pyroute2 import NetNS, netns
from pyroute2.netlink.rtnl.tcmsg import plugins as queueing_disciplines
from pyroute2.netlink.rtnl.tcmsg import sched_pfifo

from testbed import run_directory
from testbed.rates import LinkRate

LOG = logging.getLogger(__name__)

SUBNET = ipaddress.IPv4Network("10.77.0.0/16")
MEMBERS_MAX = 1024

_ROOT_HANDLE = 0x10000  # 1:0
_LEAF_CLASS = 0x10001  # 1:1
_QUEUE_HANDLE = 0x200000  # 20:0
_QUEUE_DELAY_MAX_S = 0.05
_SEGMENT_BYTES_MAX = 65536  # one uncut TCP segment; a queue shorter than a few of them starves
_BURST_S = 0.002
_NUD_PERMANENT = 0x80

# pyroute2 attaches a kind that it does not know to the root; bfifo takes the structure of pfifo.
queueing_disciplines.setdefault("bfifo", sched_pfifo)


@dataclasses.dataclass(frozen=True)
class LinkBytes:
    """Bytes over one member's link since it was made."""

    sent: int
    received: int

    def __sub__(self, other: "LinkBytes") -> "LinkBytes":
        return LinkBytes(self.sent - other.sent, self.received - other.received)


@dataclasses.dataclass(frozen=True)
class Namespace:
    """One member of the network."""

    name: str  #: short name, unique in the run: ``h0``, ``origin``
    namespace: str  #: name of the network namespace
    address: str  #: IPv4 address of ``eth0``
    rate: LinkRate

    @property
    def path(self) -> pathlib.Path:
        """Return the file that names the namespace for setns(2)."""
        return namespace_path(self.namespace)


def namespace_path(name: str) -> pathlib.Path:
    """Return the file that names a namespace."""
    return pathlib.Path(netns.NETNS_RUN_DIR) / name


class Network:
    """The switch of one run and the members joined to it."""

    def __init__(self, run: run_directory.RunDirectory) -> None:
        self._run = run
        self._switch_name = f"{run.prefix}-switch"
        self._switch: Any = None
        self.members: dict[str, Namespace] = {}
        self._hardware_addresses: dict[str, str] = {}

    def create(self) -> None:
        """Create the switch."""
        self._create_namespace(self._switch_name)
        self._switch = NetNS(self._switch_name)
        self._switch.link("add", ifname="br0", kind="bridge")
        self._switch.link("set", index=self._index(self._switch, "br0"), state="up")

    def add(self, name: str, rate: LinkRate) -> Namespace:
        """Create a member and its link.

        :param name: at most 15 bytes, as it names the switch's port.
        :param rate: of the link, each direction.
        """
        if len(self.members) >= MEMBERS_MAX:
            raise ValueError(f"at most {MEMBERS_MAX} members")
        member = Namespace(
            name=name,
            namespace=f"{self._run.prefix}-{name}",
            address=str(SUBNET[len(self.members) + 1]),
            rate=rate,
        )
        self._create_namespace(member.namespace)
        self._hardware_addresses[name] = _hardware_address(len(self.members) + 1)
        self._switch.link(
            "add",
            ifname=name,
            kind="veth",
            peer={
                "ifname": "eth0",
                "net_ns_fd": member.namespace,
                "address": self._hardware_addresses[name],
            },
        )
        port = self._index(self._switch, name)
        self._switch.link("set", index=port, master=self._index(self._switch, "br0"), state="up")
        _shape(self._switch, port, rate)
        with NetNS(member.namespace) as host:
            host.link("set", index=self._index(host, "lo"), state="up")
            interface = self._index(host, "eth0")
            host.addr("add", index=interface, address=member.address, prefixlen=SUBNET.prefixlen)
            host.link("set", index=interface, state="up")
            _shape(host, interface, rate)
        self.members[name] = member
        return member

    def introduce(self) -> None:
        """Tell every member the hardware addresses of all others; call it when all are added.

        The kernel resolves addresses into one table for all namespaces of the machine, of 1,024
        entries by default: with some thirty hosts it overflows, and connections wait a second
        and more. Permanent entries do not count.
        """
        for member in self.members.values():
            with NetNS(member.namespace) as host:
                interface = self._index(host, "eth0")
                for other in self.members.values():
                    if other is not member:
                        host.neigh(
                            "replace",
                            dst=other.address,
                            lladdr=self._hardware_addresses[other.name],
                            ifindex=interface,
                            state=_NUD_PERMANENT,
                        )

    def open(self, members: list[Namespace]) -> None:
        """Take over the network of a run that another process created."""
        self._switch = NetNS(self._switch_name, flags=0)
        self.members = {member.name: member for member in members}

    def counters(self) -> dict[str, LinkBytes]:
        """Return the bytes over each member's link since it was made."""
        counters = {}
        for link in self._switch.get_links():
            name = link.get_attr("IFLA_IFNAME")
            if name in self.members:
                statistics = link.get_attr("IFLA_STATS64")
                # What the port receives is what the member sent.
                counters[name] = LinkBytes(
                    sent=int(statistics["rx_bytes"]), received=int(statistics["tx_bytes"])
                )
        return counters

    def close(self) -> None:
        """Let go of the switch; the namespaces stay until the run is cleaned up."""
        if self._switch is not None:
            self._switch.close()
            self._switch = None

    def _create_namespace(self, name: str) -> None:
        self._run.record(run_directory.ResourceKind.NAMESPACE, name)
        netns.create(name)

    @staticmethod
    def _index(namespace: Any, interface: str) -> int:
        return int(namespace.link_lookup(ifname=interface)[0])


def _hardware_address(number: int) -> str:
    """Return a locally administered address; it only has to be unique on one bridge."""
    return f"02:ac:57:00:{number >> 8:02x}:{number & 0xFF:02x}"


def _shape(namespace: Any, interface: int, rate: LinkRate) -> None:
    """Limit what an interface sends; queue at most 50 ms, then drop, as a switch does."""
    burst = max(2 * _SEGMENT_BYTES_MAX, int(rate.bytes_per_s * _BURST_S))
    queue = max(8 * _SEGMENT_BYTES_MAX, int(rate.bytes_per_s * _QUEUE_DELAY_MAX_S))
    namespace.tc("add", "htb", interface, _ROOT_HANDLE, default=_LEAF_CLASS)
    namespace.tc(
        "add-class",
        "htb",
        interface,
        _LEAF_CLASS,
        parent=_ROOT_HANDLE,
        rate=rate.bytes_per_s,
        ceil=rate.bytes_per_s,
        burst=burst,
        cburst=burst,
        quantum=_SEGMENT_BYTES_MAX,
    )
    namespace.tc("add", "bfifo", interface, _QUEUE_HANDLE, parent=_LEAF_CLASS, limit=queue)
