"""Chunks that are named one by one, over the admin socket."""

import pathlib
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.control.chunk_set import ChunkSet
from acstor.control.client import AdminClient
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_runtime import MemoryRuntime, write_manifest

IMAGE = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"


class Machine:
    """A data plane with one image attached, of which chunks are held."""

    def __init__(self, conf: cfg.ConfigOpts, path: pathlib.Path) -> None:
        self.conf = conf
        self.path = path
        self.client = AdminClient(conf.dataplane.admin_socket)
        self.data_plane = MemoryDataPlane(conf)
        self.runtime: MemoryRuntime = self.data_plane.start()
        self.client.call("image.attach", path=write_manifest(path / "manifest", IMAGE, content=10))
        self.runtime.preloads.record_boot(IMAGE, {0, 1, 9})

    def ask(self, method: str, digests: list[bytes]) -> dict[str, int]:
        (self.path / "digests").write_bytes(b"".join(digests))
        found: dict[str, int] = self.client.call(method, path=str(self.path / "digests"))
        return found


@pytest.fixture
def machine(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> Iterator[Machine]:
    machine = Machine(conf, tmp_path)
    yield machine
    machine.data_plane.stop()


def test_chunks_of_an_image_that_the_host_holds_are_told(machine: Machine) -> None:
    told = machine.client.call("image.held", image=IMAGE)
    assert told["chunk_count"] == 16
    assert set(ChunkSet.decode(told["bitmap"], 16)) == {0, 1, 9}


def test_chunks_are_counted_and_discarded(machine: Machine) -> None:
    held = sorted(machine.runtime.preloads.held)
    machine.runtime.preloads.busy = {held[2]}
    asked = [*held, bytes(32)]
    assert machine.ask("chunks.count", asked) == {"asked": 4, "held": 3}
    assert machine.ask("chunks.discard", asked) == {"asked": 4, "held": 3, "left": 1}
    assert machine.ask("chunks.count", asked) == {"asked": 4, "held": 1}


def test_what_is_no_file_of_digests_is_refused(machine: Machine) -> None:
    for method in ("chunks.count", "chunks.discard"):
        with pytest.raises(exception.InvalidError):
            machine.ask(method, [b"too short"])
        with pytest.raises(exception.InvalidError, match="no file of acceptable size"):
            machine.ask(method, [])
        with pytest.raises(exception.InvalidError, match="mount of the data plane"):
            machine.client.call(method, path=f"{machine.conf.dataplane.mount_point}/x.raw")
    assert len(machine.runtime.preloads.held) == 3
