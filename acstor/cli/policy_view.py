"""Computed output of the commands about the policy."""

import argparse
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cliff import columns

from acstor import exception
from acstor.cli.columns import Fields, Rate, Share
from acstor.cluster.decision_journal import read_records
from acstor.cluster.ring.building import EQUAL_WEIGHT, next_ring, weighted
from acstor.cluster.ring.decision import MEAN_WEIGHT, WEIGHT_MAX, Decision
from acstor.native import Ring, RingHost
from acstor.policy.evaluation_result import Explanation
from acstor.policy.feeds.ceilometer import traffic_file


class Relative(columns.FormattableColumn[float]):
    """A weight: ``25 %`` of an ordinary host's for people, a factor for programs."""

    def human_readable(self) -> str:
        """Return the percentage."""
        return f"{100 * self._value:.0f} %"


@dataclass(frozen=True)
class Moves:
    """Shares of the circle that a change of weights would move: in all, at least, and by host."""

    moved: float
    least: float
    hosts: list[dict[str, Any]]


def parse_relative(text: str) -> int:
    """Return a weight in a decision's unit: ``50%`` or ``0.5`` is half an ordinary host's.

    :raises argparse.ArgumentTypeError: when it is none.
    """
    number = text.strip().removesuffix("%")
    try:
        factor = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        factor = -1.0
    weight = round(factor * MEAN_WEIGHT) if 0 < factor < WEIGHT_MAX / MEAN_WEIGHT else 0
    if weight < 1:
        highest = (WEIGHT_MAX - 1) // MEAN_WEIGHT
        raise argparse.ArgumentTypeError(
            f"{text!r:.20} is no weight: 0.01% to {highest * 100}%, or 0.0001 to {highest}"
        )
    return weight


def last_decision_record(path: str) -> dict[str, Any]:
    """Return the record of the last decision in a journal, its older files included.

    :raises NotFoundError: when there is none.
    :raises OSError: when the journal cannot be read.
    """
    number = 0
    name = path
    while os.path.exists(name):
        last = None
        for record in read_records(name):
            if record.get("kind") == "decision":
                last = record
        if last is not None:
            return last
        number += 1
        name = f"{path}.{number}"
    raise exception.NotFoundError(
        f"there is no decision in the journal {path}",
        hint="run it on the controller whose policy service leads, or name a --journal",
    )


def instances_of(journal_path: str, host: str) -> Fields:
    """Return who on a host causes its traffic, those of most first, as far as Ceilometer says.

    :raises CorruptError: when what the policy service wrote is damaged.
    """
    rates = traffic_file.read_beside(journal_path).get(host, [])
    return Fields(
        [
            {
                "instance": each.instance,
                "name": each.name,
                "project": each.project,
                "received": round(each.received),
                "sent": round(each.sent),
            }
            for each in rates
        ]
    )


def explained_rows(
    explanations: Mapping[str, Explanation], names: Collection[str]
) -> list[tuple[Any, ...]]:
    """Return the rows that explain hosts.

    :param names: which; empty: all.
    :raises NotFoundError: for a host that was not known.
    """
    unknown = [name for name in names if name not in explanations]
    if unknown:
        raise exception.NotFoundError(
            f"nothing was known of host {unknown[0]} when it was decided",
            hint="check the name: acstor host list",
        )
    return [
        (
            name,
            Rate(each.extra_in),
            Rate(each.extra_out),
            Rate(each.link),
            "unknown" if each.utilisation is None else Share(each.utilisation),
            each.streak,
            Relative(each.in_force),
            Relative(each.target),
            Relative(each.decided),
            each.part.value,
        )
        for name, each in sorted(explanations.items())
        if not names or name in names
    ]


def moves(ring: Ring, in_force: Decision | None, weights: Mapping[str, int]) -> Moves:
    """Return what would move if hosts had these weights; the others keep theirs.

    :param weights: in a decision's unit.
    :raises NotFoundError: for a host that is not in the ring.
    """
    known = {host.name for host in ring.hosts}
    unknown = sorted(weights.keys() - known)
    if unknown:
        raise exception.NotFoundError(
            f"host {unknown[0]} is not in the ring", hint="see 'acstor ring show'"
        )
    former = {name: in_force.weight_of(name) if in_force else MEAN_WEIGHT for name in known}
    wanted = Decision(0, 0, "", 0, "dry-run", {**former, **weights})
    hosts = weighted(_base(ring, in_force), wanted)
    after = next_ring(hosts, ring, None)
    before_vnodes = {host.name: host.vnodes for host in ring.hosts}
    return Moves(
        after.moved_share(ring),
        ring.least_moved_share(hosts),
        [
            {
                "name": host.name,
                "weight": wanted.weights[host.name] / MEAN_WEIGHT,
                "vnodes_before": before_vnodes[host.name],
                "vnodes_after": host.vnodes,
            }
            for host in after.hosts
        ],
    )


def _base(ring: Ring, in_force: Decision | None) -> list[RingHost]:
    """Return the hosts with the weights that they would have without a decision."""
    if in_force is None or not in_force.weights:
        return list(ring.hosts)
    ratios = {
        host.name: host.weight / in_force.weight_of(host.name)
        for host in ring.hosts
        if host.weight and in_force.weight_of(host.name)
    }
    largest = max(ratios.values(), default=1.0)
    return [
        RingHost(
            host.name,
            host.address,
            max(1, round(100 * EQUAL_WEIGHT * ratios[host.name] / largest))
            if host.name in ratios
            else 0,
            host.topology,
        )
        for host in ring.hosts
    ]
