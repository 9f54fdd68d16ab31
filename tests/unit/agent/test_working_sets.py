"""Learning what boots read: real admin socket, origin and runtime in memory."""

import json
import pathlib
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.reconcilers.working_sets import (
    REPORTED_BITMAP_VERSION,
    REPORTED_VERSION,
    Reported,
    WorkingSets,
)
from acstor.control.chunk_set import CHUNK_COUNT_MAX, ChunkSet
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.repository.images import working_set
from testbed.fixtures.conditions import wait_for
from tests.unit.agent import learning_host
from tests.unit.agent.conftest import Clock
from tests.unit.agent.learning_host import IMAGE, INTERVAL

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
FIRST = {0, 1, 2, 9}


class LearningHost(learning_host.LearningHost[WorkingSets]):
    """A host whose looks at working sets the test makes."""

    def __init__(self, conf: cfg.ConfigOpts, origin: FaultyOrigin, clock: Clock) -> None:
        def make(directory: str, interval: float, clock: Clock) -> WorkingSets:
            return WorkingSets(directory, interval, clock=clock)

        super().__init__(conf, origin, clock, make, name="h1", content=12)

    def learnt(self) -> working_set.WorkingSet | None:
        return working_set.read(self.origin, IMAGE)


@pytest.fixture
def make_host(
    make_conf: Callable[..., cfg.ConfigOpts], clock: Clock
) -> Iterator[Callable[..., LearningHost]]:
    yield from learning_host.hosts(
        lambda origin, name: LearningHost(make_conf(name), origin, clock)
    )


def test_reported_version_requires_update() -> None:
    assert REPORTED_BITMAP_VERSION == 1
    golden = (GOLDEN / "working-set-reported-v1.json").read_bytes()
    found = Reported.parse(golden)
    assert found == Reported(1795600000.25, 2, 20, ChunkSet.of({0, 1, 9}, 20))
    assert json.loads(found.encode()).keys() == json.loads(golden).keys()
    assert Reported.parse(found.encode()) == found


def test_reported_version_of_large_disks_requires_update() -> None:
    assert REPORTED_VERSION == 2
    golden = (GOLDEN / "working-set-reported-v2.json").read_bytes()
    found = Reported.parse(golden)
    read = ChunkSet.of({0, 1, 9, CHUNK_COUNT_MAX - 1}, CHUNK_COUNT_MAX)
    assert found == Reported(1795600000.25, 2, CHUNK_COUNT_MAX, read)
    assert json.loads(found.encode()).keys() == json.loads(golden).keys()
    assert Reported.parse(found.encode()) == found


@pytest.mark.parametrize("change", [{"version": 1}, {"chunk_count": 20}, {"version": 3}])
def test_reported_version_of_disks_of_another_size_is_corrupt(change: dict[str, int]) -> None:
    golden = json.loads((GOLDEN / "working-set-reported-v2.json").read_bytes())
    with pytest.raises(exception.CorruptError):
        Reported.parse(json.dumps(golden | change).encode())


def test_what_one_host_learns_another_knows(make_host: Callable[..., LearningHost]) -> None:
    first, second = make_host("h1"), make_host("h2")
    booted, fresh = first.start(), second.start()
    booted.preloads.record_boot(IMAGE, FIRST)
    first.round()
    second.round()
    assert first.reconciler.coverage == {IMAGE: 1.0}
    assert second.reconciler.coverage == {IMAGE: 0.0}
    assert fresh.preloads.estimate(IMAGE, "working-set")["total_bytes"] == len(FIRST) * 65536
    assert (
        first.reconciler.reconcile(first.snapshot()),
        second.reconciler.reconcile(second.snapshot()),
    ) == ({}, {})


def test_nothing_is_written_where_nothing_is_new(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    runtime = host.start()
    host.round()
    assert host.learnt() is None
    runtime.preloads.record_boot(IMAGE, FIRST)
    host.round()
    before = host.origin.calls[Operation.SWAP_REF]
    host.round()
    assert host.origin.calls[Operation.SWAP_REF] == before
    learnt = host.learnt()
    assert learnt is not None
    assert (learnt.boots, learnt.reporters) == (1, 1)


def test_image_is_looked_at_once_per_interval(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    runtime = host.start()
    host.round()
    runtime.preloads.record_boot(IMAGE, FIRST)
    host.clock.now += INTERVAL / 2
    host.reconciler.act(host.snapshot())
    assert host.learnt() is None
    host.clock.now += INTERVAL
    host.reconciler.act(host.snapshot())
    assert host.learnt() is not None


def test_restarted_agent_reports_nothing_twice(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    runtime = host.start()
    runtime.preloads.record_boot(IMAGE, FIRST)
    host.round()
    host.reconciler = host.new_reconciler()
    runtime.preloads.record_boot(IMAGE, FIRST | {11})
    host.round()
    learnt = host.learnt()
    assert learnt is not None
    assert (learnt.boots, learnt.reporters) == (2, 1)
    assert set(learnt.once) == FIRST | {11}
    assert set(learnt.twice) == set()


def test_new_data_plane_process_counts_anew_and_is_given_the_set(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    runtime = host.start()
    runtime.preloads.record_boot(IMAGE, FIRST)
    host.round()
    host.data_plane.stop()
    runtime = host.start()
    runtime.preloads.record_boot(IMAGE, {1})
    host.reconciler.act(host.snapshot())  # without waiting for the interval
    learnt = host.learnt()
    assert learnt is not None
    assert (learnt.reporters, set(learnt.twice)) == (2, {1})
    assert host.reconciler.coverage.keys() == {IMAGE}


def test_damaged_state_is_no_obstacle(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    runtime = host.start()
    directory = host.path / "working-sets"
    directory.mkdir()
    (directory / f"{IMAGE}.json").write_bytes(b"{")
    runtime.preloads.record_boot(IMAGE, FIRST)
    host.round()
    assert host.reconciler.reconcile(host.snapshot()) == {}
    assert host.learnt() is not None


def test_unreadable_set_is_a_problem_of_its_image_until_it_is_gone(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    host.start()
    name = working_set.working_set_ref(IMAGE)
    token = host.origin.swap_ref(name, None, b'{"version": 9}')
    host.round()
    assert list(host.reconciler.reconcile(host.snapshot())) == [f"working set of image {IMAGE}"]
    host.origin.swap_ref(name, token, None)
    host.round()
    assert host.reconciler.reconcile(host.snapshot()) == {}


def test_origin_that_is_away_costs_nothing_but_time(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    runtime = host.start()
    runtime.preloads.record_boot(IMAGE, FIRST)
    host.origin.faults.append(Fault(Operation.GET_REF, Effect.ERROR))
    host.round()
    assert list(host.reconciler.reconcile(host.snapshot())) == ["working sets"]
    host.origin.faults.clear()
    host.reconciler.act(host.snapshot())
    assert host.reconciler.reconcile(host.snapshot()) == {}
    learnt = host.learnt()
    assert learnt is not None
    assert set(learnt.wanted) == FIRST


def test_coverage_is_unknown_while_the_data_plane_is_away(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    host.start().preloads.record_boot(IMAGE, FIRST)
    host.round()
    assert host.reconciler.coverage == {IMAGE: 1.0}
    host.data_plane.stop()
    host.reconciler.act(host.snapshot())
    assert host.reconciler.coverage == {}


def test_state_of_images_that_are_gone_is_removed(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    host.start().preloads.record_boot(IMAGE, FIRST)
    host.round()
    assert list((host.path / "working-sets").iterdir())
    host.reconciler.act(host.snapshot(registered=frozenset()))
    assert list((host.path / "working-sets").iterdir()) == []


def test_looks_are_acted_on_by_its_own_thread(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    host.start().preloads.record_boot(IMAGE, FIRST)
    host.reconciler.start()
    try:
        host.reconciler.reconcile(host.snapshot())
        wait_for("coverage", lambda: host.reconciler.coverage == {IMAGE: 1.0})
    finally:
        host.reconciler.stop(10)
