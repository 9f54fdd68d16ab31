"""Rules of restores in place that no flow has: sizes, by what is recorded."""

import dataclasses
import uuid

import pytest

from acstor import exception
from acstor.versions import rebuilding, writing_in_place
from acstor.versions.host_restore.request import DISKS_MAX
from acstor.versions.services.compute import server_of
from tests.unit.repository.versions.records import committed

GIB = 1 << 30
SERVER = server_of({"id": "s", "status": "ACTIVE"})


@pytest.mark.parametrize(
    ("disk_gib", "newest", "size", "is_same"),
    [
        (2, None, 2 * GIB, True),
        (2, 1 * GIB, 2 * GIB, True),
        (2, None, 1 * GIB, False),
        (0, None, 1 * GIB, True),
        (0, 1 * GIB, 1 * GIB, True),
        (0, 2 * GIB, 1 * GIB, False),
    ],
)
def test_disk_must_have_the_size_of_the_version(
    disk_gib: int, newest: int | None, size: int, is_same: bool
) -> None:
    server = dataclasses.replace(SERVER, disk_gib=disk_gib)
    record = committed(size_bytes=size)
    if is_same:
        writing_in_place.require_same_size(server, record, newest)
        return
    with pytest.raises(rebuilding.NotRebuildableError, match="resized"):
        writing_in_place.require_same_size(server, record, newest)


def test_disk_that_is_half_written_is_mended() -> None:
    torn = dataclasses.replace(SERVER, is_locked=True, lock_reason=rebuilding.torn_lock_reason("t"))
    writing_in_place.require_unlocked(torn, None)
    locked = dataclasses.replace(torn, lock_reason="mine")
    with pytest.raises(rebuilding.BusyServerError):
        writing_in_place.require_unlocked(locked, None)


def test_lock_of_a_half_written_set_names_its_disks() -> None:
    reason = rebuilding.torn_lock_reason("t", ["vda", "vdb"])
    torn = dataclasses.replace(SERVER, is_locked=True, lock_reason=reason)
    assert rebuilding.is_torn(torn)
    assert rebuilding.torn_devices(torn) == {"vda", "vdb"}
    writing_in_place.require_covered(torn, ["vdb", "vda", "vdc"])
    with pytest.raises(rebuilding.BusyServerError, match="too: vdb"):
        writing_in_place.require_covered(torn, ["vda"])
    assert rebuilding.torn_devices(dataclasses.replace(torn, is_locked=False)) == frozenset()


def test_lock_that_names_no_disk_is_of_the_root_disk() -> None:
    reason = rebuilding.torn_lock_reason("t")
    torn = dataclasses.replace(SERVER, is_locked=True, lock_reason=reason, root_device="vda")
    assert rebuilding.torn_devices(torn) == {"vda"}
    writing_in_place.require_covered(torn, ["vda"])
    with pytest.raises(rebuilding.BusyServerError, match="too: vda"):
        writing_in_place.require_covered(torn, ["vdb"])
    assert rebuilding.torn_devices(dataclasses.replace(torn, root_device=None)) == frozenset()


def test_longest_reason_of_a_lock_is_one_that_nova_takes() -> None:
    devices = [f"vd{number}" for number in range(10, 10 + DISKS_MAX)]
    assert len(rebuilding.torn_lock_reason(str(uuid.UUID(int=1)), devices)) <= 255


def test_present_disk_is_kept() -> None:
    writing_in_place.require_kept(is_kept=True)
    with pytest.raises(exception.UnsupportedError, match="way back"):
        writing_in_place.require_kept(is_kept=False)
