"""Images whose manifests are read when they are needed: starts, and manifests found damaged."""

import pathlib
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from acstor.dataplane.attachments import Attachments
from testbed.doubles.memory_runtime import MemoryRuntime, write_manifest
from tests.unit.dataplane.test_working_sets import IMAGE, Machine


@pytest.fixture
def machine(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> Iterator[Machine]:
    machine = Machine(conf, tmp_path)
    yield machine
    machine.stop()


def _names(machine: Machine) -> set[str]:
    return {path.name.removeprefix(f"{IMAGE}.") for path in machine.images.iterdir()}


def _is_listed(runtime: MemoryRuntime) -> bool:
    return any(not image["hidden"] for image in runtime.list_images())


def test_start_reads_no_manifest_whose_digest_is_known(machine: Machine) -> None:
    assert machine.runtime.read_whole == 1
    before = machine.client.call("image.list")
    runtime = machine.restart()
    assert runtime.read_whole == 0
    assert machine.client.call("image.list") == before


def test_start_after_a_release_that_kept_no_digest_reads_the_manifest_once(
    machine: Machine,
) -> None:
    (machine.images / f"{IMAGE}.digest").unlink()
    assert [machine.restart().read_whole for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 1, "manifest": "x", "header": ""}'])
def test_digest_that_is_damaged_is_not_believed(machine: Machine, content: bytes) -> None:
    (machine.images / f"{IMAGE}.digest").write_bytes(content)
    assert [machine.restart().read_whole for _ in range(2)] == [1, 0]


def test_digest_of_another_manifest_is_not_believed(machine: Machine) -> None:
    write_manifest(machine.images / f"{IMAGE}.manifest", IMAGE, content=7)
    (found,) = Attachments(str(machine.images.parent)).images()
    assert found.digest is None


def test_damaged_manifest_is_put_aside_and_the_image_withdrawn(machine: Machine) -> None:
    runtime = machine.runtime
    runtime.damaged.add(IMAGE)
    machine.look()
    assert not _is_listed(runtime)
    assert _names(machine) == {"refused"}


def test_damaged_manifest_of_an_open_image_hides_it_until_it_comes_anew(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    runtime = machine.runtime
    runtime.open_handles[IMAGE] = 1
    runtime.damaged.add(IMAGE)
    for _ in range(3):
        machine.look()
        assert [image["hidden"] for image in runtime.list_images()] == [True]
    path = write_manifest(tmp_path / "again", IMAGE, content=10)
    machine.client.call("image.attach", path=path)
    machine.look()
    assert _is_listed(runtime)
    assert _names(machine) == {"refused", "manifest", "digest"}


def test_start_goes_on_where_a_digest_cannot_be_read(machine: Machine) -> None:
    (machine.images / f"{IMAGE}.digest").unlink()
    (machine.images / f"{IMAGE}.digest").mkdir()
    (found,) = Attachments(str(machine.images.parent)).images()
    assert found.digest is None


def test_image_is_attached_though_its_digest_cannot_be_kept(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    other = "0d0f2f54-6a83-4e2e-8d9c-2f7f0b6c2a11"
    (machine.images / f"{other}.digest").mkdir()
    path = write_manifest(tmp_path / "other", other, content=10)
    machine.client.call("image.attach", path=path)
    assert (machine.images / f"{other}.manifest").exists()
    assert machine.restart().read_whole == 1


def test_damaged_manifest_that_cannot_be_put_aside_leaves_the_process_alive(
    machine: Machine,
) -> None:
    runtime = machine.runtime
    # As on a file system that the kernel has made read-only.
    (machine.images / f"{IMAGE}.refused").mkdir()
    runtime.open_handles[IMAGE] = 1
    runtime.damaged.add(IMAGE)
    for _ in range(3):
        machine.look()
    assert not _is_listed(runtime)
    (machine.images / f"{IMAGE}.refused").rmdir()
    machine.look()
    assert "manifest" not in _names(machine)


def test_bad_manifest_that_cannot_be_put_aside_does_not_keep_the_process_from_starting(
    machine: Machine,
) -> None:
    (machine.images / f"{IMAGE}.manifest").write_bytes(b"no manifest")
    (machine.images / f"{IMAGE}.refused").mkdir()
    assert machine.restart().list_images() == []
