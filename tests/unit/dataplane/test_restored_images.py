"""Images that are attached again by the next process, as long as it takes."""

import pathlib
import threading
from collections.abc import Callable

import pytest

from acstor.backoff import BackOff
from acstor.dataplane import restored_images
from acstor.dataplane.host import DataPlaneHost
from testbed.doubles.manifests import make_manifest, make_paged_manifest
from testbed.doubles.memory_runtime import MemoryRuntime
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.host_machine import IMAGE, OTHER, Machine, keeper, machine, manifest

__all__ = ["keeper", "machine", "manifest"]


def whole_manifest() -> bytes:
    return make_manifest(IMAGE).to_bytes()


def paged_manifest() -> bytes:
    return make_paged_manifest(IMAGE)


def wait_attached(host: DataPlaneHost, runtime: MemoryRuntime, count: int) -> None:
    def is_attached() -> bool:
        host.retry_images()
        return len(runtime.images) == count

    wait_for(f"{count} images are attached", is_attached)


@pytest.mark.parametrize("kind", ["unavailable", "overloaded", "exhausted", "internal"])
def test_image_that_fails_once_after_a_restart_is_attached_soon(
    machine: Machine, manifest: Callable[[str], str], kind: str
) -> None:
    host = machine.host()
    machine.client().call("image.attach", path=manifest(IMAGE))
    machine.client().call("image.attach", path=manifest(OTHER))
    machine.runtimes[0].open_handles[IMAGE] = 1
    machine.client().call("image.detach", image=IMAGE)
    host.stop(unmount=True)
    machine.attach_failures = [kind]
    host = machine.host()
    runtime = machine.runtimes[1]
    assert len(runtime.images) == 1
    images = pathlib.Path(machine.conf.state_path, "dataplane", "images")
    assert not list(images.glob("*.refused"))
    wait_attached(host, runtime, 2)
    assert runtime.images[IMAGE]["hidden"] is True, "withdrawn, but guests have it open"
    assert runtime.images[OTHER]["hidden"] is False
    assert host.check_alive()


def test_image_that_waits_to_be_attached_again_can_be_detached_meanwhile(
    machine: Machine, manifest: Callable[[str], str]
) -> None:
    host = machine.host()
    machine.client().call("image.attach", path=manifest(IMAGE))
    host.stop(unmount=True)
    machine.attach_failures = ["unavailable"]
    host = machine.host()
    assert set(machine.client().call("status")["images_waiting"]) == {IMAGE}
    assert machine.client().call("image.detach", image=IMAGE) == {"state": "hidden"}
    machine.client().call("image.attach", path=manifest(OTHER))
    wait_attached(host, machine.runtimes[1], 2)
    assert machine.runtimes[1].images[IMAGE]["hidden"] is True
    assert machine.runtimes[1].images[OTHER]["hidden"] is False


def test_images_are_attached_again_without_waiting_for_who_detaches_one(
    machine: Machine, manifest: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detach may last as long as a read, and whoever attaches again feeds the watchdog."""
    monkeypatch.setattr(restored_images, "RETRY", BackOff(0.0, 0.0))
    host = machine.host()
    for image in (IMAGE, OTHER):
        machine.client().call("image.attach", path=manifest(image))
    host.stop(unmount=True)
    machine.attach_failures = ["unavailable"]
    host = machine.host()
    runtime = machine.runtimes[1]
    (attached,) = runtime.images
    begun, may_end = threading.Event(), threading.Event()
    detach = runtime.detach_image

    def slowly(image: str) -> str:
        begun.set()
        may_end.wait(30)
        return detach(image)

    monkeypatch.setattr(runtime, "detach_image", slowly)
    detaching = threading.Thread(
        target=machine.client().call, args=("image.detach",), kwargs={"image": attached}
    )
    detaching.start()
    retrying = threading.Thread(target=host.retry_images, daemon=True)
    try:
        assert begun.wait(30)
        retrying.start()
        retrying.join(30)
        assert not retrying.is_alive()
    finally:
        may_end.set()
        detaching.join()
    wait_attached(host, runtime, 1)


@pytest.mark.parametrize("make", [whole_manifest, paged_manifest], ids=["whole", "paged"])
def test_image_that_waits_is_named_with_its_manifest_all_the_time(
    machine: Machine, tmp_path: pathlib.Path, make: Callable[[], bytes]
) -> None:
    """Garbage collection keeps what it needs by that, whatever tries to attach it meanwhile."""
    host = machine.host()
    path = tmp_path / "manifest"
    path.write_bytes(make())
    attached = machine.client().call("image.attach", path=str(path))
    host.stop(unmount=True)
    machine.attach_failures = ["unavailable", "unavailable"]
    host = machine.host()
    runtime = machine.runtimes[1]
    attach = runtime.attach_image
    seen: list[object] = []

    def watched(
        manifest_path: str, hidden: bool = False, digest: str | None = None
    ) -> dict[str, object]:
        seen.append(host.status()["images_waiting"])
        return attach(manifest_path, hidden, digest)

    runtime.attach_image = watched  # type: ignore[method-assign]
    wait_attached(host, runtime, 1)
    assert seen == [{IMAGE: attached["manifest"]}] * 2
    assert host.status()["images_waiting"] == {}


def test_image_attached_anew_before_its_retry_is_listed(
    machine: Machine, manifest: Callable[[str], str]
) -> None:
    host = machine.host()
    machine.client().call("image.attach", path=manifest(IMAGE))
    host.stop(unmount=True)
    machine.attach_failures = ["unavailable"]
    host = machine.host()
    machine.client().call("image.attach", path=manifest(IMAGE))
    host.retry_images()
    assert machine.runtimes[1].images[IMAGE]["hidden"] is False


def test_disk_that_hangs_while_images_are_restored_stops_no_watchdog(
    machine: Machine, manifest: Callable[[str], str]
) -> None:
    """The thread that asks for it feeds the watchdog, which would end the process."""
    host = machine.host()
    machine.client().call("image.attach", path=manifest(IMAGE))
    host.stop(unmount=True)
    machine.attach_failures = ["unavailable"]
    host = machine.host()
    runtime = machine.runtimes[1]
    attach, begun, may_end = runtime.attach_image, threading.Event(), threading.Event()

    def hung(
        manifest_path: str, hidden: bool = False, digest: str | None = None
    ) -> dict[str, object]:
        begun.set()
        may_end.wait(30)
        return attach(manifest_path, hidden, digest)

    runtime.attach_image = hung  # type: ignore[method-assign]

    def has_begun() -> bool:
        host.retry_images()
        return begun.is_set()

    wait_for("the image is being attached", has_begun)
    watching = threading.Thread(target=host.retry_images, daemon=True)
    watching.start()
    watching.join(10)
    is_held_up = watching.is_alive()
    may_end.set()
    assert not is_held_up
    wait_attached(host, runtime, 1)
