"""Extra traffic: who sends how much to whom that has nothing to do with disks.

Two generators, both exact and repeatable by seed:

``hosts``
   Each host's traffic is drawn so that the mean and the coefficient of variation over the hosts
   are those asked for. As in the paper (section 2.2) a host's traffic is what it receives *and*
   sends, so its bound is twice the link's rate; with that bound a mean of 100 MB/s on 1 Gb/s links
   allows a CV up to 1.22, which is where the paper's figures end. Of each host one half is sent
   and one received, over flows to others.

``vms``
   Each VM talks with 1 to 32 random others (section 5.8), of which a share is in its own rack. The
   weights of the VMs are drawn as above and scaled until the traffic of the hosts has the mean and
   the CV asked for.

Hosts need not send as much as they receive: :func:`split` parts the traffic of each unevenly, half
of the hosts to one side and half to the other, so that all that is sent is received.

Truncation: draws are gamma distributed. What is above the bound is cut to it, and mean and CV of
what is not cut are adjusted until both are as asked for (:func:`exact_loads`). A CV that no
distribution between 0 and the bound has (Bhatia and Davis, 2000: above sqrt(bound / mean - 1)) is
refused.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.exception import ScenarioError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTNERS_MAX = 32
_TOLERANCE = 1e-9
_CV_MIN = 1e-4  # below that loads are even
_ROUNDS_MAX = 200


@dataclass(frozen=True)
class ExtraFlows:
    """Flows between hosts that want a rate."""

    source: Ints
    target: Ints
    rate: Floats
    """Rate that each wants, bytes per second."""

    def host_traffic(self, hosts: int) -> Floats:
        """Return what each host would send and receive, bytes per second."""
        sent = np.bincount(self.source, self.rate, hosts)
        return np.asarray(sent + np.bincount(self.target, self.rate, hosts), np.float64)


def none() -> ExtraFlows:
    """Return no traffic."""
    empty = np.zeros(0, np.int64)
    return ExtraFlows(empty, empty, np.zeros(0))


def cv_of(values: Floats) -> float:
    """Return the coefficient of variation (ACStor, Equation 2), 0 where all values are 0."""
    mean = float(values.mean())
    return float(values.std()) / mean if mean > 0 else 0.0


def cv_max(mean: float, bound: float, count: int) -> float:
    """Return the largest CV of so many values between 0 and ``bound`` with that mean."""
    full = math.floor(count * mean / bound)
    rest = count * mean - full * bound
    square = (full * bound**2 + rest**2) / count
    return math.sqrt(max(0.0, square - mean**2)) / mean


def exact_loads(
    mean: float, cv: float, bound: float, count: int, random: np.random.Generator
) -> Floats:
    """Return loads between 0 and ``bound`` with exactly this mean and CV over the sample.

    Gamma draws; then a power of the draws is taken, scaled to the mean and cut at the bound, and
    the exponent is found by bisection: it grows the CV monotonically from 0 to the largest there
    is. The order of the hosts by load is that of the draws.

    :raises ScenarioError: when no such loads exist.
    """
    if mean == 0 or cv < _CV_MIN:
        return np.full(count, float(mean))
    limit = cv_max(mean, bound, count)
    if mean > bound or cv > limit:
        raise ScenarioError(
            f"{count} loads between 0 and {bound / 1e6:.0f} MB/s with a mean of {mean / 1e6:.0f} "
            f"MB/s have a CV of at most {limit:.3f}, not {cv}"
        )
    draws = np.maximum(random.gamma(1.0 / cv**2, cv**2, count), 1e-12)
    logarithm = np.log(draws / draws.max())
    low, high = 0.0, 1.0
    while cv_of(_scaled(logarithm * high, mean, bound)) < cv and high < 1e9:
        high *= 2
    for _ in range(_ROUNDS_MAX):
        middle = (low + high) / 2
        if cv_of(_scaled(logarithm * middle, mean, bound)) < cv:
            low = middle
        else:
            high = middle
    return _scaled(logarithm * high, mean, bound)


def _scaled(logarithm: Floats, mean: float, bound: float) -> Floats:
    """Return exp(logarithm) times the factor that gives the mean once cut at the bound."""
    shape = np.exp(np.maximum(logarithm, -600.0))
    is_cut = np.zeros(len(shape), bool)
    for _ in range(len(shape)):
        left = mean * len(shape) - bound * is_cut.sum()
        factor = left / shape[~is_cut].sum()
        is_over = ~is_cut & (shape * factor > bound)
        if not is_over.any():
            break
        is_cut |= is_over
    return np.where(is_cut, bound, np.minimum(shape * factor, bound))


def by_hosts(
    mean: float,
    cv: float,
    link: float,
    count: int,
    flows_per_host: int,
    seed: int,
    asymmetry: float = 0.0,
) -> ExtraFlows:
    """Return flows that give the hosts a traffic of exactly this mean and CV.

    :param mean: of what a host sends and receives together, bytes per second.
    :param link: rate of a host's link in one direction, bytes per second.
    :param flows_per_host: at least so many flows leave a host that sends anything.
    :param asymmetry: 0: a host sends as much as it receives; 1: it only sends or only receives.
    """
    random = np.random.default_rng(seed)
    loads = exact_loads(mean, cv, 2 * link, count, random)
    sent = split(loads, asymmetry, link, np.random.default_rng(seed + 6))
    return _matched(sent, loads - sent, flows_per_host, random)


def split(loads: Floats, asymmetry: float, link: float, random: np.random.Generator) -> Floats:
    """Return what each host sends of its traffic, so that as much is sent as received.

    Neighbours by load are put on opposite sides. A host whose part would not fit its link in one
    direction is parted as unevenly as fits; the side that has more in the end is parted less.

    :param asymmetry: part of a host's traffic by which what it sends and receives differ, 0 to 1.
    :raises ScenarioError: for another number.
    """
    if not 0 <= asymmetry <= 1:
        raise ScenarioError(f"traffic.asymmetry = {asymmetry}: from 0 to 1")
    room = np.maximum(0.0, 2 * link - loads)
    uneven = np.minimum(asymmetry * loads, room)
    side = np.empty(len(loads))
    side[np.argsort(loads, kind="stable")] = np.where(np.arange(len(loads)) % 2, 1.0, -1.0)
    side *= random.choice((-1.0, 1.0))
    senders, receivers = uneven[side > 0].sum(), uneven[side < 0].sum()
    least = min(senders, receivers)
    factor = np.where(side > 0, least / max(senders, 1e-300), least / max(receivers, 1e-300))
    return np.asarray(loads / 2 + side * uneven * factor / 2)


def _matched(
    sent: Floats, received: Floats, flows_per_host: int, random: np.random.Generator
) -> ExtraFlows:
    """Return flows with exactly these sums by source and by target.

    Rounds of transport plans (north-west corner) over random orders, each of which carries an
    equal part. A host may meet itself in an order; that part is exchanged with a neighbour's.
    """
    flows: dict[tuple[int, int], float] = {}
    for _ in range(flows_per_host):
        for source, target, rate in _one_plan(
            sent / flows_per_host, received / flows_per_host, random
        ):
            flows[source, target] = flows.get((source, target), 0.0) + rate
    _remove_loops(flows)
    pairs = [(pair, rate) for pair, rate in flows.items() if rate > _TOLERANCE]
    return ExtraFlows(
        np.array([pair[0] for pair, _ in pairs], np.int64),
        np.array([pair[1] for pair, _ in pairs], np.int64),
        np.array([rate for _, rate in pairs]),
    )


def _one_plan(
    sent: Floats, received: Floats, random: np.random.Generator
) -> list[tuple[int, int, float]]:
    senders, receivers = random.permutation(len(sent)), random.permutation(len(sent))
    left_out, left_in = sent.copy(), received.copy()
    plan, i, j = [], 0, 0
    while i < len(sent) and j < len(sent):
        source, target = int(senders[i]), int(receivers[j])
        rate = min(left_out[source], left_in[target])
        if rate > 0:
            plan.append((source, target, float(rate)))
        left_out[source] -= rate
        left_in[target] -= rate
        if left_out[source] <= left_in[target]:
            i += 1
        else:
            j += 1
    return plan


def _remove_loops(flows: dict[tuple[int, int], float]) -> None:
    """Turn (a to a, b to c) into (a to c, b to a), which keeps all sums."""
    loops = [pair for pair in flows if pair[0] == pair[1]]
    for host, _ in loops:
        left = flows.pop((host, host))
        for (source, target), rate in list(flows.items()):
            if left <= 0:
                break
            if host in (source, target) or source == target:
                continue
            part = min(left, rate)
            flows[source, target] = rate - part
            flows[host, target] = flows.get((host, target), 0.0) + part
            flows[source, host] = flows.get((source, host), 0.0) + part
            left -= part
        # What is left cannot leave the host: it alone has more than half of everything.


@dataclass(frozen=True)
class Locality:
    """Share of a VM's partners that are in its own rack."""

    share: float
    rack_hosts: int

    def __post_init__(self) -> None:
        """Refuse what is no share.

        :raises ScenarioError: names it.
        """
        if not 0 <= self.share <= 1:
            raise ScenarioError(f"traffic.rack_share = {self.share}: from 0 to 1")


NOWHERE = Locality(0.0, 1)
"""Partners are drawn from everywhere alike."""


def by_vms(
    mean: float,
    cv: float,
    link: float,
    vm_hosts: Ints,
    hosts: int,
    seed: int,
    locality: Locality = NOWHERE,
) -> ExtraFlows:
    """Return flows of VMs that each talk with 1 to 32 random others.

    :param vm_hosts: the host of each VM.
    :raises ScenarioError: when scaling does not reach the CV.
    """
    random = np.random.default_rng(seed)
    count = len(vm_hosts)
    source, target = [], []
    for vm in range(count):
        others = _partners(vm, vm_hosts, locality, random)
        for other in others:
            if vm_hosts[other] != vm_hosts[vm]:
                source.append(int(vm_hosts[vm]))
                target.append(int(vm_hosts[other]))
    if not source or mean == 0:
        return none()
    wanted = exact_loads(mean, cv, 2 * link, hosts, random)
    sources, targets = np.array(source), np.array(target)
    rates = _balanced(sources, targets, wanted, hosts)
    return ExtraFlows(sources, targets, rates)


def _partners(vm: int, vm_hosts: Ints, locality: Locality, random: np.random.Generator) -> Ints:
    """Return the VMs that one talks with; of some the host is its own, with which it does not."""
    count = len(vm_hosts)
    if locality.share == 0:
        size = min(count - 1, int(random.integers(1, PARTNERS_MAX + 1)))
        return random.choice(count, size=size, replace=False)
    racks = vm_hosts // locality.rack_hosts
    near = np.flatnonzero((racks == racks[vm]) & (vm_hosts != vm_hosts[vm]))
    far = np.flatnonzero(racks != racks[vm])
    size = int(random.integers(1, PARTNERS_MAX + 1))
    inside = min(len(near), int(random.binomial(size, locality.share)))
    outside = min(len(far), size - inside)
    chosen = random.choice(near, inside, replace=False), random.choice(far, outside, replace=False)
    return np.concatenate(chosen)


def _balanced(sources: Ints, targets: Ints, wanted: Floats, hosts: int) -> Floats:
    """Return rates by which the hosts' traffic is as wanted: fitted by iterated scaling.

    Each flow is scaled by the geometric mean of what its two ends lack, until the hosts have
    what is wanted (Sinkhorn's way with one set of marginals). Where the graph does not allow it,
    as with a host that talks to nobody busy, the nearest that was met is kept.
    """
    rates = np.sqrt(wanted[sources] * wanted[targets]) + 1e-9 * wanted.mean()
    for _ in range(_ROUNDS_MAX):
        have = np.bincount(sources, rates, hosts) + np.bincount(targets, rates, hosts)
        lack = np.where(have > 0, wanted / np.maximum(have, 1e-300), 1.0)
        rates = rates * np.sqrt(lack[sources] * lack[targets])
    have = np.bincount(sources, rates, hosts) + np.bincount(targets, rates, hosts)
    return np.asarray(rates * (wanted.sum() / have.sum()))
