"""Owners, movers, copies, take-overs and a bad network, in many orders, with the real code.

Each run steps all processes in an order that its seed decides, kills some, and compares what an
heir finds with the history of writes. The same runs find a violation in each of several broken
variants (RFD 38, *Epochs*; ``test_move_interleaving.py`` has the model).
"""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from acstor import exception
from acstor.dataplane.volumes.ownership.outcomes import Sealed
from acstor.origin import base
from acstor.origin.replicated.sync.budget import Bandwidth, SyncBudget
from acstor.origin.replicated.sync.member_copy import MemberCopy
from acstor.origin.replicated.sync.pairs import Pair
from acstor.repository import layout
from acstor.repository.copying.object_check import check_object
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from acstor.repository.volumes.edits import RecordEdits
from acstor.repository.volumes.epoch_log import EpochLog
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.record_refs import Change
from acstor.repository.volumes.states import VolumeRecordEvent
from tests.unit.repository import interleaving
from tests.unit.repository.members.cloud import (
    NAMES,
    VOLUME,
    Cloud,
    FencedWriteError,
    Host,
    PromiseError,
    again,
)

RUNS = max(40, interleaving.ORDERS // 5)
BATCHES = 4
BURSTS = (1, 1, 2, 3, 8, 25)
OVER = (exception.ConflictError, exception.FencedError, FencedWriteError)
"""Errors that end an owner: another one has the volume."""
AMPLE = Bandwidth(total=1 << 40, threshold=1 << 40, minimum=1 << 30)


class Orders:
    """The processes of one run."""

    def __init__(self, cloud: Cloud, choice: random.Random) -> None:
        self.cloud = cloud
        self.choice = choice

    def serve(self, name: str, *, takes: bool) -> Callable[[base.Origin], None]:
        """Return a host that owns the volume again and again; in each epoch it writes."""

        def act(origin: base.Origin) -> None:
            host = Host(self.cloud, name, origin)
            if takes:
                again(lambda: self.cloud.allow(host.access.records(), name))
            for _ in range(3):
                with contextlib.suppress(exception.UnavailableError):
                    self._own(host)

        def until_over(origin: base.Origin) -> None:
            with contextlib.suppress(*OVER, exception.UnavailableError):
                act(origin)

        return until_over

    def _own(self, host: Host) -> None:
        again(host.acquire)
        for _ in range(self.choice.randint(0, 3)):
            host.write()
        what = self.choice.random()
        if what < 0.3:
            host.advance()
        elif what < 0.5:
            host.release()

    def move(self, member: str | None) -> Callable[[base.Origin], None]:
        def act(origin: base.Origin) -> None:
            with contextlib.suppress(exception.UnavailableError):
                self.cloud.records(origin).assign(VOLUME, member)

        return act

    def copy(self, origin: base.Origin) -> None:
        """Copy all log objects, seals too, to all members, one after the other."""
        inner = self.cloud.open()
        budgets = {name: SyncBudget(AMPLE) for name in NAMES}
        copies = MemberCopy(inner.replicated, budgets, check_object, verified_share=1.0)
        for _ in range(2):
            for source in NAMES:
                for key in sorted(self.cloud.stores[source]._objects):
                    if not key.startswith(layout.VOLUME_LOG_PREFIX):
                        continue
                    for target in set(NAMES) - {source}:
                        origin.get_ref("a-step")
                        with contextlib.suppress(exception.UnavailableError):
                            copies.copy(Pair(source, target), key)

    def lead(self, origin: base.Origin) -> None:
        """Make passes of the process that leads."""
        keeping = self.cloud.keeping()
        for _ in range(5):
            origin.get_ref("a-step")
            with contextlib.suppress(exception.AcstorError):
                keeping.run()

    def collect(self, origin: base.Origin) -> None:
        """Collect what nothing needs, at once."""
        for _ in range(3):
            with contextlib.suppress(exception.UnavailableError):
                repository = Repository.open(origin)
                Collector(repository, "g", 0.0, clock=self.cloud.clock).collect()

    def network(self, origin: base.Origin) -> None:
        """Take members away and back, and deliver late calls."""
        for _ in range(12):
            origin.get_ref("a-step")
            store = self.cloud.stores[self.choice.choice(NAMES)]
            store.is_away = self.choice.random() < 0.4
            for one in self.cloud.stores.values():
                one.deliver(0.3)


def run_once(seed: int, wanted: Sequence[str] = ()) -> None:
    """Run one order; raise PromiseError when a promise is broken."""
    choice = random.Random(seed)
    with interleaving.repeatable(seed), contextlib.closing(Cloud()) as cloud:
        begin(cloud)
        orders = Orders(cloud, choice)
        actions: dict[str, Callable[[base.Origin], None]] = {
            "x": orders.serve("x", takes=False),
            "y": orders.serve("y", takes=True),
            "to b": orders.move("b"),
            "to c": orders.move("c"),
            "back": orders.move(None),
            "copies": orders.copy,
            "leader": orders.lead,
            "collector": orders.collect,
            "network": orders.network,
        }
        names = list(wanted) or ["x", *choice.sample(sorted(actions.keys() - {"x"}), 5)]
        for store in cloud.stores.values():
            store.choice, store.bad_share = choice, choice.choice((0.0, 0.1, 0.25))
        kills = {name: choice.randint(1, 60) for name in names if choice.random() < 0.25}
        actors = [cloud.actor(name, actions[name]) for name in names]
        interleaving.run(actors, choice, kills, BURSTS)
        for actor in actors:
            if actor.error is not None:
                raise PromiseError(f"seed {seed}: {actor.name}: {actor.error!r}") from actor.error
        cloud.check(seed)


def begin(cloud: Cloud) -> None:
    """Have a host write into the first epoch, in the home."""
    cloud.allow(cloud.store, "x")
    host = cloud.host("x")
    host.words = 100
    host.acquire()
    for _ in range(2):
        host.write()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_in_every_order_what_was_acknowledged_is_read(batch: int) -> None:
    for seed in range(batch, RUNS, BATCHES):
        run_once(seed)


# Broken variants


def sealed_where_it_goes(self: VolumeRecord, owner: str) -> VolumeRecord:
    after = _taken_by(self, owner)
    if after.unsealed is None:
        return after
    return dataclasses.replace(after, unsealed_member=self.assigned)


def unsealed_forgotten(self: VolumeRecord, owner: str) -> VolumeRecord:
    after = _taken_by(self, owner)
    if not self.epoch:
        return after
    return dataclasses.replace(after, unsealed=self.epoch, unsealed_member=self.member)


_taken_by = VolumeRecord.taken_by


def mover_moves_the_epoch(self: RecordEdits, volume_id: str, member: str | None) -> Change:
    return self._change(
        volume_id,
        VolumeRecordEvent.EDIT,
        lambda record: dataclasses.replace(record, assigned=member, member=member),
    )


def falls_through(self: EpochLog) -> base.ObjectStore:
    """Return the epoch's member, or the next one that answers."""
    origin = self._origin()
    for name in (self._member, *NAMES):
        store = origin.of_member(name)
        try:
            list(store.list(self._folder))
        except exception.UnavailableError:
            continue
        return store
    raise exception.UnavailableError("no member answers")


def not_sealed(self: Host, volume: str, epoch: int, first: int, member: str | None) -> Sealed:
    log = self.access.log_of(volume, epoch, member)
    places = [found[2] for key in log.list(layout.log_folder(volume, epoch))
              if (found := layout.parse_log_key(key))]  # fmt: skip
    last = max(places, default=first - 1)
    return Sealed(last if last >= first else None, max(last, first - 1) + 1)


BROKEN_VARIANTS: dict[str, AbstractContextManager[object]] = {
    "the old epoch is sealed where the volume goes": mock.patch.object(
        VolumeRecord, "taken_by", sealed_where_it_goes
    ),
    "an epoch that never began is sealed": mock.patch.object(
        VolumeRecord, "taken_by", unsealed_forgotten
    ),
    "the mover moves the epoch itself": mock.patch.object(
        RecordEdits, "assign", mover_moves_the_epoch
    ),
    "an epoch falls through to another member": mock.patch.object(
        EpochLog, "_store", falls_through
    ),
    "the old epoch is not sealed": mock.patch.object(Host, "_seal", not_sealed),
}


@pytest.mark.parametrize("variant", sorted(BROKEN_VARIANTS))
def test_broken_variants_are_found_out(variant: str) -> None:
    with BROKEN_VARIANTS[variant]:
        interleaving.find_out(
            lambda seed: run_once(seed, ("x", "y", "to b", "network")),
            (PromiseError, exception.AcstorError),
            orders=10 * RUNS,
        )
