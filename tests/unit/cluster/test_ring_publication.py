import pytest

from acstor import exception
from acstor.cluster.member import Member
from acstor.cluster.ring.building import wanted_hosts
from acstor.cluster.ring.decision import Decision
from acstor.cluster.ring.publication import RingPublisher
from acstor.cluster.ring.published_ring import (
    GENERATION_REF,
    RECHECK_INTERVAL,
    RING_REF,
    RingReference,
    encode_generation,
    read_ring,
)
from acstor.native import build_ring
from acstor.origin.base import Ref
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from tests.unit.agent.conftest import Clock
from tests.unit.cluster.ring_publishers import GIB, look, make_publisher, member, members


@pytest.fixture
def publisher(origin: FaultyOrigin, clock: Clock) -> RingPublisher:
    return make_publisher(origin, clock, settle_delay=2.0)


def publish(publisher: RingPublisher, clock: Clock, found: dict[str, Member]) -> int | None:
    look(publisher, found)
    clock.now += 2.0
    ring = look(publisher, found)
    return ring.generation if ring else None


def test_ring_waits_until_the_members_have_settled(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    assert look(publisher, members(member("h1"))) is None
    clock.now += 1.9
    assert look(publisher, members(member("h1"), member("h2"))) is None  # begins anew
    clock.now += 1.9
    assert look(publisher, members(member("h1"), member("h2"))) is None
    assert publisher.seconds_until_due() == pytest.approx(0.1)
    clock.now += 0.2
    ring = look(publisher, members(member("h1"), member("h2")))
    assert ring is not None
    assert [host.vnodes for host in ring.hosts] == [32, 32]
    published = read_ring(origin)
    assert published is not None
    assert published.ring == ring


def test_unchanged_members_publish_nothing(publisher: RingPublisher, clock: Clock) -> None:
    found = members(member("h1"), member("h2"))
    assert publish(publisher, clock, found) == 1
    assert publish(publisher, clock, found) is None


def test_changed_member_moves_no_more_than_its_share(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    publish(publisher, clock, members(member("h1"), member("h2"), member("h3")))
    before = read_ring(origin)
    found = members(member("h1"), member("h2"), member("h3"), member("h4"))
    assert publish(publisher, clock, found) == 2
    after = read_ring(origin)
    assert before is not None
    assert after is not None
    assert after.ring.moved_share(before.ring) == pytest.approx(0.25, abs=0.02)
    assert after.ring.seed == before.ring.seed


def test_changed_address_moves_nothing(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    publish(publisher, clock, members(member("h1"), member("h2")))
    before = read_ring(origin)
    found = members(member("h1", peer_address="10.9.9.9:1"), member("h2"))
    assert publish(publisher, clock, found) == 2
    after = read_ring(origin)
    assert before is not None
    assert after is not None
    assert after.ring.moved_share(before.ring) == 0.0


def test_draining_host_stays_known_and_owns_nothing(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    publish(publisher, clock, members(member("h1", is_draining=True), member("h2")))
    published = read_ring(origin)
    assert published is not None
    assert [(host.name, host.vnodes) for host in published.ring.hosts] == [("h1", 0), ("h2", 64)]


@pytest.mark.parametrize("found", [{}, members(member("h1", is_draining=True))])
def test_nobody_to_own_anything_keeps_the_last_ring(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock, found: dict[str, Member]
) -> None:
    publish(publisher, clock, members(member("h1")))
    assert publish(publisher, clock, found) is None
    published = read_ring(origin)
    assert published is not None
    assert published.ring.generation == 1


def test_weights_follow_the_capacities() -> None:
    found = members(member("h1", GIB), member("h2", 3 * GIB), member("h3", 0))
    assert [host.weight for host in wanted_hosts(found, "capacity")] == [1024, 3072, 1]
    assert [host.weight for host in wanted_hosts(found, "equal")] == [100, 100, 100]


def test_of_two_publishers_one_wins_and_both_agree_in_the_end(
    origin: FaultyOrigin, clock: Clock
) -> None:
    """Both hold a stale lock; the ref decides."""
    first = make_publisher(origin, clock)
    one, both = members(member("h1")), members(member("h1"), member("h2"))
    assert look(first, one) is not None

    class Between(FaultyOrigin):
        """Lets the other publish between reading and writing."""

        def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
            if not self.hits:
                self.hits[Effect.DELAY] += 1
                assert look(first, both) is not None
            return super().swap_ref(name, expected, content)

    second = make_publisher(Between(origin), clock)
    assert look(second, both) is None
    published = read_ring(origin)
    assert published is not None
    assert published.ring.generation == 2
    assert look(second, both) is None


def test_number_of_vnodes_never_shrinks(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    publish(publisher, clock, members(member("h1")))
    smaller = make_publisher(origin, clock, vnode_count=16)
    assert look(smaller, members(member("h1"))) is None
    larger = make_publisher(origin, clock, vnode_count=128)
    ring = look(larger, members(member("h1")))
    assert ring is not None
    assert ring.vnode_count == 128


def test_damaged_ring_is_reported_and_not_replaced(clock: Clock) -> None:
    origin = MemoryOrigin()
    origin.swap_ref(RING_REF, None, b"not a ring")
    publisher = make_publisher(origin, clock, vnode_count=64)
    with pytest.raises(exception.CorruptError):
        look(publisher, members(member("h1")))
    ref = origin.get_ref(RING_REF)
    assert ref is not None
    assert ref.content == b"not a ring"


def test_origin_away_is_told_to_the_caller(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    origin.faults.append(Fault(Operation.GET_REF, Effect.ERROR))
    with pytest.raises(exception.UnavailableError):
        look(publisher, members(member("h1")))


def test_mixed_topologies_name_what_to_check(publisher: RingPublisher, clock: Clock) -> None:
    found = members(member("h1", topology="a/b"), member("h2", topology="a"))
    look(publisher, found)
    clock.now += 2
    with pytest.raises(exception.InvalidError) as caught:
        look(publisher, found)
    assert "topology" in caught.value.hint


def test_ring_is_read_again_only_when_its_number_changes(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    """Hundreds of agents look every few seconds; the ring is large, its number is not."""
    publish(publisher, clock, members(member("h1")))
    reference = RingReference(origin, clock)
    reads: list[str] = []

    def look() -> int:
        before = origin.calls[Operation.GET_REF]
        known = reference.current()
        assert known is not None
        reads.append("full" if origin.calls[Operation.GET_REF] - before == 2 else "number")
        return known.ring.generation

    assert [look(), look()] == [1, 1]
    publish(publisher, clock, members(member("h1"), member("h2")))
    assert [look(), look()] == [2, 2]
    assert reads == ["full", "number", "full", "number"]


def test_number_that_was_never_written_is_made_up_for(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    """A publisher killed between ring and number."""
    publish(publisher, clock, members(member("h1")))
    reference = RingReference(origin, clock)
    reference.current()
    published = read_ring(origin)
    assert published is not None
    hosts = wanted_hosts(members(member("h1"), member("h2")), "equal")
    newer = build_ring(hosts, 64, previous=published.ring)
    origin.swap_ref(RING_REF, published.token, newer.encode())
    clock.now += RECHECK_INTERVAL
    known = reference.current()
    assert known is not None
    assert known.ring.generation == 2


def test_number_is_written_with_the_ring(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    publish(publisher, clock, members(member("h1")))
    ref = origin.get_ref(GENERATION_REF)
    assert ref is not None
    assert ref.content == encode_generation(1)


class DamagedNumber(FaultyOrigin):
    """The file of the ring's number is damaged."""

    def get_ref(self, name: str) -> Ref | None:
        if name == GENERATION_REF:
            raise exception.CorruptError(f"ref {name} is not what was written")
        return super().get_ref(name)


def test_damaged_number_does_not_stop_the_ring(origin: FaultyOrigin, clock: Clock) -> None:
    damaged = DamagedNumber(origin)
    publisher = make_publisher(damaged, clock)
    assert look(publisher, members(member("h1"))) is not None
    assert look(publisher, members(member("h1"), member("h2"))) is not None
    reference = RingReference(damaged, clock)
    for hosts in (2, 3):
        known = reference.current()
        assert known is not None
        assert len(known.ring.hosts) == hosts
        look(publisher, members(member("h1"), member("h2"), member("h3")))


def decided(**weights: int) -> Decision:
    return Decision(1, 1, "leader", 0, "equation1", weights)


def test_changed_decision_is_published_at_once_and_an_unknown_one_changes_no_weight(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    found = members(member("h1"), member("h2"))
    publish(publisher, clock, found)
    ring = look(publisher, found, decided(h1=5000, h2=15000))
    assert ring is not None
    assert [(host.weight, host.vnodes) for host in ring.hosts] == [(5000, 16), (15000, 48)]
    assert look(publisher, found, decided(h1=5000, h2=15000)) is None
    assert look(publisher, found, None, is_decision_known=False) is None
    third = members(member("h1"), member("h2"), member("h3"))
    assert look(publisher, third, None, is_decision_known=False) is None  # has to settle
    clock.now += 2.0
    ring = look(publisher, third, None, is_decision_known=False)
    assert ring is not None
    assert [host.weight for host in ring.hosts] == [5000, 15000, 10000]


def test_without_a_decision_any_more_weights_are_as_the_members_are(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    found = members(member("h1"), member("h2"))
    publish(publisher, clock, found)
    look(publisher, found, decided(h1=5000, h2=15000))
    ring = look(publisher, found, None)
    assert ring is not None
    assert [host.vnodes for host in ring.hosts] == [32, 32]
