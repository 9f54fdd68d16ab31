"""State that the host process restores, keeps and hands on, with the runtime in memory."""

import os
import pathlib
import socket
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.dataplane import host as host_module
from acstor.dataplane.descriptors import FUSE, PEER_LISTENER
from acstor.dataplane.states import ProcessState
from acstor.mounting import mount_point
from testbed.doubles.memory_runtime import MemoryRuntime, write_ring
from tests.unit.dataplane.host_machine import IMAGE, OTHER, Machine, keeper, machine, manifest

__all__ = ["keeper", "machine", "manifest"]


def test_first_start_mounts_and_gives_descriptors_to_the_supervisor(machine: Machine) -> None:
    host = machine.host()
    assert machine.runtimes[0].taken_over is False
    assert set(machine.keeper.take()) == {FUSE, PEER_LISTENER}
    assert host.leaves_mount()
    host.stop(unmount=False)
    assert machine.runtimes[0].stops == 1
    assert machine.mounter.calls == ["mount"]
    assert set(machine.keeper.take()) == {FUSE, PEER_LISTENER}


def test_final_stop_unmounts_and_takes_the_descriptors_back(machine: Machine) -> None:
    host = machine.host()
    machine.keeper.take()
    host.stop(unmount=True)
    assert machine.runtimes[0].stops == 1
    assert machine.mounter.calls == ["mount", "unmount"]
    assert machine.keeper.take() == {}
    assert host.state is ProcessState.STOPPED


def test_stop_ends_although_nobody_unmounts(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    host = machine.host()
    machine.mounter.failures["unmount"] = exception.UnavailableError("nobody", hint="start it")
    host.stop(unmount=True)
    assert host.state is ProcessState.STOPPED
    assert "the file system stays mounted: nobody; start it" in caplog.text


def test_take_over_needs_nobody_who_mounts(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    host = machine.host()
    kept = dict(machine.keeper.take())
    host.stop(unmount=False)
    machine.mounter.failures = {
        name: exception.UnavailableError("nobody") for name in ("mount", "set_read_ahead")
    }
    machine.host(passed=kept)
    assert machine.runtimes[1].taken_over
    assert "the read-ahead of the mount stays as it is" in caplog.text


def test_start_without_anybody_who_mounts_says_so(machine: Machine) -> None:
    machine.mounter.failures["mount"] = exception.UnavailableError("nobody mounts")
    with pytest.raises(exception.UnavailableError, match="nobody mounts"):
        machine.host()


def test_successor_attaches_everything_before_it_serves(
    machine: Machine, manifest: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    host = machine.host()
    client = machine.client()
    for disk_id in (IMAGE, OTHER):
        client.call("image.attach", path=manifest(disk_id))
    client.call("ring.set", path=write_ring(tmp_path / "ring", 7))
    client.call("drain", on=True)
    client.call("placement.threshold", hops=5)
    machine.runtimes[0].open_handles[OTHER] = 1
    assert client.call("image.detach", image=OTHER) == {"state": "hidden"}
    address = machine.runtimes[0].peer_address()
    kept = dict(machine.keeper.take())
    host.stop(unmount=False)

    machine.host(passed=kept)
    successor = machine.runtimes[1]
    assert successor.taken_over
    assert successor.attached_before_start == [OTHER, IMAGE]
    assert [image["hidden"] for image in successor.list_images()] == [True, False]
    assert successor.ring is not None
    assert successor.ring["generation"] == 7
    assert successor.distance_threshold == 5
    assert successor.is_draining
    assert successor.peer_address() == address


def test_hidden_image_is_forgotten_once_it_is_released(
    machine: Machine, manifest: Callable[[str], str]
) -> None:
    host = machine.host()
    client = machine.client()
    client.call("image.attach", path=manifest(IMAGE))
    machine.runtimes[0].open_handles[IMAGE] = 1
    client.call("image.detach", image=IMAGE)
    machine.runtimes[0].open_handles[IMAGE] = 0
    assert client.call("image.detach", image=IMAGE) == {"state": "removed"}
    host.stop(unmount=True)
    machine.host()
    assert machine.runtimes[1].attached_before_start == []


def test_attaching_a_hidden_image_again_lists_it_also_after_a_restart(
    machine: Machine, manifest: Callable[[str], str]
) -> None:
    host = machine.host()
    client = machine.client()
    client.call("image.attach", path=manifest(IMAGE))
    machine.runtimes[0].open_handles[IMAGE] = 1
    client.call("image.detach", image=IMAGE)
    client.call("image.attach", path=manifest(IMAGE))
    host.stop(unmount=True)
    machine.host()
    assert [image["hidden"] for image in machine.runtimes[1].list_images()] == [False]


def test_passed_file_system_that_is_gone_is_mounted_anew(machine: Machine) -> None:
    stale = os.open("/dev/null", os.O_RDONLY)
    machine.host(passed={FUSE: stale})
    first, second = machine.runtimes
    assert first.taken_over
    assert second.taken_over is False
    assert pathlib.Path(f"/proc/self/fd/{machine.keeper.take()[FUSE]}").is_socket()


@pytest.fixture
def held(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Mounts that another process holds; what is detached leaves the list."""
    mounts: list[str] = []
    monkeypatch.setattr(mount_point, "is_mounted", lambda path: path in mounts)
    monkeypatch.setattr(mount_point, "is_connected", lambda path: path in mounts)
    monkeypatch.setattr(machine.mounter, "detach", mounts.clear)
    monkeypatch.setattr(host_module, "_RELEASE_TIMEOUT", 0.01)
    return mounts


def test_held_mount_is_left_to_the_next_start_which_is_handed_it(
    machine: Machine, held: list[str]
) -> None:
    held.append(machine.conf.dataplane.mount_point)
    with pytest.raises(exception.UnavailableError, match="another process holds"):
        machine.host()
    assert len(held) == 1, "not detached"
    MemoryRuntime.locked_stores.clear()
    ours, theirs = socket.socketpair()
    machine.host(passed={FUSE: ours.detach()})
    assert machine.runtimes[-1].taken_over
    theirs.close()


def test_held_mount_that_nobody_hands_over_is_mounted_anew(
    machine: Machine, held: list[str]
) -> None:
    held.append(machine.conf.dataplane.mount_point)
    for _ in range(5):
        with pytest.raises(exception.UnavailableError, match=r"start . that finds it so, of 5"):
            machine.host()
        MemoryRuntime.locked_stores.clear()
    host = machine.host()
    assert held == []
    host.stop(unmount=True)
    held.append(machine.conf.dataplane.mount_point)
    with pytest.raises(exception.UnavailableError, match="start 1 "):
        machine.host()


def test_held_mount_without_a_supervisor_is_mounted_anew(machine: Machine, held: list[str]) -> None:
    held.append(machine.conf.dataplane.mount_point)
    machine.host(supervised=False)
    assert held == []


def test_changed_peer_address_is_listened_on_anew(machine: Machine) -> None:
    with socket.create_server(("127.0.0.2", 0)) as former:
        machine.host(passed={PEER_LISTENER: os.dup(former.fileno())})
    assert machine.runtimes[0].peer_address().startswith("127.0.0.1:")


def test_second_data_plane_on_one_store_is_refused(machine: Machine) -> None:
    machine.host()
    with pytest.raises(exception.UnavailableError, match="open in process 1") as caught:
        machine.host()
    assert "setting up the data plane" in str(caught.value)


def test_manifest_that_is_malformed_after_a_restart_is_put_aside(
    machine: Machine, manifest: Callable[[str], str]
) -> None:
    host = machine.host()
    machine.client().call("image.attach", path=manifest(IMAGE))
    host.stop(unmount=True)
    images = pathlib.Path(machine.conf.state_path, "dataplane", "images")
    (images / f"{IMAGE}.manifest").write_text("{")
    machine.host()
    assert machine.runtimes[1].attached_before_start == []
    assert [path.name for path in images.iterdir()] == [f"{IMAGE}.refused"]


def test_refused_manifest_leaves_nothing_behind(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.host()
    (tmp_path / "bad").write_text("{")
    with pytest.raises(exception.CorruptError, match="attaching"):
        machine.client().call("image.attach", path=str(tmp_path / "bad"))
    directory = pathlib.Path(machine.conf.state_path, "dataplane")
    assert [path.name for path in directory.rglob("*")] == ["images"]


def test_threshold_that_was_given_counts_after_restarts_until_another_is(
    machine: Machine,
) -> None:
    first = machine.host()
    client = machine.client()
    assert client.call("status")["distance_threshold"] is None, "the configuration's"
    for hops in (0, 7, None):
        assert client.call("placement.threshold", hops=hops) == {"hops": hops}
        status = client.call("status")
        assert (status["distance_threshold"], status["placement_threshold"]) == (hops, hops)
    for bad in (-1, 256, 2.0, True, "5"):
        with pytest.raises(exception.InvalidError, match="0 to 255 hops, or null"):
            client.call("placement.threshold", hops=bad)
    client.call("placement.threshold", hops=3)
    first.stop(unmount=True)
    machine.host()
    assert machine.client().call("status")["distance_threshold"] == 3


def test_sketch_is_in_hexadecimal_digits(machine: Machine) -> None:
    machine.host()
    client = machine.client()
    expected = {"count": 2, "hashes": ["0000000000000001", "ffffffffffffffff"]}
    assert client.call("store.sketch", count=256) == expected
    with pytest.raises(exception.InvalidError, match="1 to 256"):
        client.call("store.sketch", count=257)


def test_older_ring_is_fenced(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.host()
    client = machine.client()
    client.call("ring.set", path=write_ring(tmp_path / "new", 7))
    with pytest.raises(exception.FencedError):
        client.call("ring.set", path=write_ring(tmp_path / "old", 6))
    assert client.call("ring.show")["generation"] == 7


def test_file_in_the_own_mount_is_refused_unopened(machine: Machine) -> None:
    machine.host()
    path = os.path.join(machine.conf.dataplane.mount_point, f"{IMAGE}.raw")
    with pytest.raises(exception.InvalidError, match="in the mount of the data plane itself"):
        machine.client().call("image.attach", path=path)


def test_pipe_instead_of_a_manifest_is_refused(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.host()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(exception.InvalidError, match="no file of acceptable size"):
        machine.client().call("image.attach", path=str(tmp_path / "pipe"))


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("image.attach", {}, "path must be an absolute path"),
        ("image.attach", {"path": "relative"}, "path must be an absolute path"),
        ("image.detach", {"image": "../x"}, "image must be an image id"),
        ("image.list", {"more": 1}, "no parameter 'more'"),
        ("drain", {"on": 1}, "on must be true or false"),
        (
            "pin",
            {"image": IMAGE, "head_bytes": -1, "tail_bytes": 0, "timeout": 1},
            "head_bytes must be",
        ),
        (
            "pin",
            {"image": IMAGE, "head_bytes": 1, "tail_bytes": 0, "timeout": 1e9},
            "timeout must be",
        ),
        ("ledger.start", {"image": IMAGE, "capacity": 10**9}, "capacity must be 1 to 200000"),
        ("log.level", {"directives": "a b"}, "directives must be"),
    ],
)
def test_wrong_parameters_are_named(
    machine: Machine, method: str, params: dict[str, object], message: str
) -> None:
    machine.host()
    with pytest.raises(exception.InvalidError) as caught:
        machine.client().call(method, call_timeout=None, **params)
    assert message in str(caught.value)


def test_status_tells_process_and_runtime(machine: Machine) -> None:
    machine.host()
    status = machine.client().call("status")
    assert status["host"] == "h1"
    assert status["process_state"] == "serving"
    assert status["pid"] == os.getpid()
    assert status["peer_address"].startswith("127.0.0.1:")
    assert status["fuse"]["connected"] is True


def test_restart_is_asked_for_only_with_a_supervisor(machine: Machine) -> None:
    host = machine.host()
    machine.client().call("process.restart")
    assert machine.restarts == 1
    host.stop(unmount=True)
    machine.host(supervised=False)
    with pytest.raises(exception.InvalidError, match="no supervisor"):
        machine.client().call("process.restart")


@pytest.mark.parametrize("force", [False, True])
def test_data_plane_in_use_stops_for_good_only_when_forced(
    machine: Machine, manifest: Callable[[str], str], force: bool
) -> None:
    host = machine.host()
    host.images.attach(manifest(IMAGE))
    machine.runtimes[-1].open_handles[IMAGE] = 1
    if force:
        machine.client().call("process.stop", force=True)
    else:
        with pytest.raises(exception.FencedError, match="1 images are open"):
            machine.client().call("process.stop", force=False)
    assert (machine.stops, host.is_stopped_for_good) == (int(force), force)


def test_data_plane_that_nobody_uses_stops_for_good(
    machine: Machine, manifest: Callable[[str], str]
) -> None:
    host = machine.host()
    host.images.attach(manifest(IMAGE))
    machine.client().call("process.stop", force=False)
    assert (machine.stops, machine.restarts, host.is_stopped_for_good) == (1, 0, True)


def test_unmounted_file_system_is_noticed_and_not_handed_on(machine: Machine) -> None:
    host = machine.host()
    assert host.check_alive()
    machine.runtimes[0].is_connected = False
    assert not host.check_alive()
    assert set(machine.keeper.take()) == {PEER_LISTENER}


@pytest.mark.parametrize("sign", ["longest_request_ms", "runtime_late_ms"])
def test_stuck_thread_is_noticed_once_it_lasts(machine: Machine, sign: str) -> None:
    host = machine.host()
    runtime = machine.runtimes[0]
    setattr(runtime, sign, 31_000)
    looks = [host.check_alive() for _ in range(4)]
    assert looks == [True] * 4, "the process may just have been stopped itself"
    setattr(runtime, sign, 10)
    assert host.check_alive()
    setattr(runtime, sign, 31_000)
    assert [host.check_alive() for _ in range(5)] == [True] * 4 + [False]
    assert FUSE in machine.keeper.take(), "the next process has the mount"


def test_trace_and_pins_reach_the_runtime(machine: Machine, manifest: Callable[[str], str]) -> None:
    machine.host()
    client = machine.client()
    client.call("image.attach", path=manifest(IMAGE))
    assert (
        client.call("pin", image=IMAGE, head_bytes=8, tail_bytes=4, timeout=1)["pinned_bytes"] == 12
    )
    client.call("ledger.start", image=IMAGE, capacity=10)
    assert client.call("ledger.get", image=IMAGE) == '{"at_us":0,"chunk":0}\n'
    client.call("ledger.stop", image=IMAGE)
    with pytest.raises(exception.NotFoundError):
        client.call("ledger.get", image=IMAGE)
    assert "acstor_images 1" in client.call("metrics")
