"""Every order of the calls around a volume of the level ``strong``: its writes are in two members.

As :mod:`.move_model`, of which it has the network: a call is answered, or takes effect at any later
moment, or never. A host that takes over reaches any of the members that the epoch before was in, or
all: whichever it does not reach may be lost. So the disk must be whole in each single member that
the record says it is in, at every moment.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tests.unit.origin.replicated import exploration
from tests.unit.origin.replicated.exploration import HistoryError
from tests.unit.origin.replicated.move_model import SEAL, Slot, Write

MEMBERS = ("a", "b")


class Epoch(NamedTuple):
    """An epoch, and the members that its writes are in before they are acknowledged."""

    number: int
    copies: tuple[str, ...]


class Range(NamedTuple):
    """Closed range of an epoch."""

    epoch: int
    first: int
    last: int


class Record(NamedTuple):
    """The volume's ref in the home."""

    token: int = 0
    owner: str = ""
    epoch: Epoch = Epoch(0, MEMBERS)
    """Its copies are empty until the end of the epoch before is recorded."""
    next: int = 0
    unsealed: Epoch | None = None
    ranges: tuple[Range, ...] = ()


class Put(NamedTuple):
    """Request under way: a slot is to be occupied."""

    slot: Slot
    content: str


class Swap(NamedTuple):
    """Request under way: the record is to be replaced, if it is in the state that was read."""

    token: int
    record: Record


class Host(NamedTuple):
    """A host's process."""

    name: str
    phase: str = "idle"
    epoch: Epoch = Epoch(0, ())
    slot: int = 0
    stored: int = 0
    """Members that have the word under way."""
    sealing: int = 0
    """Epoch before, which this host ends."""
    reached: tuple[str, ...] = ()
    """Members of the epoch before that this host can ask while it seals."""
    word: int = 1
    acquisitions: int = 1
    changes: int = 1
    """Times that it may still take a member out, and take it in again."""
    view: tuple[str, ...] = ()


class World(NamedTuple):
    """Everything that there is at one moment."""

    hosts: tuple[Host, ...]
    record: Record
    objects: frozenset[tuple[Slot, str]] = frozenset()
    requests: frozenset[Put | Swap] = frozenset()
    history: tuple[Write, ...] = ()
    losses: int = 0

    def content(self, member: str, epoch: int, number: int) -> str | None:
        """Return the content of a slot, None where it is free."""
        for found, content in self.objects:
            if found == (member, epoch, number):
                return content
        return None

    def put(self, slot: Slot, content: str) -> tuple["World", str | None]:
        """Occupy a slot if it is free; return what it had."""
        found = self.content(*slot)
        if found is None:
            return self._replace(objects=self.objects | {(slot, content)}), None
        return self, found

    def with_host(self, host: Host) -> "World":
        """Return the same with one host changed."""
        return self._replace(
            hosts=tuple(host if one.name == host.name else one for one in self.hosts)
        )

    def swapped(self, record: Record) -> "World":
        """Return the world after a swap of the record from the state that it is in."""
        return self._replace(record=record._replace(token=self.record.token + 1))

    def unanswered(self, request: Put | Swap) -> Iterator["World"]:
        """Yield the world in which a call got no answer, if that may happen again."""
        if self.losses and request not in self.requests:
            yield self._replace(losses=self.losses - 1, requests=self.requests | {request})


@dataclasses.dataclass(frozen=True)
class Design:
    """The rules of the level ``strong`` (RFD 38); variants break one each."""

    words: int = 2
    acknowledges_all: bool = True
    """A write is acknowledged when all copies have it."""
    swaps_first: bool = True
    """A member is taken out of the record before a write is acknowledged without it."""
    fills: bool = True
    """Words before the seal are in all members that are reached before the end is recorded."""
    heeds_all_seals: bool = True
    """A seal in any member that is reached is the end."""
    counts_reached: bool = True
    """The next epoch is in the members that were reached, not in all."""
    copies_back: bool = True
    """A member has all that it lacks before it is taken in again."""
    writes_first: bool = True
    """The owner writes to a member before the record says that it is in again."""


# Owners


def steps_of_owner(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    """Yield what a host does that believes to own the volume."""
    if host.word <= design.words:
        yield from _write(world, host, design)
    if host.changes:
        yield from _take_out(world, host, design)
        yield from _take_in(world, host, design)


def _write(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    word = f"{host.name}{host.word}"
    slot = Slot(host.epoch.copies[host.stored], host.epoch.number, host.slot)
    for lost in world.unanswered(Put(slot, word)):
        yield f"{host.name}'s {word} without an answer", lost
    after, found = world.put(slot, word)
    if found not in (None, word):
        yield f"{host.name} is fenced by {slot}", _stopped(world, host)
        return
    stored = host.stored + 1
    if stored < len(host.epoch.copies) and design.acknowledges_all:
        yield f"{host.name} stores {word} in {slot}", after.with_host(host._replace(stored=stored))
        return
    after = after._replace(history=(*world.history, Write(word, host.epoch.number)))
    told = host._replace(slot=host.slot + 1, word=host.word + 1, stored=0)
    yield f"{host.name} acknowledges {word} after {slot}", after.with_host(told)


def _stopped(world: World, host: Host) -> World:
    return world.with_host(
        host._replace(phase="idle", reached=(), stored=0, word=host.word + 1, view=())
    )


def _changed(
    world: World, host: Host, design: Design, copies: tuple[str, ...], what: str
) -> Iterator[tuple[str, World]]:
    """Yield what becomes of a change of the members that the owner's epoch is in."""
    record = world.record
    if (record.owner, record.epoch.number) != (host.name, host.epoch.number):
        yield f"{host.name} sees another owner", _stopped(world, host)
        return
    epoch = Epoch(host.epoch.number, copies)
    after = record._replace(epoch=epoch)
    told = host._replace(epoch=epoch, changes=host.changes - 1, stored=0)
    is_more = len(copies) > len(host.epoch.copies)
    for lost in world.unanswered(Swap(record.token, after)):
        # Without an answer the stricter of both counts.
        unsure = told if is_more and design.writes_first else host
        yield f"{host.name}, without an answer, {what}", lost.with_host(unsure)
    yield f"{host.name} {what}", world.swapped(after).with_host(told)


def _take_out(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    if len(host.epoch.copies) < len(MEMBERS):
        return
    for kept in MEMBERS:
        if design.swaps_first:
            yield from _changed(world, host, design, (kept,), f"goes on in {kept} alone")
        else:
            epoch = host.epoch._replace(copies=(kept,))
            told = host._replace(epoch=epoch, changes=host.changes - 1, stored=0)
            yield f"{host.name} writes to {kept} alone", world.with_host(told)


def _take_in(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    if len(host.epoch.copies) == len(MEMBERS) or world.record.epoch != host.epoch:
        return
    kept = host.epoch.copies[0]
    other = next(member for member in MEMBERS if member != kept)
    after = world
    named = [
        (one.epoch, number)
        for one in world.record.ranges
        for number in range(one.first, one.last + 1)
    ]
    own = [(host.epoch.number, number) for number in range(world.record.next, host.slot)]
    for epoch, number in (*named, *own) if design.copies_back else ():
        content = world.content(kept, epoch, number)
        assert content is not None
        after, found = after.put(Slot(other, epoch, number), content)
        if found not in (None, content):
            return  # a seal of a host that was fenced is there: this member has to stay out
    yield from _changed(after, host, design, (kept, other), f"takes {other} in")


# Hosts that take over


def steps_of_heir(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    """Yield what a host does that is to become the owner."""
    if host.phase == "idle" and host.acquisitions:
        yield from _acquire(world, host)
    elif host.phase == "sealing":
        yield from _seal(world, host, design)
    elif host.phase == "recording":
        yield from _record(world, host, design)


def _acquire(world: World, host: Host) -> Iterator[tuple[str, World]]:
    record = world.record
    unsealed = record.unsealed or record.epoch
    epoch = Epoch(record.epoch.number + 1, ())
    after = record._replace(owner=host.name, epoch=epoch, unsealed=unsealed)
    fewer = host._replace(acquisitions=host.acquisitions - 1)
    for lost in world.unanswered(Swap(record.token, after)):
        yield f"{host.name}'s acquisition without an answer", lost.with_host(fewer)
    for count in range(1, len(unsealed.copies) + 1):
        for reached in itertools.combinations(unsealed.copies, count):
            told = fewer._replace(
                phase="sealing",
                epoch=epoch,
                sealing=unsealed.number,
                slot=record.next,
                reached=reached,
            )
            name = f"{host.name} acquires, and reaches {'-'.join(reached)}"
            yield name, world.swapped(after).with_host(told)


def _is_fenced(world: World, host: Host) -> bool:
    record = world.record
    return (record.owner, record.epoch.number) != (host.name, host.epoch.number)


def _seal(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    """Look at one slot in all members that are reached, and fill or seal it.

    A host that is fenced by now does so, too: it has not looked at the record.
    """
    looked_at = host.reached if design.heeds_all_seals else host.reached[:1]
    contents = [world.content(member, host.sealing, host.slot) for member in looked_at]
    words = [one for one in contents if one not in (None, SEAL)]
    ended = host._replace(phase="recording")
    if SEAL in contents:
        yield f"{host.name} finds the end", world.with_host(ended)
    elif words:
        yield from _fill(world, host, design, Slot("", host.sealing, host.slot), str(words[0]))
    else:
        slot = Slot(host.reached[0], host.sealing, host.slot)
        for lost in world.unanswered(Put(slot, SEAL)):
            yield f"{host.name}'s seal without an answer", lost
        yield f"{host.name} seals {slot}", world.put(slot, SEAL)[0].with_host(ended)


def _fill(
    world: World, host: Host, design: Design, slot: Slot, word: str
) -> Iterator[tuple[str, World]]:
    following = host._replace(slot=host.slot + 1)
    if design.fills:
        for member in host.reached:
            wanted = slot._replace(member=member)
            if world.content(*wanted) is None:
                for lost in world.unanswered(Put(wanted, word)):
                    yield f"{host.name}'s copy without an answer", lost
                yield f"{host.name} copies {word} to {wanted}", world.put(wanted, word)[0]
                return
    yield f"{host.name} walks past {word}", world.with_host(following)


def _record(world: World, host: Host, design: Design) -> Iterator[tuple[str, World]]:
    record = world.record
    if _is_fenced(world, host) or record.unsealed is None:
        yield f"{host.name} is fenced by the record", _stopped(world, host)
        return
    ranges = record.ranges
    if host.slot > record.next:
        ranges = (*ranges, Range(record.unsealed.number, record.next, host.slot - 1))
    epoch = Epoch(host.epoch.number, host.reached if design.counts_reached else MEMBERS)
    after = record._replace(ranges=ranges, next=host.slot + 1, unsealed=None, epoch=epoch)
    for lost in world.unanswered(Swap(record.token, after)):
        yield f"{host.name}'s record of the end without an answer", lost
    told = host._replace(phase="serving", epoch=epoch, slot=host.slot + 1, stored=0)
    swapped = world.swapped(after)
    view = read(swapped, host.reached[0])
    yield f"{host.name} records the end", swapped.with_host(told._replace(view=view))


# What has to be true


def read(world: World, member: str) -> tuple[str, ...]:
    """Return the words of the disk as one member has them."""
    record = world.record
    words = [
        world.content(member, one.epoch, number) or f"nothing in {one}"
        for one in record.ranges
        for number in range(one.first, one.last + 1)
    ]
    open_epoch, number = record.unsealed or record.epoch, record.next
    while True:
        content = world.content(member, open_epoch.number, number)
        if content is None or content == SEAL:
            return tuple(words)
        words.append(content)
        number += 1


def check(world: World) -> None:
    """Compare the disk in each member that has to have it with the history of the writes.

    :raises HistoryError: when one alone would not do.
    """
    told = [write.word for write in sorted(world.history, key=lambda write: write.epoch)]
    for member in (world.record.unsealed or world.record.epoch).copies:
        found = read(world, member)
        if [word for word in found if word in told] != told:
            raise HistoryError(f"{found} is in {member}, {told} was acknowledged")
        if any(word.startswith("nothing") or word == SEAL for word in found):
            raise HistoryError(f"{found} is in {member}")
        for host in world.hosts:
            if host.phase == "serving" and found[: len(host.view)] != host.view:
                raise HistoryError(f"{host.name} found {host.view}, {found} is in {member}")


def steps(world: World, design: Design) -> Iterator[tuple[str, World]]:
    """Yield everything that may happen next."""
    for host in world.hosts:
        if host.phase == "serving":
            yield from steps_of_owner(world, host, design)
        else:
            yield from steps_of_heir(world, host, design)
    for request in world.requests:
        after = world._replace(requests=world.requests - {request})
        if isinstance(request, Swap):
            if request.token == world.record.token:
                yield "a late swap", after.swapped(request.record)
        elif world.content(*request.slot) is None:
            yield "a late object", after.put(request.slot, request.content)[0]


def explore(start: World, design: Design) -> tuple[int, set[str]]:
    """Visit every state that can be reached; see :func:`.exploration.explore`."""
    return exploration.explore(start, lambda world: steps(world, design), check)
