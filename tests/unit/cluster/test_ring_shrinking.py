"""Hosts that nobody hears of, one or many: how fast the ring goes on without them."""

import contextlib
import dataclasses
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.cluster.member import Member
from acstor.cluster.ring.decision import Decision
from acstor.cluster.ring.departure import remove_host
from acstor.cluster.ring.published_ring import GENERATION_REF, RING_REF, read_ring
from acstor.cluster.ring.shrink_bound import ASKED_MAX
from acstor.origin import base
from acstor.origin.base import OvertakenError
from acstor.origin.faulty import Effect, FaultyOrigin
from acstor.origin.memory import MemoryOrigin
from tests.unit.agent.conftest import Clock
from tests.unit.cluster.ring_publishers import INTERVAL, look, make_publisher, member, named, owners


class RefFaultOrigin(FaultyOrigin):
    """Has swaps of one ref go wrong, each time; with ``DELAY`` something comes in between, once."""

    def __init__(self, inner: base.Origin, name: str, effect: Effect) -> None:
        super().__init__(inner)
        self.faulty_name = name
        self._effect = effect
        self.before_swap: Callable[[], None] | None = None

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        if name != self.faulty_name:
            return super().swap_ref(name, expected, content)
        if self._effect is Effect.ERROR:
            raise exception.UnavailableError(f"changing ref {name}")
        act, self.before_swap = self.before_swap, None
        if act is not None:
            act()
        token = super().swap_ref(name, expected, content)
        if self._effect is Effect.LOST_ANSWER:
            raise exception.UnavailableError(f"changing ref {name}")
        return token


HOSTS = [f"h{number}" for number in range(1, 21)]


def without(*gone: str) -> dict[str, Member]:
    return named(*(name for name in HOSTS if name not in gone))


def test_one_host_that_dies_leaves_at_once(origin: FaultyOrigin, clock: Clock) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1", "h2", "h3"))
    assert look(publisher, named("h1", "h3")) is not None
    assert owners(origin) == ["h1", "h3"]


def test_many_leave_a_share_each_interval(origin: FaultyOrigin, clock: Clock) -> None:
    """A rack dies, or is cut off: 8 of 20; two an interval, those that went first before."""
    publisher = make_publisher(origin, clock)
    look(publisher, named(*HOSTS))
    gone = HOSTS[5:13]
    first, rest = gone[:4], gone[4:]  # by name they come the other way round
    look(publisher, without(*first))
    left: list[int] = []
    for _ in range(5):
        clock.now += 1
        look(publisher, without(*gone))
        look(publisher, without(*gone))
        left.append(20 - len(owners(origin)))
        if left[-1] == 4:
            assert set(rest) <= set(owners(origin))
        clock.now += INTERVAL
    assert left == [2, 4, 6, 8, 8]
    assert publisher.held == frozenset()
    assert sorted(owners(origin)) == sorted(without(*gone))


def test_those_that_come_back_never_left(origin: FaultyOrigin, clock: Clock) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named(*HOSTS))
    look(publisher, without(*HOSTS[2:12]))
    before = read_ring(origin)
    assert before is not None
    assert len(publisher.held) == 8
    assert look(publisher, named(*owners(origin))) is None
    assert publisher.held == frozenset()
    assert read_ring(origin) == before


def test_coordinator_that_forgot_everybody_shrinks_nothing(
    origin: FaultyOrigin, clock: Clock
) -> None:
    """It was restarted without its data; this host is the first that connects again."""
    publisher = make_publisher(origin, clock)
    look(publisher, named(*HOSTS))
    before = read_ring(origin)
    for seen in ({}, named("h1"), named("h2", "h3"), named("h1", "h2", "h3"), named(*HOSTS)):
        clock.now += 5
        assert look(publisher, seen, joined_at=1000.0) is None
    assert read_ring(origin) == before


@pytest.mark.parametrize("hosts", [2, 3, 4, 20])
def test_first_host_after_an_outage_waits_for_the_others(
    origin: FaultyOrigin, clock: Clock, hosts: int
) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named(*HOSTS[:hosts]))
    joined_at = clock.now
    seen = HOSTS[: max(1, hosts // 2)]
    clock.now += INTERVAL - 1
    assert look(publisher, named(*seen), joined_at=joined_at) is None
    clock.now += 1
    ring = look(publisher, named(*seen), joined_at=joined_at)
    allowed = {2: 1, 3: 0, 4: 1, 20: 2}[hosts]  # with three it is alone, and blind
    assert len(owners(origin)) == hosts - allowed
    assert (ring is None) == (allowed == 0)


def test_who_hears_of_nobody_is_blind_for_as_long_as_it_lasts(
    origin: FaultyOrigin, clock: Clock
) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named(*HOSTS))
    for _ in range(10):
        clock.now += INTERVAL
        assert look(publisher, named("h1")) is None
        assert publisher.is_blind
    assert sorted(owners(origin)) == sorted(HOSTS)
    look(publisher, named("h1", "h2"))
    assert not publisher.is_blind
    assert len(owners(origin)) == 18


def test_view_without_this_host_changes_nothing(origin: FaultyOrigin, clock: Clock) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1", "h2"))
    assert look(publisher, named("h2", "h3")) is None
    assert owners(origin) == ["h1", "h2"]


def test_drain_is_immediate_for_hosts_that_are_there_and_that_are_not(
    origin: FaultyOrigin, clock: Clock
) -> None:
    dismissed = set(HOSTS[10:16])
    publisher = make_publisher(origin, clock, is_dismissed=lambda name: name in dismissed)
    look(publisher, named(*HOSTS))
    draining = {
        name: dataclasses.replace(each, is_draining=name in HOSTS[5:10])
        for name, each in without(*dismissed).items()
    }
    assert look(publisher, draining, joined_at=clock.now) is not None
    assert sorted(owners(origin)) == sorted(set(HOSTS) - dismissed - set(HOSTS[5:10]))


def test_host_that_is_forgotten_leaves_the_ring_and_stays_away(
    origin: FaultyOrigin, clock: Clock
) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1", "h2", "h3", "h4"))
    gone = named("h1", "h2")
    joined_at = clock.now
    assert look(publisher, gone, joined_at=joined_at) is None
    before = read_ring(origin)
    assert remove_host(origin, "h3")
    assert remove_host(origin, "h9")
    after = read_ring(origin)
    assert before is not None
    assert after is not None
    assert after.ring.generation == before.ring.generation + 1
    assert owners(origin) == ["h1", "h2", "h4"]
    clock.now += 1
    assert look(publisher, gone, joined_at=joined_at) is None
    assert owners(origin) == ["h1", "h2", "h4"]
    assert publisher.held == {"h4"}
    assert publisher.term == 1


def test_last_host_of_a_ring_is_not_taken_out(origin: FaultyOrigin, clock: Clock) -> None:
    look(make_publisher(origin, clock), named("h1"))
    assert not remove_host(origin, "h1")
    assert owners(origin) == ["h1"]


def test_hosts_that_come_are_added_beside_those_that_are_missing(
    origin: FaultyOrigin, clock: Clock
) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1", "h2", "h3"))
    assert look(publisher, named("h1", "h2", "h4"), joined_at=clock.now) is not None
    assert owners(origin) == ["h1", "h2", "h3", "h4"]


def test_missing_hosts_keep_their_share_whatever_is_decided(
    origin: FaultyOrigin, clock: Clock
) -> None:
    publisher = make_publisher(origin, clock)
    look(publisher, named("h1", "h2", "h3", "h4"))
    seen, joined_at = named("h1", "h2"), clock.now

    def decide(sequence: int, **weights: int) -> dict[str, int] | None:
        decision = Decision(1, sequence, "leader", 0, "equation1", weights)
        ring = look(publisher, seen, decision, joined_at=joined_at)
        assert look(publisher, seen, decision, joined_at=joined_at) is None  # a fixed point
        return {host.name: host.vnodes for host in ring.hosts} if ring else None

    assert decide(1, h1=10000, h2=10000) == dict.fromkeys(("h1", "h2", "h3", "h4"), 16)
    assert decide(2, h1=5000, h2=15000) == {"h1": 8, "h2": 24, "h3": 16, "h4": 16}


def test_topology_that_was_given_another_depth_does_not_stop_rings(
    origin: FaultyOrigin, clock: Clock
) -> None:
    publisher = make_publisher(origin, clock)
    flat = {name: member(name, topology="a") for name in ("h1", "h2", "h3")}
    look(publisher, flat)
    deep = {name: member(name, topology="a/b") for name in ("h1", "h2")}
    ring = look(publisher, deep, joined_at=clock.now)
    assert ring is not None
    assert [host.topology for host in ring.hosts] == ["a/b", "a/b", ""]


@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.LOST_ANSWER])
@pytest.mark.parametrize("name", [RING_REF, GENERATION_REF])
def test_publication_that_fails_in_the_midst_counts(
    clock: Clock, effect: Effect, name: str
) -> None:
    """Before, each look whose number could not be written took out another share."""
    shared = MemoryOrigin()
    origin = RefFaultOrigin(shared, "", effect)
    publisher = make_publisher(origin, clock)
    look(publisher, named(*HOSTS))
    origin.faulty_name = name
    gone = HOSTS[5:15]
    for _ in range(5):
        with contextlib.suppress(exception.UnavailableError):
            look(publisher, without(*gone))
        assert len(owners(shared)) >= 18
        clock.now += 1


def test_publication_that_was_overtaken_after_a_lost_answer_counts(clock: Clock) -> None:
    class Overtaking(MemoryOrigin):
        """Changes the ring, as another host does right afterwards, and has lost the answer."""

        is_armed = False

        def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
            token = super().swap_ref(name, expected, content)
            if name == RING_REF and self.is_armed:
                self.is_armed = False
                super().swap_ref(name, token, content)
                raise OvertakenError("changed by someone else, and maybe by this call before")
            return token

    origin = Overtaking()
    publisher = make_publisher(origin, clock)
    look(publisher, named(*HOSTS))
    origin.is_armed = True
    for _ in range(3):
        look(publisher, without(*HOSTS[5:15]))
        assert len(owners(origin)) == 18
        clock.now += 1


def test_publication_that_another_overtook_takes_nothing_of_the_share(clock: Clock) -> None:
    origin = RefFaultOrigin(MemoryOrigin(), RING_REF, Effect.DELAY)
    publisher = make_publisher(origin, clock)
    look(publisher, named(*HOSTS))

    def overtake() -> None:
        assert remove_host(origin, "h20")

    origin.before_swap = overtake
    gone = [*HOSTS[5:15], "h20"]
    assert look(publisher, without(*gone)) is None
    assert len(owners(origin)) == 19
    look(publisher, without(*gone))
    assert len(owners(origin)) == 17


def test_desired_states_of_many_silent_hosts_are_asked_for_a_few_at_a_time(clock: Clock) -> None:
    origin = MemoryOrigin()
    many = [f"h{number}" for number in range(1, 4 * ASKED_MAX)]
    asked: list[str] = []

    def is_dismissed(name: str) -> bool:
        asked.append(name)
        return name == many[-1]

    publisher = make_publisher(origin, clock, is_dismissed=is_dismissed)
    look(publisher, named(*many))
    for looks in range(1, 4):
        look(publisher, named("h1", "h2"), joined_at=clock.now)
        assert len(asked) == looks * ASKED_MAX
    look(publisher, named("h1", "h2"), joined_at=clock.now)
    assert set(asked) == set(many[2:])
    published = read_ring(origin)
    assert published is not None
    assert {host.name for host in published.ring.hosts} == set(many[:-1])


def test_next_publisher_waits_for_an_interval(origin: FaultyOrigin, clock: Clock) -> None:
    """The one before may have used up the share a moment ago."""
    former = make_publisher(origin, clock, claim_clock=clock)
    look(former, named(*HOSTS))
    clock.now += INTERVAL
    gone = HOSTS[10:18]
    look(former, without(*gone))
    assert len(owners(origin)) == 18
    following = make_publisher(origin, clock, host="h2", claim_clock=clock)
    clock.now += INTERVAL / 2
    assert look(following, without(*gone)) is None
    clock.now += INTERVAL - 1
    assert look(following, without(*gone)) is None
    clock.now += 1
    assert look(following, without(*gone)) is not None
    assert len(owners(origin)) == 16


def test_publisher_that_is_elected_again_does_not_wait_anew(
    origin: FaultyOrigin, clock: Clock
) -> None:
    """A back-end that flaps: nobody else has published in between."""
    publisher = make_publisher(origin, clock, claim_clock=clock)
    look(publisher, named(*HOSTS))
    clock.now += INTERVAL - 1
    publisher.stand_by()
    assert look(publisher, without("h20")) is None
    assert publisher.term == 2
    clock.now += 1
    publisher.stand_by()
    assert look(publisher, without("h20")) is not None


def test_hosts_that_an_operator_dismissed_leave_the_share_to_others(
    origin: FaultyOrigin, clock: Clock
) -> None:
    dismissed: set[str] = set(HOSTS[15:])
    publisher = make_publisher(origin, clock, is_dismissed=lambda name: name in dismissed)
    look(publisher, named(*HOSTS))
    look(publisher, without(*dismissed))
    assert len(owners(origin)) == 15
    look(publisher, without(*dismissed, "h5", "h6"))
    assert len(owners(origin)) == 13
