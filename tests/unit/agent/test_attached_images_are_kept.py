"""Chunks of a running guest: they outlive its image's removal, and its host's agent."""

from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from tests.unit.agent.conftest import HostUnderTest
from tests.unit.repository.images import disk, image_id, register


def test_chunks_of_a_running_guest_are_kept_while_the_agent_is_away(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    repository = Repository.open(host.origin)
    register(repository, 0, disk(1, 2, 3))
    host.agent.reconcile()
    runtime.open_handles[image_id(0)] = 1
    objects = set(host.origin.list())
    repository.remove_image(image_id(0))
    for _ in range(3):
        Collector(repository, "controller", 0.0, clock=lambda: 1.0).collect()
    assert set(host.origin.list()) == objects
