"""Owners, snapshots, clones, reverts and deletions against collections, in thousands of orders.

Each run starts from the same volumes, steps all actors in an order that its seed decides, kills
some, and then checks what the design promises (RFD 8): every disk that somebody was told of has
its content, now and after any further collection; what an owner acknowledged is in the disk,
whoever took it over; nothing else is left in the end. The same runs find a violation in each of
several deliberately broken variants.
"""

import dataclasses
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from acstor.origin import base, memory
from acstor.repository.gc import claim, garbage
from acstor.repository.gc.condemnation import Tombstone, Tombstones, logs_of_name
from acstor.repository.gc.garbage import Collector, Report
from acstor.repository.repository import Repository
from acstor.repository.volumes.log_range import SEQUENCE_MAX, LogRange
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import PushedState
from tests.unit.repository import interleaving
from tests.unit.repository.volume_model import Cloud, PromiseError
from tests.unit.repository.volumes.hosts import CHUNK_SIZE, Owner

RUNS = interleaving.ORDERS
BATCHES = 8
BURSTS = (*interleaving.BURSTS, 40, 120)
"""The longest is a whole collection between two calls of somebody else."""


def run_once(seed: int, wanted: Sequence[str] = ()) -> None:
    """Run one order; raise PromiseError when a promise is broken.

    :param wanted: names of the actors; empty: the seed chooses.
    """
    # Nobody copies here; orders with copies are in copying/test_copies_cut_off.py.
    with (
        interleaving.repeatable(seed) as source,
        mock.patch.object(garbage, "holders", return_value=[]),
    ):
        choice = random.Random(seed)
        cloud = Cloud(Repository.init(memory.MemoryOrigin(), CHUNK_SIZE), source)
        if choice.random() < 0.5:
            Collector(cloud.repository, "x", 0.0, clock=lambda: 1.0).collect()
        actions = cloud.actions(choice)
        names = choice.sample(sorted(actions), choice.randint(2, 6))
        if choice.random() < 0.7:
            names = sorted({*names, "collect x", choice.choice(["owner a", "revert", "clone"])})
        names = list(wanted) or names
        kills = {name: choice.randint(1, 80) for name in names if choice.random() < 0.2}
        origin = cloud.repository.origin
        actors = [interleaving.Actor(name, actions[name], origin) for name in names]
        interleaving.run(actors, choice, kills, BURSTS)
        for actor in actors:
            if actor.error is not None:
                raise PromiseError(f"seed {seed}: {actor.name}: {actor.error!r}") from actor.error
        cloud.check(seed)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_order_keeps_every_disk_and_nothing_else(batch: int) -> None:
    for seed in range(batch, RUNS, BATCHES):
        run_once(seed)


# Broken variants


def claim_logs_before_tombstones(origin: base.Origin, ranges: list[LogRange]) -> list[str]:
    lost = claim.missing_logs(origin, ranges)
    tombstones = Tombstones(origin)
    for name in sorted(tombstones.names()):
        logs = logs_of_name(name)
        if logs is not None and any(logs.intersects(one) for one in ranges):
            tombstones.rescue(name)
    return lost


def delete_without_seal(
    self: Collector, tombstone: Tombstone, is_marked: bool, report: Report
) -> None:
    if is_marked:
        report.lifted += self._tombstones.change(tombstone, None)
    else:
        self._delete(tombstone, report)


def coverage(*, is_open: bool = True, is_unsealed: bool = True, has_seals: bool = True) -> object:
    def covered(self: VolumeRecord, volume_id: str) -> tuple[LogRange, ...]:
        found = list(self.logs)
        if is_open:
            found.append(LogRange(volume_id, self.epoch, self.next, SEQUENCE_MAX))
        if is_unsealed and self.unsealed is not None:
            found.append(LogRange(volume_id, self.unsealed, self.next, SEQUENCE_MAX))
        if has_seals:
            found.extend(LogRange(volume_id, *seal, seal[1]) for seal in self.seals)
        return tuple(found)

    return covered


def announce_nothing_but_the_manifest(self: Owner, packs: list[str], manifest: str) -> None:
    self.store.announce_fold(self.volume_id, self.host, self.epoch, packs=(), manifest=manifest)


def push_without_the_newest(owner: Owner) -> PushedState:
    """Answer what lacks the newest word that was acknowledged."""
    pushed = owner.push()
    *before, newest = pushed.disk.logs
    if newest.first == newest.last:
        return pushed
    shorter = dataclasses.replace(newest, last=newest.last - 1)
    disk = dataclasses.replace(pushed.disk, logs=(*before, shorter))
    return dataclasses.replace(pushed, disk=disk)


BROKEN_VARIANTS: dict[str, AbstractContextManager[object]] = {
    "log objects are not claimed": mock.patch.object(claim, "claim_logs", return_value=[]),
    "log objects are looked for before tombstones": mock.patch.object(
        claim, "claim_logs", claim_logs_before_tombstones
    ),
    "deleted without sealing": mock.patch.object(Collector, "_decide", delete_without_seal),
    "the open epoch is not covered": mock.patch.object(
        VolumeRecord, "coverage", coverage(is_open=False)
    ),
    "an unsealed epoch is not covered": mock.patch.object(
        VolumeRecord, "coverage", coverage(is_unsealed=False)
    ),
    "seals are not covered": mock.patch.object(VolumeRecord, "coverage", coverage(has_seals=False)),
    "a fold does not name its packs": mock.patch.object(
        Owner, "announce", announce_nothing_but_the_manifest
    ),
    "a push lacks what was acknowledged last": mock.patch.object(
        Cloud, "push", staticmethod(push_without_the_newest)
    ),
}


SHARERS = ("owner a", "clone", "snapshot", "collect x", "collect y")
OWNERS = ("owner a", "owner b", "collect x", "collect y")
SUFFERERS = {
    "log objects are not claimed": SHARERS,
    "log objects are looked for before tombstones": SHARERS,
    "deleted without sealing": SHARERS,
    "a fold does not name its packs": ("owner a", "collect x", "collect y"),
    "seals are not covered": OWNERS,
    "an unsealed epoch is not covered": OWNERS,
    "a push lacks what was acknowledged last": ("owner a",),
}
"""Actors that notice a variant; those of a variant that is not here are all."""
FOUND_BY = {
    "log objects are looked for before tombstones": 12953,
    "a fold does not name its packs": 850,
    "deleted without sealing": 1625,
    "an unsealed epoch is not covered": 10,
    "log objects are not claimed": 72,
    "seals are not covered": 173,
}
"""Orders that are tried first: they found what others find after a minute or two."""


@pytest.mark.parametrize("variant", sorted(BROKEN_VARIANTS))
def test_broken_variants_are_found_out(variant: str) -> None:
    with BROKEN_VARIANTS[variant]:
        interleaving.find_out(
            lambda seed: run_once(seed, SUFFERERS.get(variant, ())),
            PromiseError,
            orders=40 * RUNS,
            found_by=FOUND_BY.get(variant),
        )
