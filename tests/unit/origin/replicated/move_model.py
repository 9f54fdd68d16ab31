"""Every order of the calls of hosts, movers and a network around the move of one volume.

A state of the :class:`World` is a value, so that all states that can be reached are visited once,
whatever order leads there. A call either is answered, or becomes a request under way: that takes
effect at any later moment, or never. So a cut network, a lost answer and a late request are all of
its kinds; a host that is cut off is one that makes no call for a while. Any host may take the
volume at any moment, as if the one before had been declared lost.

What must be read follows from the history of acknowledged writes and from nothing else. It is
compared in each state with what an heir would find that took the volume right then.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from tests.unit.origin.replicated import exploration
from tests.unit.origin.replicated.exploration import HistoryError

MEMBERS = ("a", "b")
SEAL = "seal"
"""Content of a slot that ends an epoch; all other contents are words that guests have written."""


class Epoch(NamedTuple):
    """An epoch, and the one member in which its slots are."""

    number: int
    member: str


class Range(NamedTuple):
    """Closed range of an epoch."""

    epoch: Epoch
    first: int
    last: int


class Record(NamedTuple):
    """The volume's ref in the home, as far as it says who writes, and to what place."""

    token: int = 0
    owner: str = ""
    epoch: Epoch = Epoch(0, "a")
    next: int = 0
    assigned: str = "a"
    """Member of the next epoch."""
    unsealed: Epoch | None = None
    ranges: tuple[Range, ...] = ()


class Slot(NamedTuple):
    """Name of a log object in one member."""

    member: str
    epoch: int
    number: int


class Put(NamedTuple):
    """Request under way: a slot is to be occupied."""

    slot: Slot
    content: str


class Swap(NamedTuple):
    """Request under way: the record is to be replaced, if it is in the state that was read."""

    token: int
    record: Record


class Write(NamedTuple):
    """A write that a guest was told of."""

    word: str
    epoch: int


class Host(NamedTuple):
    """A host's process: what it does, and what it knows."""

    name: str
    phase: str = "idle"
    epoch: Epoch = Epoch(0, "a")
    """Epoch that it believes to own."""
    slot: int = 0
    """Next slot that it tries: of the epoch that it seals, or of its own."""
    sealing: Epoch | None = None
    word: int = 1
    """Number of the guest's next write."""
    acquisitions: int = 1
    """Times that it may still become the owner after somebody else."""
    view: tuple[str, ...] = ()
    """The disk as its guest found it."""


class World(NamedTuple):
    """Everything that there is at one moment."""

    hosts: tuple[Host, ...]
    movers: tuple[str, ...]
    """Members to which somebody is still going to move the volume."""
    record: Record = Record()
    objects: frozenset[tuple[Slot, str]] = frozenset()
    requests: frozenset[Put | Swap] = frozenset()
    history: tuple[Write, ...] = ()
    losses: int = 0
    """Calls that may still be left without an answer."""
    removals: int = 0
    """Members that may still be taken away."""
    removed: frozenset[str] = frozenset()

    def content(self, slot: Slot) -> str | None:
        """Return the content of a slot, None where it is free."""
        for found, content in self.objects:
            if found == slot:
                return content
        return None

    def with_host(self, host: Host) -> "World":
        """Return the same with one host changed."""
        return self._replace(
            hosts=tuple(host if one.name == host.name else one for one in self.hosts)
        )


@dataclasses.dataclass(frozen=True)
class Design:
    """The rules of epochs and members (RFD 38); variants override what they break."""

    words: int = 2
    """Writes of each host's guest."""

    def acquired(self, record: Record, host: str) -> Record:
        """Return the record after a host has begun a new epoch, also its own after its own."""
        unsealed = record.unsealed
        if unsealed is None and record.epoch.number:
            unsealed = record.epoch
        epoch = Epoch(record.epoch.number + 1, record.assigned)
        return record._replace(owner=host, epoch=epoch, unsealed=unsealed)

    def moved(self, record: Record, host: str) -> Record:
        """Return the record after the owner has followed the assignment."""
        return self.acquired(record, host)

    def assigned(self, record: Record, member: str) -> Record:
        """Return the record after a mover has asked for a move."""
        return record._replace(assigned=member)

    def recorded(self, record: Record, last: int, seal: int) -> Record:
        """Return the record after the end of the epoch before is known."""
        assert record.unsealed is not None
        ranges = record.ranges
        if last >= record.next:
            ranges = (*ranges, Range(record.unsealed, record.next, last))
        return record._replace(ranges=ranges, next=seal + 1, unsealed=None)

    def is_sealed(self) -> bool:
        """Return whether the end is occupied, or only looked for."""
        return True

    def is_recorded_first(self) -> bool:
        """Return whether the end is in the record before anything is written."""
        return True

    def sealing_members(self, epoch: Epoch) -> tuple[str, ...]:
        """Return the members whose slots are taken for those of an epoch that is sealed."""
        return (epoch.member,)

    def walked_members(self, epoch: Epoch) -> tuple[str, ...]:
        """Return the members in which slots of an open epoch are looked for."""
        return (epoch.member,)

    def withdraws_access(self) -> bool:
        """Return whether nobody can write to a member any more once it is emptied."""
        return True


# The calls


def put(world: World, slot: Slot, content: str) -> tuple[World, str | None]:
    """Occupy a slot if it is free; return what it had."""
    found = world.content(slot)
    if found is None:
        world = world._replace(objects=world.objects | {(slot, content)})
    return world, found


def swapped(world: World, record: Record) -> World:
    """Return the world after a swap of the record from the state that it is in."""
    return world._replace(record=record._replace(token=world.record.token + 1))


def unanswered(world: World, request: Put | Swap) -> Iterator[World]:
    """Yield the world in which a call got no answer, if that may happen again."""
    if world.losses and request not in world.requests:
        yield world._replace(losses=world.losses - 1, requests=world.requests | {request})


def delivered(world: World) -> Iterator[tuple[str, World]]:
    """Yield what becomes of each request under way that takes effect now."""
    for request in world.requests:
        after = world._replace(requests=world.requests - {request})
        if isinstance(request, Swap):
            if request.token == world.record.token:
                yield "a late swap", swapped(after, request.record)
        elif request.slot.member not in world.removed and world.content(request.slot) is None:
            yield "a late object", put(after, request.slot, request.content)[0]


# The hosts


def steps_of_host(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    """Yield what a host may do next."""
    if host.phase == "idle":
        yield from _acquire(world, host, design)
    elif host.phase == "sealing":
        yield from _seal(world, host, design)
    elif host.phase == "recording":
        yield from _record(world, host, design)
    else:
        yield from _write(world, host, design)
        yield from _look(world, host, design)


def _acquire(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    if not host.acquisitions:
        return
    after = design.acquired(world.record, host.name)
    fewer = host._replace(acquisitions=host.acquisitions - 1)
    for lost in unanswered(world, Swap(world.record.token, after)):
        yield f"{host.name}'s acquisition without an answer", lost.with_host(fewer)
    yield f"{host.name} acquires", _begun(swapped(world, after), fewer, design)


def _begun(world: World, host: Host, design: Design) -> World:
    """Return the world in which a host goes on in the epoch that the record says."""
    record = world.record
    if record.unsealed is None:
        return _serving(world, host, record.next, design)
    return world.with_host(
        host._replace(
            phase="sealing", epoch=record.epoch, sealing=record.unsealed, slot=record.next
        )
    )


def _serving(world: World, host: Host, slot: int, design: Design) -> World:
    epoch = world.record.epoch
    view = read(world, design)
    return world.with_host(
        host._replace(phase="serving", epoch=epoch, sealing=None, slot=slot, view=view)
    )


def _seal(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    assert host.sealing is not None
    for member in design.sealing_members(host.sealing):
        if member in world.removed:
            continue
        slot = Slot(member, host.sealing.number, host.slot)
        after, found = world, _walked(world, design, host.sealing, host.slot)
        if found is None and design.is_sealed():
            for lost in unanswered(world, Put(slot, SEAL)):
                yield f"{host.name}'s seal without an answer", lost
            after, found = put(world, slot, SEAL)
        if found is None or found == SEAL:
            ended = host._replace(phase="recording")
            if not design.is_recorded_first():
                ended = ended._replace(
                    phase="serving", slot=host.slot + 1, view=read(after, design)
                )
            yield f"{host.name} seals {slot}", after.with_host(ended)
        else:
            yield f"{host.name} walks {slot}", after.with_host(host._replace(slot=host.slot + 1))


def _walked(world: World, design: Design, epoch: Epoch, number: int) -> str | None:
    """Return the content of a slot of an open epoch, None where it is free."""
    slots = (Slot(member, epoch.number, number) for member in design.walked_members(epoch))
    return next((content for slot in slots if (content := world.content(slot))), None)


def _record(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    record = world.record
    if (record.owner, record.epoch) != (host.name, host.epoch):
        yield f"{host.name} is fenced by the record", _stopped(world, host)
        return
    if record.unsealed is None:
        yield f"{host.name} finds the end recorded", _serving(world, host, record.next, design)
        return
    after = design.recorded(record, host.slot - 1, host.slot)
    for lost in unanswered(world, Swap(record.token, after)):
        yield f"{host.name}'s record of the end without an answer", lost
    ended = _serving(swapped(world, after), host, host.slot + 1, design)
    yield f"{host.name} records the end", ended


def _write(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    if host.word > design.words or host.epoch.member in world.removed:
        return
    word = f"{host.name}{host.word}"
    slot = Slot(host.epoch.member, host.epoch.number, host.slot)
    for lost in unanswered(world, Put(slot, word)):
        yield f"{host.name}'s {word} without an answer", lost
    after, found = put(world, slot, word)
    if found not in (None, word):
        yield f"{host.name} is fenced by {slot}", _stopped(world, host)
        return
    after = after._replace(history=(*world.history, Write(word, host.epoch.number)))
    told = host._replace(slot=host.slot + 1, word=host.word + 1)
    yield f"{host.name} stores {word} in {slot}", after.with_host(told)


def _stopped(world: World, host: Host) -> World:
    """Return the world in which a guest's write has failed: another host has its disk."""
    return world.with_host(host._replace(phase="idle", sealing=None, word=host.word + 1, view=()))


def _look(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    """Look at the record, as an owner does now and then if the network lets it."""
    record = world.record
    if record.owner != host.name:
        yield f"{host.name} sees another owner", _stopped(world, host)
    elif record.epoch != host.epoch:
        yield f"{host.name} sees its own late change", _followed(world, host, design)
    elif record.assigned != host.epoch.member:
        after = design.moved(record, host.name)
        for lost in unanswered(world, Swap(record.token, after)):
            yield f"{host.name}'s move without an answer", lost
        yield (
            f"{host.name} moves to {record.assigned}",
            _followed(swapped(world, after), host, design),
        )


def _followed(world: World, host: Host, design: Design) -> World:
    """Return the world in which an owner goes on as the record says."""
    if world.record.epoch.number == host.epoch.number:  # a broken variant: the same slots go on
        return world.with_host(host._replace(epoch=world.record.epoch))
    return _begun(world, host, design)


# The control plane


def steps_of_control_plane(world: World, design: Design) -> Iterator[tuple[str, World]]:
    """Yield what movers, the synchronisation and the removal of a member may do next."""
    record = world.record
    for index, member in enumerate(world.movers):
        left = world._replace(movers=world.movers[:index] + world.movers[index + 1 :])
        after = design.assigned(record, member)
        for lost in unanswered(left, Swap(record.token, after)):
            yield f"a mover's {member} without an answer", lost
        yield f"a mover assigns {member}", swapped(left, after)
    if world.removals:
        yield from _synchronise(world)
        yield from _remove(world, design)


def _synchronise(world: World) -> Iterator[tuple[str, World]]:
    for slot, content in world.objects:
        if content == SEAL:
            continue  # it counts in its own member only
        for member in MEMBERS:
            if member != slot.member and member not in world.removed:
                copy = slot._replace(member=member)
                if world.content(copy) is None:
                    yield f"copy {slot} to {member}", put(world, copy, content)[0]


def _remove(world: World, design: Design) -> Iterator[tuple[str, World]]:
    record = world.record
    for member in MEMBERS:
        is_used = member in (record.epoch.member, record.assigned) or record.unsealed is not None
        if member in world.removed or is_used or _lacking_without(world, member):
            continue
        objects = frozenset(one for one in world.objects if one[0].member != member)
        removed = world.removed | {member} if design.withdraws_access() else world.removed
        yield (
            f"remove {member}",
            world._replace(objects=objects, removals=world.removals - 1, removed=removed),
        )


def _lacking_without(world: World, member: str) -> bool:
    others = [other for other in MEMBERS if other != member]
    return any(
        all(world.content(Slot(other, one.epoch.number, number)) is None for other in others)
        for one in world.record.ranges
        for number in range(one.first, one.last + 1)
    )


# What has to be true


def read(world: World, design: Design) -> tuple[str, ...]:
    """Return the words that an heir would find if it took the volume now."""
    record = world.record
    words = []
    for one in record.ranges:
        for number in range(one.first, one.last + 1):
            members = (one.epoch.member, *MEMBERS)
            slots = (Slot(member, one.epoch.number, number) for member in members)
            found = (content for slot in slots if (content := world.content(slot)) is not None)
            words.append(next(found, f"nothing in {one}"))
    open_epoch = record.unsealed or record.epoch
    number = record.next
    while True:
        content = _walked(world, design, open_epoch, number)
        if content is None or content == SEAL:
            return _once(words)
        words.append(content)
        number += 1


def _once(words: list[str]) -> tuple[str, ...]:
    """Return words without those that were written again right away after a lost answer."""
    return tuple(word for index, word in enumerate(words) if not index or word != words[index - 1])


def check(world: World, design: Design) -> None:
    """Compare what would be read with what guests were told, and with what they have seen.

    Writes are in the order of their epochs, and within each as they were acknowledged. One that was
    stored before the seal may be acknowledged when the next owner has written already: its answer
    was lost, and the guest has waited for it all the time.

    :raises HistoryError: when a write is missing or in another order, or a disk has changed under
        a guest that did not change it.
    """
    found = read(world, design)
    told = [write.word for write in sorted(world.history, key=lambda write: write.epoch)]
    if [word for word in found if word in told] != told:
        raise HistoryError(f"{found} is read, {told} was acknowledged")
    for host in world.hosts:
        if host.phase == "serving" and found[: len(host.view)] != host.view:
            raise HistoryError(f"{host.name} found {host.view}, and {found} is read")


def steps(world: World, design: Design) -> Iterator[tuple[str, World]]:
    """Yield everything that may happen next."""
    for host in world.hosts:
        yield from steps_of_host(world, host, design)
    yield from steps_of_control_plane(world, design)
    yield from delivered(world)


def explore(start: World, design: Design) -> tuple[int, set[str]]:
    """Visit every state that can be reached; see :func:`.exploration.explore`."""
    return exploration.explore(
        start, lambda world: steps(world, design), lambda world: check(world, design)
    )
