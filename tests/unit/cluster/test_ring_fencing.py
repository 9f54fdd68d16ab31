"""Publishers of the ring that were stopped, cut off, or believe in a lock that they have lost."""

from collections.abc import Callable

import pytest

from acstor import exception
from acstor.cluster.membership import View
from acstor.cluster.ring.departure import remove_host
from acstor.cluster.ring.publication import RingPublisher
from acstor.cluster.ring.published_ring import (
    GENERATION_REF,
    RING_REF,
    RingReference,
    encode_generation,
    read_ring,
)
from acstor.cluster.ring.publisher_term import TERM_REF, PublisherTerm, TermHolder
from acstor.origin import base
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from tests.unit.agent.conftest import Clock
from tests.unit.cluster.ring_publishers import look, make_publisher, named, owners


class PausingOrigin(FaultyOrigin):
    """Calls ``pauses[operation]`` once, before the next call of that operation is passed on."""

    def __init__(self, inner: base.Origin) -> None:
        super().__init__(inner)
        self.pauses: dict[tuple[Operation, str], Callable[[], object]] = {}

    def _pause(self, operation: Operation, name: str) -> None:
        pause = self.pauses.pop((operation, name), None)
        if pause is not None:
            pause()

    def get_ref(self, name: str) -> base.Ref | None:
        self._pause(Operation.GET_REF, name)
        return super().get_ref(name)

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        self._pause(Operation.GET_REF, name)
        return super().refresh_ref(name, known)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        self._pause(Operation.SWAP_REF, name)
        return super().swap_ref(name, expected, content)


def generation(origin: base.Origin) -> int:
    published = read_ring(origin)
    assert published is not None
    return published.ring.generation


@pytest.mark.parametrize(
    "point",
    [
        (Operation.GET_REF, RING_REF),
        (Operation.GET_REF, TERM_REF),
        (Operation.SWAP_REF, RING_REF),
        None,
    ],
    ids=["before the ring is read", "before the term is read", "before the swap", "as it looks"],
)
@pytest.mark.parametrize("has_published", [True, False], ids=["published", "only claimed"])
def test_publisher_that_slept_does_not_overwrite_a_later_one(
    clock: Clock, point: tuple[Operation, str] | None, has_published: bool
) -> None:
    """Its lock seems to be held all the while: its clock stood still with it."""
    shared = MemoryOrigin()
    origin = PausingOrigin(shared)
    slow, later = make_publisher(origin, clock), make_publisher(shared, clock, host="h2")
    both, three = named("h1", "h2"), named("h1", "h2", "h3")
    assert look(slow, both) is not None
    seen = View(both, is_current=True, is_publisher=True)

    def overtake() -> None:
        look(later, three if has_published else both)

    def membership() -> View:
        if point is None:
            overtake()
        return View(named("h1"), is_current=True, is_publisher=True)

    assert slow.reconcile(lambda: seen) is None
    if point is not None:
        origin.pauses[point] = overtake
    clock.now += 120  # what is read again once a minute is
    try:
        assert slow.reconcile(membership) is None
    except exception.FencedError:
        assert slow.term is None
    assert owners(shared) == (["h1", "h2", "h3"] if has_published else ["h1", "h2"])
    assert later.term == 2


def test_ring_that_changes_while_the_members_are_seen_is_not_overwritten(
    origin: FaultyOrigin, clock: Clock
) -> None:
    """By somebody without a term: an agent of an older release, or an operator."""
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1", "h2"))

    def slow_membership() -> View:
        assert remove_host(origin, "h2")
        return View(named("h1", "h2", "h3"), is_current=True, is_publisher=True)

    assert publisher.reconcile(slow_membership) is None
    assert owners(origin) == ["h1"]


def test_lock_that_is_lost_while_the_ring_is_built_is_noticed_before_the_swap(
    origin: FaultyOrigin, clock: Clock
) -> None:
    held = [True]
    publisher = make_publisher(origin, clock, is_elected=lambda: held[0])
    look(publisher, named("h1", "h2"))

    def slow_membership() -> View:
        held[0] = False
        return View(named("h1", "h2", "h3"), is_current=True, is_publisher=True)

    swaps = origin.calls[Operation.SWAP_REF]
    with pytest.raises(exception.FencedError):
        publisher.reconcile(slow_membership)
    assert origin.calls[Operation.SWAP_REF] == swaps
    assert owners(origin) == ["h1", "h2"]


def test_two_that_believe_in_their_locks_take_turns_by_election_only(
    origin: FaultyOrigin, clock: Clock
) -> None:
    """A partition of the coordination: each sees the members of its own side.

    Each that is overtaken has to be elected anew, which only one is; before, each went on
    publishing whenever the other had.
    """
    sides = {
        "h1": (make_publisher(origin, clock), named("h1", "h2")),
        "h3": (make_publisher(origin, clock, host="h3"), named("h3", "h4")),
    }
    fenced: set[str] = set()
    generations = []
    for _ in range(6):
        for name, (publisher, found) in sides.items():
            clock.now += 70
            if name not in fenced:
                try:
                    look(publisher, found)
                except exception.FencedError:
                    fenced.add(name)
        generations.append(generation(origin))
    assert fenced == {"h1"}
    # One or no host a minute leaves, and nobody puts one back.
    assert owners(origin)[-2:] == ["h3", "h4"]


def test_claim_moves_nothing_and_keeps_the_generation(origin: FaultyOrigin, clock: Clock) -> None:
    found = named("h1", "h2")
    look(make_publisher(origin, clock), found)
    before = read_ring(origin)
    assert before is not None
    second = make_publisher(origin, clock, host="h2")
    assert look(second, found) is None
    after = read_ring(origin)
    assert after is not None
    assert (after.content, after.token == before.token) == (before.content, False)
    assert second.term == 2


@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.LOST_ANSWER])
@pytest.mark.parametrize("call", [1, 2])
def test_claim_without_an_answer_is_made_again(clock: Clock, effect: Effect, call: int) -> None:
    shared = MemoryOrigin()
    look(make_publisher(shared, clock), named("h1", "h2"))
    origin = FaultyOrigin(shared, [Fault(Operation.SWAP_REF, effect, call)])
    publisher = make_publisher(origin, clock, host="h2")
    with pytest.raises(exception.UnavailableError):
        look(publisher, named("h1", "h2"))
    assert publisher.term is None
    assert look(publisher, named("h1", "h2", "h3")) is not None
    assert owners(shared) == ["h1", "h2", "h3"]
    # Where it is known that the term was claimed, there is no need for another one.
    assert publisher.term == (3 if (call, effect) == (1, Effect.LOST_ANSWER) else 2)


def test_no_term_is_claimed_for_a_ring_that_cannot_be_read(clock: Clock) -> None:
    """Each look would claim another one, and write it to the origin, until somebody repairs it."""
    origin = MemoryOrigin()
    origin.swap_ref(RING_REF, None, b"not a ring")
    publisher = make_publisher(origin, clock)
    for _ in range(3):
        with pytest.raises(exception.CorruptError):
            look(publisher, named("h1"))
    assert origin.get_ref(TERM_REF) is None


def test_who_is_no_member_claims_no_term(clock: Clock) -> None:
    origin = MemoryOrigin()
    publisher = make_publisher(origin, clock)
    for found in ({}, named("h2", "h3")):
        assert look(publisher, found) is None
    assert origin.get_ref(TERM_REF) is None


def test_claims_at_the_same_moment_leave_one_term(clock: Clock) -> None:
    shared = MemoryOrigin()
    look(make_publisher(shared, clock), named("h1", "h2"))
    origin = PausingOrigin(shared)
    first = make_publisher(origin, clock)
    second = make_publisher(shared, clock, host="h2")
    origin.pauses[Operation.SWAP_REF, TERM_REF] = lambda: look(second, named("h1", "h2"))
    assert look(first, named("h1", "h2")) is None
    assert (first.term, second.term) == (None, 2)


def test_who_stands_by_needs_another_term(origin: FaultyOrigin, clock: Clock) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1"))
    publisher.stand_by()
    assert publisher.term is None
    look(publisher, named("h1"))
    assert publisher.term == 2


def test_who_has_no_term_publishes_nothing(origin: FaultyOrigin) -> None:
    with pytest.raises(exception.FencedError):
        TermHolder(origin, "h1").check()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"7",
        b'{"version": 1}',
        b'{"version": 1, "term": 0, "publisher": "h1", "claimed_at_ms": 0}',
        b'{"version": 1, "term": true, "publisher": "h1", "claimed_at_ms": 0}',
        b'{"version": 1, "term": 1, "publisher": 7, "claimed_at_ms": 0}',
        b'{"version": 1, "term": 1, "publisher": "h1", "claimed_at_ms": -1}',
    ],
)
def test_malformed_term_is_told_and_replaced(clock: Clock, content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        PublisherTerm.parse(content)
    origin = MemoryOrigin()
    origin.swap_ref(TERM_REF, None, content)
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1"))
    assert publisher.term == 1


class Damageable(MemoryOrigin):
    """An origin whose store has damaged a ref, until that is replaced."""

    damaged: str | None = None

    def get_ref(self, name: str) -> base.Ref | None:
        ref = super().get_ref(name)
        if ref is not None and ref.token == self.damaged:
            raise base.DamagedRefError("not what was written", token=ref.token)
        return ref


def damage(origin: Damageable, name: str) -> None:
    ref = origin.get_ref(name)
    assert ref is not None
    origin.damaged = ref.token


def test_publisher_goes_on_after_the_store_damaged_its_term(clock: Clock) -> None:
    origin = Damageable()
    former = make_publisher(origin, clock)
    for _ in range(3):
        former.stand_by()
        look(former, named("h1"))
    damage(origin, TERM_REF)
    with pytest.raises(exception.FencedError):
        look(former, named("h1", "h2"))
    assert look(former, named("h1", "h2")) is not None
    assert former.term == 4, "after any that it has seen"
    # And who was not there before, likewise.
    damage(origin, TERM_REF)
    second = make_publisher(origin, clock, host="h2")
    assert look(second, named("h1", "h2", "h3")) is not None
    with pytest.raises(exception.FencedError):
        look(former, named("h1", "h2"))
    assert owners(origin) == ["h1", "h2", "h3"]


def test_damaged_ring_is_replaced_by_nobody(clock: Clock) -> None:
    origin = Damageable()
    look(make_publisher(origin, clock), named("h1"))
    damage(origin, RING_REF)
    second = make_publisher(origin, clock, host="h2")
    with pytest.raises(exception.CorruptError):
        look(second, named("h1", "h2"))
    assert second.term is None


def test_damaged_number_of_the_ring_is_written_anew(clock: Clock) -> None:
    origin = Damageable()
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1"))
    damage(origin, GENERATION_REF)
    assert look(publisher, named("h1", "h2")) is not None
    ref = origin.get_ref(GENERATION_REF)
    assert ref is not None
    assert ref.content == encode_generation(2)


def test_term_of_a_newer_release_is_left_alone(clock: Clock) -> None:
    origin = MemoryOrigin()
    content = b'{"version": 2, "term": 1, "publisher": "h1", "claimed_at_ms": 0}'
    origin.swap_ref(TERM_REF, None, content)
    with pytest.raises(exception.UnsupportedError):
        look(make_publisher(origin, clock), named("h1"))
    ref = origin.get_ref(TERM_REF)
    assert ref is not None
    assert ref.content == content


def test_damaged_ring_is_not_renewed(clock: Clock) -> None:
    origin = MemoryOrigin()
    token = origin.swap_ref(RING_REF, None, b"not a ring")
    with pytest.raises(exception.CorruptError):
        RingReference(origin, clock).renew()
    assert origin.get_ref(RING_REF) == base.Ref(str(token), b"not a ring")


def test_overtaken_publisher_is_one_of_the_members_again(
    origin: FaultyOrigin, clock: Clock
) -> None:
    publisher: RingPublisher = make_publisher(origin, clock)
    look(publisher, named("h1"))
    look(make_publisher(origin, clock, host="h2"), named("h1", "h2"))
    with pytest.raises(exception.FencedError):
        look(publisher, named("h1", "h2", "h3"))
    # Elected again, it claims again, and from then on it counts.
    assert look(publisher, named("h1", "h2", "h3")) is not None
    assert publisher.term == 3
