"""Keeping admitted preloads: real admin socket, runtime in memory, a clock that the test moves."""

import json
import pathlib
import tempfile
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oslo_config import cfg

from acstor import exception
from acstor.agent.reconciler import HostSnapshot
from acstor.agent.reconcilers.preloading import Preloading
from acstor.cluster.membership import View
from acstor.control.client import AdminClient
from acstor.control.protocol import PreloadState, PreloadWhat
from acstor.preload.admission import Limits
from acstor.preload.admitted_preload import AdmittedPreload
from acstor.preload.request import RATE_MIN, PreloadRequest
from acstor.preload.states import AdmittedPreloadState
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_runtime import CHUNK_SIZE, MemoryRuntime, make_manifest
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.conftest import Clock

IMAGE = str(uuid.UUID(int=1))
OTHER = str(uuid.UUID(int=2))
CHUNKS = 100
SIZE = CHUNKS * CHUNK_SIZE
LINK = 20 * SIZE
"""Bytes per second; half of it may be admitted."""


class PreloadingHost:
    """A host whose looks at preloads the test makes."""

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        self.conf = conf
        self.clock = clock
        self.path = pathlib.Path(conf.state_path)
        self.data_plane = MemoryDataPlane(conf)
        self.client = AdminClient(conf.dataplane.admin_socket)
        self.link: float | None = LINK
        self.reconciler = self.new_reconciler()

    @property
    def runtime(self) -> MemoryRuntime:
        assert self.data_plane.runtime is not None
        return self.data_plane.runtime

    @property
    def file(self) -> pathlib.Path:
        return self.path / "preloads.json"

    def new_reconciler(self) -> Preloading:
        """Return a reconciler as an agent has it that was just started."""
        return Preloading(
            "h1",
            str(self.file),
            self.client,
            Limits(rate=10 * RATE_MIN, link_share=0.5, margin=1.25),
            keep_ended=1000.0,
            link_bytes_per_s=lambda: self.link,
            clock=self.clock,
        )

    def start(self, *images: str) -> MemoryRuntime:
        runtime = self.data_plane.start()
        for image in images:
            manifest = self.path / "manifest"
            manifest.write_bytes(make_manifest(image, CHUNKS, content=CHUNKS).to_bytes())
            self.client.call("image.attach", path=str(manifest))
        return runtime

    def reconcile(
        self, registered: frozenset[str] = frozenset({IMAGE, OTHER}), **fields: bool
    ) -> None:
        snapshot = HostSnapshot(
            host="h1",
            data_plane=self.client,
            status={},
            origin=None,
            generation=1,
            is_draining=fields.get("is_draining", False),
            view=View(),
            registered=registered,
        )
        assert self.reconciler.reconcile(snapshot) == {}

    def admit(self, image: str = IMAGE, **request: object) -> str:
        admission_id = str(uuid.uuid4())
        self.reconciler.admit(admission_id, PreloadRequest(image, PreloadWhat.FULL, **request))  # type: ignore[arg-type]
        return admission_id

    def kept(self, image: str = IMAGE) -> AdmittedPreload:
        return self.reconciler._admitted[image]

    def state(self, image: str = IMAGE) -> str:
        (found,) = self.reconciler.status(image)
        return str(found["state"])

    def job(self, image: str = IMAGE) -> dict[str, object]:
        return {str(job["image"]): job for job in self.runtime.preloads.status()}[image]


@pytest.fixture
def host(make_conf: Callable[..., cfg.ConfigOpts], clock: Clock) -> Iterator[PreloadingHost]:
    MemoryRuntime.locked_stores.clear()
    host = PreloadingHost(make_conf(), clock)
    yield host
    host.data_plane.stop()


def test_preload_is_fetched_at_its_rate_and_done(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit(rate_bytes_per_s=5 * RATE_MIN)
    host.reconciler.tick()
    assert host.state() == "running"
    assert host.job()["rate_bytes_per_s"] == 5 * RATE_MIN
    host.runtime.preloads.fetch(IMAGE, 40)
    host.reconciler.tick()
    (status,) = host.reconciler.status()
    assert (status["total_bytes"], status["remaining_bytes"]) == (SIZE, 60 * CHUNK_SIZE)
    host.runtime.preloads.fetch(IMAGE, 60)
    host.reconciler.tick()
    assert host.state() == "done"


def test_whole_and_pinned_is_kept_whole_and_tells_of_its_local_file(host: PreloadingHost) -> None:
    host.start(IMAGE, OTHER)
    host.reconciler.follow_local_files({IMAGE: "linked"}.get)
    host.admit(IMAGE, pin=True)
    host.admit(OTHER)
    host.reconciler.tick()
    assert host.reconciler.kept_whole() == frozenset()
    for image in (IMAGE, OTHER):
        host.runtime.preloads.fetch(image, CHUNKS)
    host.reconciler.tick()
    assert host.reconciler.kept_whole() == {IMAGE}
    told = {status["image"]: status["local_file"] for status in host.reconciler.status()}
    assert told == {IMAGE: "linked", OTHER: None}
    host.reconciler.give_up(IMAGE)
    assert host.reconciler.kept_whole() == frozenset()


def test_admitted_preload_that_cannot_be_kept_is_refused_and_not_written_down(
    host: PreloadingHost,
) -> None:
    host.start(IMAGE)
    with pytest.raises(exception.OverloadedError):
        host.admit(rate_bytes_per_s=11 * SIZE)
    with pytest.raises(exception.InvalidError):
        host.admit(rate_bytes_per_s=RATE_MIN, deadline_s=CHUNKS - 1.0)
    with pytest.raises(exception.NotFoundError):
        host.admit(OTHER)
    assert host.reconciler.status() == []
    assert not host.file.exists()


def test_working_set_that_nobody_knows_cannot_be_admitted(host: PreloadingHost) -> None:
    host.start(IMAGE)
    with pytest.raises(exception.NotFoundError):
        host.reconciler.estimate(IMAGE, PreloadWhat.WORKING_SET)


def test_drained_host_admitted_preloads_nothing(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.reconcile(is_draining=True)
    with pytest.raises(exception.InvalidError, match="drained"):
        host.admit()


def test_data_plane_that_is_away_admitted_preloads_nothing(host: PreloadingHost) -> None:
    with pytest.raises(exception.UnavailableError):
        host.admit()


def test_what_is_admitted_counts_for_the_next(host: PreloadingHost) -> None:
    host.start(IMAGE, OTHER)
    host.admit(IMAGE, rate_bytes_per_s=9 * SIZE)
    estimate = host.reconciler.estimate(OTHER, PreloadWhat.FULL)
    assert (estimate.promised_rate, estimate.promised_bytes) == (9 * SIZE, SIZE)
    with pytest.raises(exception.OverloadedError):
        host.admit(OTHER, rate_bytes_per_s=2 * SIZE)
    host.admit(OTHER, rate_bytes_per_s=1 * SIZE)


def test_second_admitted_preload_for_an_image_waits_for_the_end_of_the_first(
    host: PreloadingHost,
) -> None:
    host.start(IMAGE)
    first = host.admit(rate_bytes_per_s=5 * RATE_MIN)
    with pytest.raises(exception.InvalidError, match="already"):
        host.admit()
    request = PreloadRequest(IMAGE, PreloadWhat.FULL, rate_bytes_per_s=5 * RATE_MIN)
    assert host.reconciler.admit(first, request)["id"] == first, (
        "asked again, it is the same admitted preload"
    )
    host.reconciler.tick()
    host.runtime.preloads.fetch(IMAGE, CHUNKS)
    host.reconciler.tick()
    again = host.admit()
    host.reconciler.tick()
    host.reconciler.tick()
    (status,) = host.reconciler.status()
    assert (status["id"], status["state"]) == (again, "done")


def test_killed_agent_goes_on_with_what_it_admitted(host: PreloadingHost) -> None:
    host.start(IMAGE)
    promised = host.admit(rate_bytes_per_s=5 * RATE_MIN, deadline_s=200.0)
    host.reconciler.tick()
    host.runtime.preloads.fetch(IMAGE, 40)
    host.clock.now += 100
    host.reconciler = host.new_reconciler()  # nothing was said to the first one
    assert host.state() == "waiting"
    host.reconciler.tick()
    (status,) = host.reconciler.status()
    assert (status["id"], status["state"]) == (promised, "running")
    assert (status["deadline_s"], status["remaining_bytes"]) == (100.0, 60 * CHUNK_SIZE)
    assert host.job()["fetched_bytes"] == 40 * CHUNK_SIZE, "the job goes on, it was not begun anew"


def test_killed_data_plane_gets_its_job_again(host: PreloadingHost) -> None:
    runtime = host.start(IMAGE)
    host.admit(rate_bytes_per_s=5 * RATE_MIN)
    host.reconciler.tick()
    runtime.preloads.fetch(IMAGE, 40)
    held = set(runtime.preloads.held)
    host.data_plane.stop()
    host.reconciler.tick()
    assert host.state() == "waiting"
    host.data_plane.start(lambda fresh: fresh.preloads.held.update(held))
    host.reconciler.tick()
    (status,) = host.reconciler.status()
    assert (status["state"], status["remaining_bytes"]) == ("running", 60 * CHUNK_SIZE)
    assert host.job()["rate_bytes_per_s"] == 5 * RATE_MIN


def test_data_plane_restarted_between_two_looks_gets_its_job_again(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit()
    host.reconciler.tick()
    host.data_plane.stop()
    host.data_plane.start()
    host.reconciler.tick()
    assert host.state() == "running"
    assert host.job()["state"] == "running"


def test_job_that_a_hint_put_in_place_of_ours_is_started_again(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit(pin=True, rate_bytes_per_s=5 * RATE_MIN)
    host.reconciler.tick()
    jobs = host.client.call("preload.status")
    assert [job["pin"] for job in jobs] == [True]
    started = host.reconciler._started[IMAGE]
    host.reconciler._keep(host.kept(), {**jobs[0], "is_hint": True, "state": "done"})
    assert host.state() == "running", "what a hint brought is not what was admitted"
    assert host.reconciler._started[IMAGE] == started


def test_image_that_is_not_attached_yet_is_waited_for(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit()
    host.client.call("image.detach", image=IMAGE)
    host.reconcile()
    host.reconciler.tick()
    assert host.state() == "waiting"
    (status,) = host.reconciler.status()
    assert "not attached" in str(status["error"])


def test_image_that_is_removed_ends_the_admitted_preload(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit()
    host.reconciler.tick()
    host.reconcile(registered=frozenset())
    host.reconciler.tick()
    assert host.state() == "failed"
    assert AdmittedPreloadState(json.loads(host.file.read_text())["promises"][0]["state"]).has_ended


def test_deadline_that_is_missed_is_reported(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit(deadline_s=10.0)
    host.reconciler.tick()
    host.runtime.preloads.set_state(IMAGE, PreloadState.YIELDING)
    host.clock.now += 11
    host.reconciler.tick()
    (status,) = host.reconciler.status()
    assert (status["state"], status["is_late"]) == ("yielding", True)
    host.runtime.preloads.fetch(IMAGE, CHUNKS)
    host.reconciler.tick()
    (status,) = host.reconciler.status()
    assert (status["state"], status["is_late"]) == ("missed", False)


def test_what_guests_cost_is_caught_up(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit(deadline_s=100.0)
    host.reconciler.tick()
    first = host.kept().rate_bytes_per_s
    assert first == pytest.approx(1.25 * SIZE / 100, abs=RATE_MIN)
    host.clock.now += 60  # nothing was fetched
    host.reconciler.tick()
    assert host.job()["rate_bytes_per_s"] == pytest.approx(1.25 * SIZE / 40, rel=0.01)
    host.clock.now += 39.9
    host.reconciler.tick()
    assert host.job()["rate_bytes_per_s"] == pytest.approx(1.25 * SIZE, rel=0.01)


def test_catching_up_takes_no_more_than_the_share_of_the_link(host: PreloadingHost) -> None:
    host.start(IMAGE, OTHER)
    host.admit(OTHER, rate_bytes_per_s=RATE_MIN)
    host.link = 4.0 * RATE_MIN
    host.admit(deadline_s=CHUNKS / 0.9)
    host.reconciler.tick()
    host.clock.now += 90
    host.reconciler.tick()
    assert host.job()["rate_bytes_per_s"] == 1 * RATE_MIN
    assert host.job(OTHER)["rate_bytes_per_s"] == RATE_MIN


def test_rate_that_was_asked_for_is_never_raised(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit(rate_bytes_per_s=RATE_MIN, deadline_s=CHUNKS + 1.0)
    host.reconciler.tick()
    host.clock.now += CHUNKS
    host.reconciler.tick()
    assert host.job()["rate_bytes_per_s"] == RATE_MIN


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 20)), max_size=15))
def test_rates_stay_within_what_the_host_gives(steps: list[tuple[float, int]]) -> None:
    """Whatever guests do: all preloads together keep to the share, and enough is asked for."""
    with tempfile.TemporaryDirectory() as directory:
        clock, jobs = Clock(), _ScriptedJobs()
        reconciler = Preloading(
            "h1",
            f"{directory}/preloads.json",
            jobs,  # type: ignore[arg-type]
            Limits(rate=10 * RATE_MIN, link_share=0.5, margin=1.25),
            keep_ended=1000.0,
            link_bytes_per_s=lambda: LINK,
            clock=clock,
        )
        reconciler.admit(
            str(uuid.uuid4()), PreloadRequest(IMAGE, PreloadWhat.FULL, deadline_s=100.0)
        )
        for seconds, chunks in steps:
            clock.now += seconds
            jobs.fetch(chunks)
            reconciler.tick()
            kept = reconciler._admitted[IMAGE]
            assert RATE_MIN <= kept.rate_bytes_per_s <= LINK / 2
            assert kept.deadline_at is not None
            left = max(1.0, kept.deadline_at - clock.now)
            if not kept.state.has_ended:
                assert kept.rate_bytes_per_s >= min(LINK / 2, kept.remaining_bytes / left)
                assert kept.is_late(clock.now) == (clock.now > kept.deadline_at)


class _ScriptedJobs:
    """The data plane's side of one preload."""

    def __init__(self) -> None:
        self.remaining = SIZE
        self.rate: object = None

    def fetch(self, chunks: int) -> None:
        self.remaining = max(0, self.remaining - chunks * CHUNK_SIZE)

    def call(self, method: str, /, **params: object) -> object:
        if method == "preload.estimate":
            return {
                "total_bytes": SIZE, "missing_bytes": self.remaining, "free_bytes": 2 * SIZE,
                "evictable_bytes": 0, "pinnable_bytes": 0,
            }  # fmt: skip
        if method == "preload.start":
            self.rate = params["rate_bytes_per_s"]
            return self._job()
        return [] if self.rate is None else [self._job()]

    def _job(self) -> dict[str, object]:
        return {
            "image": IMAGE, "is_hint": False, "state": "running" if self.remaining else "done",
            "total_bytes": SIZE, "remaining_bytes": self.remaining, "recent_bytes_per_s": 0,
            "error": None,
        }  # fmt: skip


def test_states_of_the_data_plane_are_taken_over(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit()
    host.reconciler.tick()
    for state, expected in (
        (PreloadState.QUEUED, "waiting"),
        (PreloadState.YIELDING, "yielding"),
        (PreloadState.WAITING, "waiting"),
        (PreloadState.RUNNING, "running"),
        (PreloadState.STOPPED, "stopped"),
    ):
        host.runtime.preloads.set_state(IMAGE, state)
        host.reconciler.tick()
        assert host.state() == expected


def test_failure_of_the_data_plane_says_why(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit()
    host.reconciler.tick()
    host.runtime.preloads.set_state(IMAGE, PreloadState.FAILED, "no room")
    host.reconciler.tick()
    (status,) = host.reconciler.status()
    assert (status["state"], status["error"]) == ("failed", "no room")


def test_stopped_preload_stays_stopped(host: PreloadingHost) -> None:
    host.start(IMAGE)
    promised = host.admit()
    host.reconciler.tick()
    with pytest.raises(exception.NotFoundError):
        host.reconciler.give_up(IMAGE, str(uuid.uuid4()))
    assert host.reconciler.give_up(IMAGE, promised)["state"] == "stopped"
    assert host.job()["state"] == "stopped"
    host.reconciler.tick()
    host.reconciler = host.new_reconciler()
    host.reconciler.tick()
    assert host.state() == "stopped"
    with pytest.raises(exception.NotFoundError):
        host.reconciler.give_up(IMAGE)


def test_pin_is_kept_in_each_new_process_until_it_is_stopped(host: PreloadingHost) -> None:
    runtime = host.start(IMAGE)
    estimate = runtime.preloads.estimate(IMAGE, "full")
    assert estimate["missing_bytes"] <= estimate["pinnable_bytes"]
    host.admit(pin=True)
    host.reconciler.tick()
    runtime.preloads.fetch(IMAGE, CHUNKS)
    host.reconciler.tick()
    held = set(runtime.preloads.held)
    host.data_plane.stop()
    host.reconciler.tick()
    assert host.state() == "done", "a restart takes nothing back"
    host.data_plane.start(lambda fresh: fresh.preloads.held.update(held))
    host.reconciler.tick()
    assert host.job()["pin"] is True
    host.clock.now += 100_000
    host.reconciler.tick()
    assert host.state() == "done", "as long as it pins, it is listed"
    host.reconciler.give_up(IMAGE)
    assert host.job()["pin"] is False


def test_admitted_preloads_that_ended_long_ago_are_forgotten(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.admit()
    host.reconciler.tick()
    host.reconciler.give_up(IMAGE)
    host.clock.now += 999
    host.reconciler.tick()
    assert host.state() == "stopped"
    host.clock.now += 2
    host.reconciler.tick()
    assert host.reconciler.status() == []
    assert json.loads(host.file.read_text())["promises"] == []


def test_damaged_file_is_put_aside(host: PreloadingHost) -> None:
    host.file.write_bytes(b"{")
    host.reconciler = host.new_reconciler()
    host.start(IMAGE)
    assert host.reconciler.status() == []
    assert host.file.with_name("preloads.json.unreadable").read_bytes() == b"{"
    host.admit()
    host.reconcile()


def test_admitted_preload_that_cannot_be_written_down_is_not_given(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.file.mkdir()
    with pytest.raises(OSError, match="preloads"):
        host.admit()
    assert host.reconciler.status() == []


def test_thread_keeps_admitted_preloads_by_itself(host: PreloadingHost) -> None:
    host.start(IMAGE)
    host.reconciler.start()
    try:
        host.admit()
        wait_for("a job", lambda: host.state() == "running")
        host.runtime.preloads.fetch(IMAGE, CHUNKS)
        wait_for("the end", lambda: host.state() == "done")
    finally:
        host.reconciler.stop(10)
