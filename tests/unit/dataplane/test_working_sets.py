"""Working sets and preloads over the admin socket, and what a restart keeps of them."""

import pathlib
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.control import bitmap, rank_list
from acstor.control.chunk_set import ChunkSet
from acstor.control.client import AdminClient
from acstor.control.protocol import PreloadState
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_runtime import CHUNK_SIZE, MemoryRuntime, write_manifest

IMAGE = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"


class Machine:
    """A data plane that can be started again on the same state, with one image attached."""

    def __init__(self, conf: cfg.ConfigOpts, path: pathlib.Path) -> None:
        self.path = path
        self.images = pathlib.Path(conf.state_path, "dataplane", "images")
        self.client = AdminClient(conf.dataplane.admin_socket)
        self._data_plane = MemoryDataPlane(conf)
        self.runtime = self._data_plane.start()
        manifest = write_manifest(path / "manifest", IMAGE, content=10)
        self.client.call("image.attach", path=manifest)

    def restart(self) -> MemoryRuntime:
        self._data_plane.stop()
        self.runtime = self._data_plane.start()
        self.look()  # working sets come after the start
        return self.runtime

    def look(self) -> None:
        self._data_plane.look()

    def stop(self) -> None:
        self._data_plane.stop()

    def set_working_set(self, content: bytes) -> None:
        (self.path / "bitmap").write_bytes(content)
        self.client.call("workingset.set", image=IMAGE, path=str(self.path / "bitmap"))


@pytest.fixture
def machine(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> Iterator[Machine]:
    machine = Machine(conf, tmp_path)
    yield machine
    machine.stop()


def test_what_boots_read_is_told_as_text(machine: Machine) -> None:
    machine.runtime.preloads.record_boot(IMAGE, {0, 9, 15})
    told = machine.client.call("workingset.read", image=IMAGE)
    assert (told["boots"], told["chunk_count"]) == (1, 16)
    assert set(ChunkSet.decode(told["bitmap"], 16)) == {0, 9, 15}


def test_working_set_survives_a_restart_and_goes_with_the_image(machine: Machine) -> None:
    machine.set_working_set(ChunkSet.of({0, 1, 2, 15}, 16).to_bytes())
    expected = [{"image": IMAGE, "wanted_chunks": 3, "present_chunks": 0}]
    assert machine.client.call("workingset.coverage") == expected
    machine.restart()
    assert machine.client.call("workingset.coverage") == expected
    machine.client.call("image.detach", image=IMAGE)
    assert list(machine.images.iterdir()) == []


@pytest.mark.parametrize("content", [b"\0", b"\0\0\0"])
def test_working_set_of_a_wrong_size_is_refused_and_the_former_stays(
    machine: Machine, content: bytes
) -> None:
    machine.set_working_set(ChunkSet.of({0}, 16).to_bytes())
    with pytest.raises(exception.InvalidError, match="no bitmap of 16 chunks"):
        machine.set_working_set(content)
    assert machine.client.call("workingset.coverage")[0]["wanted_chunks"] == 1
    assert machine.restart().coverage()[0]["wanted_chunks"] == 1


def test_kept_working_set_that_is_damaged_stops_no_start(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.set_working_set(ChunkSet.of({0}, 16).to_bytes())
    (machine.images / f"{IMAGE}.working-set").write_bytes(b"much too long")
    runtime = machine.restart()
    assert runtime.attached_before_start == [IMAGE]
    assert runtime.coverage() == []
    assert "forgetting what was kept" in caplog.text
    kept = {path.name for path in machine.images.iterdir()}
    assert kept == {f"{IMAGE}.manifest", f"{IMAGE}.digest"}


def test_boots_are_told_until_they_are_acknowledged(machine: Machine) -> None:
    order = [0, 15, *range(1, 15)]
    machine.runtime.boots.record(IMAGE, order)
    (told,) = machine.client.call("bootprofile.recorded", acknowledged=0)
    assert (told["image"], told["chunk_count"]) == (IMAGE, 16)
    content = bitmap.inflate(told["order"], rank_list.len_max(1))
    assert rank_list.decode(content, 16) == (tuple(order),)
    assert machine.client.call("bootprofile.recorded", acknowledged=0) == [told]
    assert machine.client.call("bootprofile.recorded", acknowledged=told["number"]) == []
    with pytest.raises(exception.InvalidError, match="acknowledged must be"):
        machine.client.call("bootprofile.recorded", acknowledged=-1)


def test_boot_profile_is_kept_over_a_restart_unless_it_is_damaged(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    def give(content: bytes) -> None:
        (machine.path / "orders").write_bytes(content)
        machine.client.call("bootprofile.set", image=IMAGE, path=str(machine.path / "orders"))

    orders = ((3, 0, 15), (7,))
    give(rank_list.encode(orders))
    assert machine.restart().boots.profiles == {IMAGE: orders}
    with pytest.raises(exception.InvalidError, match="chunk 16"):
        give(rank_list.encode([(16,)]))
    assert machine.restart().boots.profiles == {IMAGE: orders}
    (machine.images / f"{IMAGE}.boot-profile").write_bytes(b"no orders")
    assert machine.restart().boots.profiles == {}
    assert "forgetting what was kept" in caplog.text
    assert not (machine.images / f"{IMAGE}.boot-profile").exists()
    give(rank_list.encode(orders))
    give(rank_list.encode([]))
    assert machine.restart().boots.profiles == {}


def test_preload_is_started_followed_and_stopped(machine: Machine) -> None:
    call = machine.client.call
    started = call("preload.start", image=IMAGE, what="full", rate_bytes_per_s=5, pin=False)
    assert started["state"] == PreloadState.RUNNING
    machine.runtime.preloads.fetch(IMAGE, 4)
    (job,) = call("preload.status")
    assert job["fetched_bytes"] == 4 * CHUNK_SIZE
    assert job["remaining_bytes"] == 6 * CHUNK_SIZE
    assert call("preload.estimate", image=IMAGE, what="full")["missing_bytes"] == 6 * CHUNK_SIZE
    assert call("preload.stop", image=IMAGE) == {"done": True}
    assert call("preload.status")[0]["state"] == PreloadState.STOPPED
    assert call("preload.stop", image=IMAGE) == {"done": True}


def test_preload_of_an_unknown_working_set_is_not_found(machine: Machine) -> None:
    with pytest.raises(exception.NotFoundError, match="working set"):
        machine.client.call(
            "preload.start", image=IMAGE, what="working-set", rate_bytes_per_s=0, pin=True
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"what": "half"}, "what must be working-set or full"),
        ({"rate_bytes_per_s": -1}, "rate_bytes_per_s must be 0 to 2^40"),
        ({"rate_bytes_per_s": 1.5}, "rate_bytes_per_s must be"),
        ({"pin": 1}, "pin must be true or false"),
        ({"image": "x"}, "image must be an image id"),
    ],
)
def test_wrong_parameters_are_named(
    machine: Machine, change: dict[str, object], message: str
) -> None:
    params = {"image": IMAGE, "what": "full", "rate_bytes_per_s": 0, "pin": False} | change
    with pytest.raises(exception.InvalidError) as caught:
        machine.client.call("preload.start", call_timeout=None, **params)
    assert message in str(caught.value)
