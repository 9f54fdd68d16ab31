import pytest

from acstor import exception
from acstor.agent.member import Member
from acstor.agent.ring_publication import RingPublisher
from acstor.dataplane import build_ring
from acstor.origin.base import Origin
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.ring.building import wanted_hosts
from acstor.ring.decision import Decision
from acstor.ring.published_ring import (
    GENERATION_REF,
    RECHECK_INTERVAL,
    RING_REF,
    RingReference,
    encode_generation,
    read_ring,
)
from tests.unit.agent.conftest import Clock

GIB = 1 << 30


def member(name: str, capacity_bytes: int = GIB, **fields: object) -> Member:
    described = {
        "name": name,
        "peer_address": f"10.0.0.{int(name[1:])}:7420",
        "metrics_address": "127.0.0.1:1",
        "capacity_bytes": capacity_bytes,
        "release": "1",
        **fields,
    }
    return Member(**described)  # type: ignore[arg-type]


def members(*found: Member) -> dict[str, Member]:
    return {each.name: each for each in found}


def make_publisher(
    origin: Origin, clock: Clock, *, vnode_count: int = 64, settle_delay: float = 0.0
) -> RingPublisher:
    return RingPublisher(
        RingReference(origin, clock),
        weights="equal",
        vnode_count=vnode_count,
        settle_delay=settle_delay,
        clock=clock,
    )


@pytest.fixture
def publisher(origin: FaultyOrigin, clock: Clock) -> RingPublisher:
    return make_publisher(origin, clock, settle_delay=2.0)


def publish(publisher: RingPublisher, clock: Clock, found: dict[str, Member]) -> int | None:
    publisher.look(found)
    clock.now += 2.0
    ring = publisher.look(found)
    return ring.generation if ring else None


def test_ring_waits_until_the_members_have_settled(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    assert publisher.look(members(member("h1"))) is None
    clock.now += 1.9
    assert publisher.look(members(member("h1"), member("h2"))) is None  # begins anew
    clock.now += 1.9
    assert publisher.look(members(member("h1"), member("h2"))) is None
    assert publisher.seconds_until_due() == pytest.approx(0.1)
    clock.now += 0.2
    ring = publisher.look(members(member("h1"), member("h2")))
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
    assert first.look(one) is not None

    class Between(FaultyOrigin):
        """Lets the other publish between reading and writing."""

        def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
            if not self.hits:
                self.hits[Effect.DELAY] += 1
                assert first.look(both) is not None
            return super().swap_ref(name, expected, content)

    second = make_publisher(Between(origin), clock)
    assert second.look(both) is None
    published = read_ring(origin)
    assert published is not None
    assert published.ring.generation == 2
    assert second.look(both) is None


def test_number_of_vnodes_never_shrinks(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    publish(publisher, clock, members(member("h1")))
    smaller = make_publisher(origin, clock, vnode_count=16)
    assert smaller.look(members(member("h1"))) is None
    larger = make_publisher(origin, clock, vnode_count=128)
    ring = larger.look(members(member("h1")))
    assert ring is not None
    assert ring.vnode_count == 128


def test_damaged_ring_is_reported_and_not_replaced(clock: Clock) -> None:
    origin = MemoryOrigin()
    origin.swap_ref(RING_REF, None, b"not a ring")
    publisher = make_publisher(origin, clock, vnode_count=64)
    with pytest.raises(exception.CorruptError):
        publisher.look(members(member("h1")))
    ref = origin.get_ref(RING_REF)
    assert ref is not None
    assert ref.content == b"not a ring"


def test_origin_away_is_told_to_the_caller(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    origin.faults.append(Fault(Operation.GET_REF, Effect.ERROR))
    with pytest.raises(exception.UnavailableError):
        publisher.look(members(member("h1")))


def test_mixed_topologies_name_what_to_check(publisher: RingPublisher, clock: Clock) -> None:
    found = members(member("h1", topology="a/b"), member("h2", topology="a"))
    publisher.look(found)
    clock.now += 2
    with pytest.raises(exception.InvalidError) as caught:
        publisher.look(found)
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
        known = reference.look()
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
    reference.look()
    published = read_ring(origin)
    assert published is not None
    hosts = wanted_hosts(members(member("h1"), member("h2")), "equal")
    newer = build_ring(hosts, 64, previous=published.ring)
    origin.swap_ref(RING_REF, published.token, newer.encode())
    clock.now += RECHECK_INTERVAL
    known = reference.look()
    assert known is not None
    assert known.ring.generation == 2


def test_number_is_written_with_the_ring(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    publish(publisher, clock, members(member("h1")))
    ref = origin.get_ref(GENERATION_REF)
    assert ref is not None
    assert ref.content == encode_generation(1)


def decided(**weights: int) -> Decision:
    return Decision(1, 1, "leader", 0, "equation1", weights)


def test_changed_decision_is_published_at_once_and_an_unknown_one_changes_no_weight(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    found = members(member("h1"), member("h2"))
    publish(publisher, clock, found)
    ring = publisher.look(found, decided(h1=5000, h2=15000))
    assert ring is not None
    assert [(host.weight, host.vnodes) for host in ring.hosts] == [(5000, 16), (15000, 48)]
    assert publisher.look(found, decided(h1=5000, h2=15000)) is None
    assert publisher.look(found, None, is_decision_known=False) is None
    third = members(member("h1"), member("h2"), member("h3"))
    assert publisher.look(third, None, is_decision_known=False) is None  # has to settle
    clock.now += 2.0
    ring = publisher.look(third, None, is_decision_known=False)
    assert ring is not None
    assert [host.weight for host in ring.hosts] == [5000, 15000, 10000]


def test_without_a_decision_any_more_weights_are_as_the_members_are(
    publisher: RingPublisher, origin: FaultyOrigin, clock: Clock
) -> None:
    found = members(member("h1"), member("h2"))
    publish(publisher, clock, found)
    publisher.look(found, decided(h1=5000, h2=15000))
    ring = publisher.look(found, None)
    assert ring is not None
    assert [host.vnodes for host in ring.hosts] == [32, 32]
