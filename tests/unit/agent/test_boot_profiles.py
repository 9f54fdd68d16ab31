"""Learning in which order boots read: real admin socket, origin and runtime in memory."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.reconcilers.boot_profiles import BootProfiles, ToldBoot
from acstor.control import bitmap, rank_list
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.repository.images import boot_profile
from testbed.fixtures.conditions import wait_for
from tests.unit.agent import learning_host
from tests.unit.agent.conftest import Clock
from tests.unit.agent.learning_host import IMAGE, INTERVAL

ORDER = (0, 39, *range(10, 30))
OTHER = tuple(range(20))


class LearningHost(learning_host.LearningHost[BootProfiles]):
    """A host whose looks at boot profiles the test makes."""

    def __init__(self, name: str, conf: cfg.ConfigOpts, origin: FaultyOrigin, clock: Clock) -> None:
        def make(directory: str, interval: float, clock: Clock) -> BootProfiles:
            return BootProfiles(directory, interval, clock=clock)

        super().__init__(conf, origin, clock, make, name=name, chunks=100, content=4)

    def problems(self) -> list[str]:
        return list(self.reconciler.reconcile(self.snapshot()))

    def learnt(self) -> boot_profile.BootProfile | None:
        return boot_profile.read(self.origin, IMAGE)


@pytest.fixture
def make_host(
    make_conf: Callable[..., cfg.ConfigOpts], clock: Clock
) -> Iterator[Callable[..., LearningHost]]:
    yield from learning_host.hosts(
        lambda origin, name: LearningHost(name, make_conf(name), origin, clock)
    )


def test_boot_of_one_host_is_the_profile_of_another(
    make_host: Callable[..., LearningHost],
) -> None:
    first, second = make_host("h1"), make_host("h2")
    booted, fresh = first.start(), second.start()
    booted.boots.record(IMAGE, ORDER)
    first.round()
    second.round()
    assert booted.boots.profiles == fresh.boots.profiles == {IMAGE: (ORDER,)}
    assert booted.boots.recorded(0) == [], "acknowledged"
    assert (first.problems(), second.problems()) == ([], [])


def test_kind_that_hosts_do_not_agree_on_is_taken_back(
    make_host: Callable[..., LearningHost],
) -> None:
    first, second = make_host("h1"), make_host("h2")
    booted, other = first.start(), second.start()
    booted.boots.record(IMAGE, ORDER)
    first.round()
    second.round()
    assert other.boots.profiles == {IMAGE: (ORDER,)}
    other.boots.record(IMAGE, tuple(range(80, 60, -1)))
    second.round()
    first.round()
    assert booted.boots.profiles == other.boots.profiles == {}
    other.boots.record(IMAGE, ORDER)
    second.round()
    first.round()
    assert booted.boots.profiles == {IMAGE: (ORDER,)}


def test_lost_acknowledgement_counts_nothing_twice(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    runtime = host.start()
    runtime.boots.record(IMAGE, ORDER)
    told = runtime.boots.recorded(0)
    host.round()
    host.reconciler = host.new_reconciler()  # killed before it acknowledged
    runtime.boots.tell_again(told)
    runtime.boots.record(IMAGE, ORDER)
    host.round()
    learnt = host.learnt()
    assert learnt is not None
    assert learnt.reports == 2


def test_nothing_is_written_where_nothing_is_new(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    runtime = host.start()
    host.round()
    assert host.learnt() is None
    runtime.boots.record(IMAGE, ORDER)
    host.round()
    before = host.origin.calls[Operation.SWAP_REF]
    host.round()
    assert host.origin.calls[Operation.SWAP_REF] == before


def test_boots_are_asked_for_once_per_interval(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    runtime = host.start()
    host.round()
    runtime.boots.record(IMAGE, ORDER)
    host.clock.now += INTERVAL / 2
    host.reconciler.act(host.snapshot())
    assert host.learnt() is None
    host.clock.now += INTERVAL
    host.reconciler.act(host.snapshot())
    assert host.learnt() is not None


def test_new_data_plane_process_is_given_the_profile(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    host.start().boots.record(IMAGE, ORDER)
    host.round()
    host.data_plane.stop()
    runtime = host.start()
    runtime.boots.profiles.clear()
    host.reconciler.act(host.snapshot())  # without waiting for the interval
    assert runtime.boots.profiles == {IMAGE: (ORDER,)}


def test_origin_that_is_away_costs_nothing_but_time(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    runtime = host.start()
    runtime.boots.record(IMAGE, ORDER)
    host.origin.faults.append(Fault(Operation.GET_REF, Effect.ERROR))
    host.round()
    assert host.problems() == ["boot profiles"]
    host.origin.faults.clear()
    host.round()
    assert host.problems() == []
    assert runtime.boots.profiles == {IMAGE: (ORDER,)}


def test_profile_of_a_newer_release_stays_and_holds_nothing_up(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    runtime = host.start()
    runtime.boots.record(IMAGE, ORDER)
    name = boot_profile.boot_profile_ref(IMAGE)
    token = host.origin.swap_ref(name, None, b'{"version": 9}')
    host.round()
    assert f"boots of image {IMAGE}" in host.problems()
    host.round()
    assert runtime.boots.recorded(0) == [], "it could never be merged"
    host.origin.swap_ref(name, token, None)
    runtime.boots.record(IMAGE, ORDER)
    host.round()
    assert host.problems() == []


def test_boots_of_images_that_are_gone_are_dropped(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    runtime = host.start()
    runtime.boots.record(IMAGE, ORDER)
    host.clock.now += INTERVAL
    host.reconciler.act(host.snapshot(registered=frozenset()))
    assert host.learnt() is None
    host.round()
    assert runtime.boots.recorded(0) == []


def test_data_plane_of_an_older_release_is_no_problem(
    make_host: Callable[..., LearningHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, host = make_host("h1"), make_host("h2")
    first.start().boots.record(IMAGE, ORDER)
    first.round()
    host.start()
    call = host.client.call

    def older(method: str, **params: Any) -> object:
        if method.startswith("bootprofile."):
            raise exception.UnsupportedError(f"no method {method!r}")
        return call(method, **params)

    monkeypatch.setattr(host.client, "call", older)
    host.round()
    assert host.problems() == []


def test_away_data_plane_and_origin_are_the_pass_s_problem(
    make_host: Callable[..., LearningHost],
) -> None:
    host = make_host()
    host.round()
    assert host.problems() == []


def test_pass_is_acted_on_by_its_own_thread(make_host: Callable[..., LearningHost]) -> None:
    host = make_host()
    runtime = host.start()
    runtime.boots.record(IMAGE, ORDER)
    host.reconciler.start()
    try:
        host.reconciler.reconcile(host.snapshot())
        wait_for("a profile", lambda: runtime.boots.profiles)
    finally:
        host.reconciler.stop(10)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 0},
        {"number": True},
        {"chunk_count": -1},
        {"chunk_count": 5},
        {"order": "!"},
        {"order": None},
        {"order": bitmap.encode(rank_list.encode([OTHER, OTHER]))},
        {"order": bitmap.encode(bytes(1 << 20))},
    ],
)
def test_nonsense_of_a_data_plane_is_corrupt(change: dict[str, object]) -> None:
    order = bitmap.encode(rank_list.encode([OTHER]))
    fields: dict[str, object] = {"number": 1, "image": IMAGE, "chunk_count": 40, "order": order}
    assert ToldBoot.parse(fields).order == OTHER
    with pytest.raises(exception.CorruptError):
        ToldBoot.parse(fields | change)
