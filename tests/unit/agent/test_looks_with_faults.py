"""Looks of an agent in which something is wrong: it stays where it is."""

import pathlib

import pytest

from acstor.agent.agent import Agent
from acstor.agent.reconcilers.decision_following import DecisionFollower
from acstor.agent.reconcilers.usage_publication import UsagePublisher
from acstor.cluster.membership import View
from acstor.cluster.ring.published_ring import read_ring
from acstor.origin.posix import PosixOrigin
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.repository import Repository
from testbed.doubles.memory_runtime import CHUNK_SIZE
from tests.unit.agent.conftest import Clock, HostUnderTest, RecordingReconciler
from tests.unit.agent.test_agent import IMAGE, OTHER, problems, publish, register
from tests.unit.cluster.ring_publishers import named


class Elected:
    """A group of which this host is the publisher."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.is_eligible = True

    def is_elected(self) -> bool:
        return True

    def join_as(self, member: object) -> None:
        pass

    def set_eligible(self, is_eligible: bool) -> None:
        self.is_eligible = is_eligible


def test_fault_of_one_step_stops_no_other(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, an error that nobody had foreseen ended the look, at each look anew."""
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    publish(host.origin, 3)

    def fail(*_: object) -> None:
        raise RecursionError("a document that is too deep")

    monkeypatch.setattr(host.agent, "_follow_desired_state", fail)
    monkeypatch.setattr(DecisionFollower, "reconcile", fail)
    monkeypatch.setattr(UsagePublisher, "speak", fail)
    host.reconciler.error = OverflowError("int too large to convert to float")
    following = RecordingReconciler()
    host.agent._reconcilers = (host.reconciler, following)
    for _ in range(2):
        host.agent.reconcile()
    assert runtime.ring is not None
    assert set(runtime.images) == {IMAGE}
    assert len(following.sights) == 2
    assert set(problems(host.agent)) == {"desired state", "decision", "usage record", "recording"}
    assert "a fault of ACStor: OverflowError" in problems(host.agent)["recording"]
    traces = [record for record in caplog.records if record.exc_info]
    assert len(traces) == 4, "each once, with where it was raised"


def test_fault_of_one_image_leaves_the_others(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    register(host.origin, OTHER)
    parse = ImageRecord.parse

    def parse_or_fail(content: bytes, image_id: str) -> ImageRecord:
        if image_id == IMAGE:
            raise RecursionError("too deep")
        return parse(content, image_id)

    monkeypatch.setattr(ImageRecord, "parse", parse_or_fail)
    host.agent.reconcile()
    assert set(runtime.images) == {OTHER}
    assert list(problems(host.agent)) == [f"image {IMAGE}"]


def test_agent_that_starts_before_the_origin_is_mounted_waits_for_it(
    host: HostUnderTest, tmp_path: pathlib.Path, clock: Clock
) -> None:
    """Its mount point is an empty directory: no origin without images, ring and records."""
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.agent.reconcile()
    runtime.images[IMAGE]["manifest"] = "of the process before"
    mount_point = tmp_path / "mount point"
    mount_point.mkdir()
    agent = Agent(
        host.conf,
        open_origin=lambda: PosixOrigin(str(mount_point)),
        metrics=host.metrics,
        metrics_address="127.0.0.1:9471",
        reconcilers=[host.reconciler],
        clock=clock,
    )
    is_member = View(named("h1"), is_current=True, is_publisher=True)
    membership = Elected(is_member)
    agent._membership = membership  # type: ignore[assignment]
    for number in range(4):
        agent.reconcile()
        assert membership.is_eligible == (number < 2), "others publish the ring, once it lasts"
        assert "the origin holds no repository: mount" in agent.problems["origin"]
        assert host.reconciler.sights[-1].origin is None
        assert set(runtime.images) == {IMAGE}, "what is here is served"
    assert list(mount_point.iterdir()) == []
    mounted = Repository.init(PosixOrigin(str(mount_point)), CHUNK_SIZE).origin
    register(mounted, OTHER)
    agent.reconcile()
    assert membership.is_eligible
    clock.now += 2
    agent.reconcile()
    assert "origin" not in agent.problems
    assert OTHER in runtime.images
    assert read_ring(mounted) is not None
