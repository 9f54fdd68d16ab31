"""Network interfaces that carry the bytes that leave a machine, so that none is counted twice.

A byte that a guest sends passes a tap, a bridge, a VLAN and a bond before it is on the wire, and
each of them counts it. Of whatever interface is asked for, the lowest layer counts:

* a VLAN, macvlan, macvtap, ipvlan, MACsec or tunnel with a device: what it is on;
* a bridge: its ports, but for those of guests and containers (tap, veth); where no other is left,
  nothing leaves the machine by it, and it counts itself;
* a bond or team: itself. Its counters go on when a member leaves, and its speed is that of the
  members in use; one of its members that is asked for as well does not count once more.

What is not seen by rtnetlink is not followed: ports of Open vSwitch (name the uplink), hardware
that switches between virtual functions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_ON_ANOTHER = frozenset(
    {"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "vxlan", "gre", "gretap", "ipip"}
)
_WITH_PORTS = frozenset({"bridge", "vrf"})
_WITH_MEMBERS = frozenset({"bond", "team"})
_OF_GUESTS = frozenset({"tun", "veth"})


@dataclass(frozen=True)
class Layer:
    """Place of one interface among the others; indexes are the kernel's."""

    index: int
    kind: str | None = None
    """Such as ``vlan``; None: no virtual one."""
    lower: int | None = None
    """Index of the interface that it is on, where that is in the same network namespace."""
    master: int | None = None
    """Index of the interface whose port or member it is."""


def lowest(layers: Iterable[Layer], wanted: Iterable[int]) -> frozenset[int]:
    """Return the indexes of the interfaces that count for those that are wanted.

    :param wanted: indexes; those that there are not are left out.
    """
    by_index = {each.index: each for each in layers}
    found: set[int] = set()
    for index in wanted:
        found |= _below(by_index, index, frozenset())
    return frozenset(
        index for index in found if not _is_member_of_one(by_index, by_index[index], found)
    )


def _below(by_index: Mapping[int, Layer], index: int, above: frozenset[int]) -> set[int]:
    layer = by_index.get(index)
    if layer is None or index in above:
        return set()
    above |= {index}
    if layer.kind in _ON_ANOTHER and layer.lower is not None and layer.lower in by_index:
        return _below(by_index, layer.lower, above) or {index}
    if layer.kind in _WITH_PORTS:
        ports: set[int] = set()
        for each in by_index.values():
            is_uplink = each.kind not in _OF_GUESTS or layer.kind == "vrf"
            if each.master == index and is_uplink:
                ports |= _below(by_index, each.index, above)
        return ports or {index}
    return {index}


def _is_member_of_one(by_index: Mapping[int, Layer], layer: Layer, found: set[int]) -> bool:
    master = by_index.get(layer.master) if layer.master is not None else None
    return master is not None and master.kind in _WITH_MEMBERS and master.index in found
