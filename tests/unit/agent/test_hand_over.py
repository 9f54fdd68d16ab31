"""Hand-over of warm sets: real admin socket and reconcilers; runtime and others made up."""

import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.hand_over_endpoint import HandOverEndpoint, read_warm_set
from acstor.agent.reconciler import HostSnapshot
from acstor.agent.reconcilers import hand_over
from acstor.agent.reconcilers.hand_over import HandOver
from acstor.agent.reconcilers.preloading import Preloading
from acstor.agent.reconcilers.working_sets import WorkingSets
from acstor.cluster.membership import View
from acstor.control.chunk_set import ChunkSet
from acstor.control.client import AdminClient
from acstor.control.hand_over import HandOverRequest, MoveKind
from acstor.control.protocol import PreloadState, PreloadWhat
from acstor.origin.memory import MemoryOrigin
from acstor.preload.admission import Limits
from acstor.preload.request import RATE_MIN, PreloadRequest
from acstor.preload.warm_set import WarmSet
from acstor.repository.images import working_set
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_runtime import CHUNK_SIZE, MemoryRuntime, make_manifest
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.conftest import Clock

IMAGE = str(uuid.UUID(int=1))
SERVER, OTHER_SERVER = (str(uuid.UUID(int=number)) for number in (101, 102))
CHUNKS = 100
TIMEOUT = 60.0


def warm(read: set[int], held: set[int] = frozenset(), count: int = CHUNKS) -> WarmSet:  # type: ignore[assignment]
    return WarmSet(IMAGE, count, ChunkSet.of(read, count), ChunkSet.of(held, count))


def moved(
    instance: str = SERVER, kind: MoveKind = MoveKind.LIVE, source: str = "h1"
) -> HandOverRequest:
    return HandOverRequest(instance, kind, source, (IMAGE,))


class Target:
    """The host that servers come to; what the others tell is up to the test."""

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        self.clock = clock
        self.path = pathlib.Path(conf.state_path)
        self.origin = MemoryOrigin()
        self.data_plane = MemoryDataPlane(conf)
        self.client = AdminClient(conf.dataplane.admin_socket)
        self.working_sets = WorkingSets(str(self.path), 1e6, clock=clock)
        self.preloading = Preloading(
            "h2",
            str(self.path / "preloads.json"),
            self.client,
            Limits(rate=10 * RATE_MIN),
            keep_ended=1000.0,
            link_bytes_per_s=lambda: self.link,
            clock=clock,
        )
        self.link: float | None = None
        self.told: dict[str, object] = {}
        self.asked: list[str] = []
        self.ends: list[tuple[str, str]] = []
        self.lists: list[str] = []
        self.hand_over = self.new_hand_over()

    def new_hand_over(self, **options: object) -> HandOver:
        return HandOver(
            self.client,
            self.working_sets,
            self.preloading,
            self.ask,
            **{"size_max": CHUNKS * CHUNK_SIZE, "timeout": TIMEOUT, **options},  # type: ignore[arg-type]
            on_end=lambda kind, outcome: self.ends.append((str(kind), outcome)),
            on_list=self.lists.append,
            clock=self.clock,
        )

    def ask(self, host: str, image: str) -> object:
        assert image == IMAGE
        self.asked.append(host)
        answer = self.told.get(host)
        if isinstance(answer, Exception):
            raise answer
        return answer.to_answer() if isinstance(answer, WarmSet) else answer

    @property
    def runtime(self) -> MemoryRuntime:
        assert self.data_plane.runtime is not None
        return self.data_plane.runtime

    def start(self) -> None:
        self.data_plane.start()
        self.show()

    def show(self) -> None:
        """Have a pass of the agent."""
        self.hand_over.reconcile(
            HostSnapshot(
                host="h2",
                data_plane=self.client,
                status={"chunk_size": CHUNK_SIZE, "started_at": 1.0},
                origin=self.origin,
                generation=1,
                is_draining=False,
                view=View(),
                registered=frozenset({IMAGE}),
                offered={IMAGE: "manifest"},
            )
        )

    def attach(self) -> None:
        manifest = self.path / "manifest"
        manifest.write_bytes(make_manifest(IMAGE, CHUNKS, content=CHUNKS).to_bytes())
        self.client.call("image.attach", path=str(manifest))

    def tick(self) -> None:
        self.hand_over.tick()
        self.preloading.tick()

    def wanted(self) -> set[int]:
        return self.runtime.preloads._wanted[IMAGE]

    def bring(self) -> None:
        """Have the preload fetch all that it wants."""
        self.runtime.preloads.fetch(IMAGE, CHUNKS)
        self.preloading.tick()
        self.hand_over.tick()


@pytest.fixture
def target(make_conf: Callable[..., cfg.ConfigOpts], clock: Clock) -> Iterator[Target]:
    MemoryRuntime.locked_stores.clear()
    target = Target(make_conf("h2"), clock)
    target.start()
    target.attach()
    yield target
    target.data_plane.stop()


def test_what_guests_read_at_the_source_is_preloaded(target: Target) -> None:
    target.told["h1"] = warm({1, 2}, {2, 7})
    assert target.hand_over.begin(moved())
    target.tick()
    assert target.wanted() == {1, 2, 7}
    (job,) = target.runtime.preloads.status()
    assert (job["what"], job["pin"], job["rate_bytes_per_s"]) == (
        "working-set",
        False,
        10 * RATE_MIN,
    )
    target.tick()
    assert target.ends == []
    target.bring()
    assert target.ends == [("live-migration", "done")]
    assert (target.asked, target.lists) == (["h1"], ["told"])


def test_what_all_hosts_have_learnt_is_brought_with_it(target: Target) -> None:
    report = working_set.Report(CHUNKS, ChunkSet.of({50}, CHUNKS), 1, True)
    working_set.add(target.origin, IMAGE, report)
    target.told["h1"] = warm({1})
    snapshot = target.hand_over._sight
    assert snapshot is not None
    target.working_sets.act(snapshot)
    target.hand_over.begin(moved())
    target.tick()
    assert target.wanted() == {1, 50}
    target.bring()
    # What was handed over is no working set of the image for ever.
    target.clock.now += 2e6
    target.working_sets.act(snapshot)
    assert target.wanted() == {50}


def test_no_more_is_taken_than_the_bound_and_what_boots_read_first(target: Target) -> None:
    target.hand_over = target.new_hand_over(size_max=3 * CHUNK_SIZE)
    target.show()
    target.told["h1"] = warm({8, 9}, set(range(CHUNKS)))
    target.hand_over.begin(moved())
    target.tick()
    assert target.wanted() == {0, 8, 9}


def test_source_of_an_evacuation_is_not_asked(target: Target) -> None:
    report = working_set.Report(CHUNKS, ChunkSet.of({50}, CHUNKS), 1, True)
    working_set.add(target.origin, IMAGE, report)
    assert target.hand_over._sight is not None
    target.working_sets.act(target.hand_over._sight)
    target.hand_over.begin(moved(kind=MoveKind.EVACUATION))
    target.tick()
    target.bring()
    assert (target.asked, target.lists) == ([], ["not_asked"])
    assert target.ends == [("evacuation", "done")]
    assert len(target.runtime.preloads.held) == 1


@pytest.mark.parametrize(
    "answer",
    [
        exception.DeadlineError("no answer"),
        exception.UnsupportedError("it does not know hand_over_read"),
        exception.NotFoundError("not attached there"),
        "nonsense",
        {"version": 99},
        {**warm({1}).to_answer(), "image": SERVER},
        warm({1}, count=CHUNKS + 1),
    ],
)
def test_source_that_is_dead_or_lies_costs_nothing_but_its_list(
    target: Target, answer: object
) -> None:
    report = working_set.Report(CHUNKS, ChunkSet.of({50}, CHUNKS), 1, True)
    working_set.add(target.origin, IMAGE, report)
    assert target.hand_over._sight is not None
    target.working_sets.act(target.hand_over._sight)
    target.told["h1"] = answer
    target.hand_over.begin(moved())
    target.tick()
    assert target.wanted() == {50}
    target.tick()
    target.bring()
    assert target.ends == [("live-migration", "done")]
    assert target.asked == ["h1"], "once"


def test_nothing_known_of_the_image_ends_with_the_time(target: Target) -> None:
    target.told["h1"] = exception.UnavailableError("away")
    target.hand_over.begin(moved())
    for _ in range(3):
        target.tick()
    assert target.runtime.preloads.status() == []
    target.clock.now += TIMEOUT
    target.tick()
    assert target.ends == [("live-migration", "late")]


def test_image_that_is_attached_later_is_brought_then(target: Target) -> None:
    target.client.call("image.detach", image=IMAGE)
    target.told["h1"] = warm({1, 2})
    target.hand_over.begin(moved())
    target.tick()
    target.attach()
    target.tick()
    assert target.wanted() == {1, 2}
    target.tick()
    target.bring()
    assert target.ends == [("live-migration", "done")]


def test_migration_that_fails_stops_the_preload(target: Target) -> None:
    target.told["h1"] = warm({1, 2})
    target.hand_over.begin(moved())
    target.tick()
    assert target.hand_over.cancel(SERVER)
    assert not target.hand_over.cancel(SERVER)
    target.tick()
    assert target.ends == [("live-migration", "cancelled")]
    assert [job["state"] for job in target.runtime.preloads.status()] == [PreloadState.STOPPED]


def test_preload_that_another_server_waits_for_goes_on(target: Target) -> None:
    target.told["h1"] = warm({1, 2})
    target.hand_over.begin(moved())
    target.hand_over.begin(moved(OTHER_SERVER))
    target.tick()
    target.hand_over.cancel(SERVER)
    target.tick()
    assert target.ends == []
    target.bring()
    assert target.ends == [("live-migration", "done")]
    assert target.asked == ["h1"]


def test_time_is_bounded(target: Target) -> None:
    target.told["h1"] = warm({1, 2})
    target.hand_over.begin(moved())
    target.tick()
    target.clock.now += TIMEOUT
    target.tick()
    assert target.ends == [("live-migration", "late")]
    assert [job["state"] for job in target.runtime.preloads.status()] == [PreloadState.STOPPED]


def test_server_from_another_host_adds_what_is_read_there(target: Target) -> None:
    target.told["h1"], target.told["h3"] = warm({1}), warm({2})
    target.hand_over.begin(moved())
    target.tick()
    target.hand_over.begin(moved(OTHER_SERVER, MoveKind.COLD, "h3"))
    target.tick()
    target.tick()
    assert target.wanted() == {1, 2}
    (job,) = target.runtime.preloads.status()
    assert job["total_bytes"] == 2 * CHUNK_SIZE, "a job that wants both"
    target.bring()
    assert target.ends == [("live-migration", "done")]


def test_preload_of_an_operator_is_left_alone(target: Target) -> None:
    target.told["h1"] = warm({1})
    asked = PreloadRequest(IMAGE, PreloadWhat.FULL)
    target.preloading.admit(str(uuid.UUID(int=9)), asked)
    target.preloading.tick()
    target.hand_over.begin(moved())
    target.tick()
    (job,) = target.runtime.preloads.status()
    assert (job["what"], job["state"]) == ("full", PreloadState.RUNNING)
    target.bring()
    target.hand_over.tick()
    assert target.ends == [("live-migration", "done")], "nothing is missing any more"


def test_host_without_room_or_rate_takes_nothing(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.told["h1"] = warm({1, 2})
    monkeypatch.setattr(target.runtime.preloads, "_capacity", 0)
    target.hand_over.begin(moved())
    target.tick()
    assert target.ends == [("live-migration", "refused")]
    assert target.runtime.preloads.status() == []


def test_host_whose_rate_is_taken_waits(target: Target) -> None:
    target.told["h1"] = warm({1, 2})
    target.link = 1.0
    target.hand_over.begin(moved())
    target.tick()
    assert (target.ends, target.runtime.preloads.status()) == ([], [])
    target.link = None
    target.tick()
    target.bring()
    assert target.ends == [("live-migration", "done")]


def test_preload_that_somebody_stops_is_not_begun_again(target: Target) -> None:
    target.told["h1"] = warm({1, 2})
    target.hand_over.begin(moved())
    target.tick()
    target.preloading.give_up(IMAGE)
    target.tick()
    assert target.ends == [("live-migration", "stopped")]


def test_images_at_a_time_are_bounded(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "TRANSFERS_MAX", 1)
    target.hand_over.begin(moved())
    other = str(uuid.UUID(int=2))
    target.hand_over.begin(HandOverRequest(OTHER_SERVER, MoveKind.COLD, "h1", (other,)))
    assert target.ends == [("cold-migration", "refused")]


def test_option_keeps_it_from_doing_anything(target: Target) -> None:
    target.hand_over = target.new_hand_over(is_wanted=False)
    assert not target.hand_over.begin(moved())
    target.tick()
    assert target.asked == []


def test_thread_brings_it_on(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "TICK_SECONDS", 0.01)
    target.told["h1"] = warm({1})
    target.preloading.start()
    target.hand_over.start()
    try:
        target.hand_over.begin(moved())
        wait_for("a preload", target.runtime.preloads.status)
        target.runtime.preloads.fetch(IMAGE, CHUNKS)
        wait_for("the end", lambda: target.ends == [("live-migration", "done")])
    finally:
        target.hand_over.stop(10)
        target.preloading.stop(10)


# The source


def test_source_tells_what_was_read_and_what_it_holds(target: Target) -> None:
    target.runtime.preloads.record_boot(IMAGE, {3, 4})
    assert read_warm_set(target.client, IMAGE) == warm({3, 4}, {3, 4})
    endpoint = HandOverEndpoint("h2", target.hand_over, target.client)
    answer = endpoint.hand_over_read({}, image=IMAGE)
    assert WarmSet.from_answer("h2", IMAGE, answer["result"]) == warm({3, 4}, {3, 4})
    unknown = endpoint.hand_over_read({}, image=SERVER)
    assert unknown["error"]["kind"] == "not_found"  # type: ignore[index]


def test_data_plane_of_an_older_release_tells_what_was_read(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.runtime.preloads.record_boot(IMAGE, {3})
    call = target.client.call

    def refuse(method: str, **arguments: Any) -> object:
        if method == "image.held":
            raise exception.UnsupportedError("no such method")
        return call(method, **arguments)

    monkeypatch.setattr(target.client, "call", refuse)
    assert read_warm_set(target.client, IMAGE) == warm({3})


ARGUMENTS = moved().to_arguments()


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("hand_over_start", {}),
        ("hand_over_start", {**ARGUMENTS, "more": 1}),
        ("hand_over_start", {**ARGUMENTS, "instance": "../x"}),
        ("hand_over_start", {**ARGUMENTS, "kind": "teleport"}),
        ("hand_over_start", {**ARGUMENTS, "kind": ["live-migration"]}),
        ("hand_over_start", {**ARGUMENTS, "source": "a host"}),
        ("hand_over_start", {**ARGUMENTS, "source": None}),
        ("hand_over_start", {**ARGUMENTS, "images": IMAGE}),
        ("hand_over_start", {**ARGUMENTS, "images": [IMAGE] * 65}),
        ("hand_over_start", {**ARGUMENTS, "volumes": [7]}),
        ("hand_over_stop", {}),
        ("hand_over_stop", {"instance": SERVER, "image": IMAGE}),
        ("hand_over_read", {"image": None}),
        ("hand_over_read", {"image": IMAGE, "host": "h1"}),
    ],
)
def test_malformed_arguments_are_refused_and_do_nothing(
    target: Target, method: str, arguments: dict[str, object]
) -> None:
    endpoint = HandOverEndpoint("h2", target.hand_over, target.client)
    answer = getattr(endpoint, method)({}, **arguments)
    assert answer["error"]["kind"] == "invalid"
    assert len(answer["error"]["message"]) < 300
    target.hand_over.tick()
    assert target.asked == []


def test_messages_begin_and_cancel(target: Target) -> None:
    endpoint = HandOverEndpoint("h2", target.hand_over, target.client)
    assert endpoint.hand_over_start({}, **ARGUMENTS)["result"] == {"accepted": True}
    assert endpoint.hand_over_stop({}, instance=SERVER)["result"] == {"known": True}
    assert endpoint.hand_over_stop({}, instance=SERVER)["result"] == {"known": False}
