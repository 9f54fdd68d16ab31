"""Extra traffic: what the network interfaces of a host carry that ACStor did not cause.

The kernel's counters, read by rtnetlink, less what the data plane itself moved, as rates between
two samples. The data plane counts the bytes of chunks; on the wire they come with headers, so its
figures are raised by :data:`WIRE_SHARE` before they are taken off.

A counter that goes back was reset (a driver reloaded, an interface made anew) or, where the driver
counts in 32 bits, has wrapped. A wrap is told from a reset by whether the link could have carried
the difference; after a reset the rate of that interface is not known until the next sample.
"""

import logging
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from acstor.telemetry import interface_layers
from acstor.telemetry.interface_layers import Layer

LOG = logging.getLogger(__name__)

WIRE_SHARE = 1.05
"""Bytes on the wire per byte of a chunk: 1448 of each 1514-byte frame are payload, and a few per
mille go to requests, TLS records and acknowledgements."""
INTERVAL_MIN = 0.5
"""Seconds between two samples below which a rate is not computed: counters are updated in steps."""
_WRAP = 1 << 32
_LINK_FACTOR = 1.2  # how far a link may seem faster than it is, by jitter of the sampling
_FASTEST_LINK = 100e9 / 8  # assumed where the speed is not known, bytes per second
_MBIT = 1_000_000 / 8


@dataclass(frozen=True)
class InterfaceCounters:
    """One network interface at one moment."""

    name: str
    index: int
    """The kernel's; an interface made anew under the same name has another."""
    received: int
    """Bytes since the interface was made."""
    sent: int
    link_bytes_per_s: float | None
    """Speed in one direction; None: it is not known."""


@dataclass(frozen=True)
class MovedBytes:
    """Bytes that the data plane moved over the network since it was started."""

    received: float = 0.0
    sent: float = 0.0


@dataclass(frozen=True)
class ExtraTraffic:
    """Rates between two samples, bytes per second; None: not known."""

    extra_in: float | None = None
    extra_out: float | None = None
    link_bytes_per_s: float | None = None
    """Of all interfaces that count, in one direction."""
    moved_in: float | None = None
    """Bytes that the data plane received over the network, as on the wire."""
    moved_out: float | None = None


class Interfaces(Protocol):
    """Source of the interfaces' counters."""

    def read(self, peer_address: str | None) -> list[InterfaceCounters]:
        """Return the interfaces whose traffic counts.

        :param peer_address: ``ip:port`` of the data plane; None: not known.
        :raises OSError: when they cannot be read.
        """


class NetlinkInterfaces:
    """The kernel's interfaces, by rtnetlink; of layered ones the lowest, each once.

    :param names: which count. Empty: the one that has the peer address, or where none has it
        (wildcards, address translation) those of the default routes. In either case what they
        are on counts in their place (:mod:`acstor.telemetry.interface_layers`).
    :param link_speed: Mbit/s of each; None: what the interface says.
    """

    def __init__(self, names: Sequence[str], link_speed: int | None) -> None:
        self._names = frozenset(names)
        self._link_speed = link_speed

    def read(self, peer_address: str | None) -> list[InterfaceCounters]:
        """Return the interfaces whose traffic counts."""
        # Takes a fifth of a second, which the commands that use this module's types need not wait.
        from pyroute2 import IPRoute
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            with IPRoute() as netlink:
                asked = None if self._names else _indexes(netlink, peer_address)
                links = list(netlink.get_links())
        except NetlinkError as error:
            raise OSError(f"network interfaces cannot be read: {error}") from error
        if asked is None:
            asked = {int(link["index"]) for link in links if _name(link) in self._names}
        counted = interface_layers.lowest((_layer(link) for link in links), asked)
        found = []
        for link in links:
            name, index = _name(link), int(link["index"])
            stats = link.get_attr("IFLA_STATS64") or link.get_attr("IFLA_STATS")
            if stats and index in counted:
                speed = self._link_speed or reported_speed(name, index)
                found.append(
                    InterfaceCounters(
                        name,
                        index,
                        int(stats["rx_bytes"]),
                        int(stats["tx_bytes"]),
                        speed * _MBIT if speed else None,
                    )
                )
        return found


class TrafficMeter:
    """Turns successive samples into rates.

    What one sample did not tell (an interface that came, went or was reset) makes that interface
    count from the next sample on; the others are not affected.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._interfaces: dict[int, InterfaceCounters] = {}
        self._moved = MovedBytes()
        self._last = ExtraTraffic()

    def sample(
        self, now: float, interfaces: Iterable[InterfaceCounters], moved: MovedBytes | None
    ) -> ExtraTraffic:
        """Return the rates since the last sample; unknown at the first.

        :param now: monotonic seconds.
        :param moved: by the data plane; a process that was restarted has counted from zero. None:
            it is not up, and has moved nothing.
        """
        is_up, moved = moved is not None, self._moved if moved is None else moved
        present = {each.index: each for each in interfaces}
        seconds = None if self._at is None else now - self._at
        if seconds is not None and seconds < INTERVAL_MIN:
            return self._last
        link = _sum_known(each.link_bytes_per_s for each in present.values())
        if seconds is None:
            self._last = ExtraTraffic(link_bytes_per_s=link)
        else:
            received = _since(moved, self._moved, "received")
            sent = _since(moved, self._moved, "sent")
            self._last = ExtraTraffic(
                self._rate(present, "received", seconds, received),
                self._rate(present, "sent", seconds, sent),
                link,
                WIRE_SHARE * received / seconds if is_up else None,
                WIRE_SHARE * sent / seconds if is_up else None,
            )
        self._at, self._interfaces, self._moved = now, present, moved
        return self._last

    def _rate(
        self,
        present: Mapping[int, InterfaceCounters],
        counter: str,
        seconds: float,
        moved: float,
    ) -> float | None:
        carried = [
            _difference(self._interfaces[index], each, counter, seconds)
            for index, each in present.items()
            if index in self._interfaces
        ]
        known = [difference for difference in carried if difference is not None]
        if not known:
            return None
        return max(0.0, sum(known) - WIRE_SHARE * moved) / seconds


def reported_speed(
    name: str, index: int, directory: pathlib.Path = pathlib.Path("/sys/class/net")
) -> int | None:
    """Return what an interface says of its speed, Mbit/s; None where it does not know.

    Where sysfs shows another network namespace than this process is in, its interfaces are others.
    """
    try:
        if int((directory / name / "ifindex").read_text()) != index:
            return None
        speed = int((directory / name / "speed").read_text())
    except (OSError, ValueError):  # EINVAL: the link is down, or there is no such thing
        return None
    return speed if speed > 0 else None


def _name(link: Any) -> str:
    return str(link.get_attr("IFLA_IFNAME"))


def _layer(link: Any) -> Layer:
    kind = link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND")
    # The index of what is in another namespace means nothing in this one.
    is_here = link.get_attr("IFLA_LINK_NETNSID") is None
    lower, master = link.get_attr("IFLA_LINK"), link.get_attr("IFLA_MASTER")
    if kind == "vxlan":  # it alone says so elsewhere
        lower = link.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA", "IFLA_VXLAN_LINK")
    return Layer(
        int(link["index"]),
        str(kind) if kind else None,
        int(lower) if lower and is_here else None,
        int(master) if master else None,
    )


def _indexes(netlink: Any, peer_address: str | None) -> set[int]:
    address = (peer_address or "").rpartition(":")[0].strip("[]")
    if address:
        found = {
            int(each["index"])
            for each in netlink.get_addr()
            if address in {each.get_attr("IFA_LOCAL"), each.get_attr("IFA_ADDRESS")}
        }
        if found:
            return found
    found = set()
    for route in netlink.get_default_routes():
        hops = route.get_attr("RTA_MULTIPATH") or ()
        found.update(int(hop["oif"]) for hop in hops)
        if route.get_attr("RTA_OIF"):
            found.add(int(route.get_attr("RTA_OIF")))
    return found


def _difference(
    before: InterfaceCounters, after: InterfaceCounters, counter: str, seconds: float
) -> int | None:
    first, second = int(getattr(before, counter)), int(getattr(after, counter))
    if second >= first:
        return second - first
    wrapped = second + _WRAP - first
    fastest = after.link_bytes_per_s or _FASTEST_LINK
    if first < _WRAP and wrapped <= fastest * _LINK_FACTOR * seconds:
        return wrapped
    LOG.debug("counter %s of %s went from %d to %d: reset", counter, after.name, first, second)
    return None


def _since(after: MovedBytes, before: MovedBytes, counter: str) -> float:
    first, second = float(getattr(before, counter)), float(getattr(after, counter))
    return second - first if second >= first else second


def _sum_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
