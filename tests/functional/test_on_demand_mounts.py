"""File systems that are mounted at their first use, by automount units of systemd or autofs(8)."""

import errno
import os
import pathlib
from collections.abc import Iterator

import pytest

from acstor import exception, path_walk
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.origin import mounts
from testbed.fixtures import on_demand

pytestmark = pytest.mark.skipif(
    not on_demand.is_supported(), reason="needs root, and a kernel that mounts on demand"
)


@pytest.fixture
def point(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory whose file system is not mounted yet."""
    found = tmp_path / "point"
    found.mkdir()
    with on_demand.mounted_on_demand(found):
        yield found


def test_mount_of_an_origin_is_the_file_system_and_not_what_mounts_it(point: pathlib.Path) -> None:
    for path in (point, point / "repository"):
        on_demand.unmount(point)
        assert on_demand.kinds(point) == ["autofs"]
        found = mounts.find_mount(str(path))
        assert found is not None
        assert (found.kind, found.point) == ("tmpfs", str(point))


def test_path_is_walked_into_what_is_mounted_on_demand(point: pathlib.Path) -> None:
    assert on_demand.kinds(point) == ["autofs"]
    place = path_walk.walk(f"{point}/{on_demand.CONTENT}", lambda *_: None)
    os.close(place)


def test_directory_of_logs_is_given_its_identity_in_what_is_mounted_on_demand(
    point: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    LogDirectory(str(point), str(tmp_path / "copy")).claim()
    assert on_demand.kinds(point) == ["autofs", "tmpfs"]
    on_demand.unmount(point)
    with pytest.raises(exception.UnavailableError, match="is not the directory"):
        LogDirectory(str(point), str(tmp_path / "copy")).check()  # mounted anew it is another


def test_nothing_is_written_where_it_cannot_be_mounted(tmp_path: pathlib.Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    with on_demand.mounted_on_demand(point, is_mountable=False):
        with pytest.raises(exception.UnavailableError, match="is given no identity"):
            LogDirectory(str(point), str(tmp_path / "copy")).claim()
        found = mounts.find_mount(str(point))
        assert found is not None
        assert found.is_pending
        assert found.problems(needs_locks=False)
        with pytest.raises(OSError, match="No such") as refused:
            path_walk.walk(f"{point}/x", lambda *_: None)
        assert refused.value.errno in {errno.ENOENT, errno.ENODEV}
    assert not list(point.iterdir())
    assert not (tmp_path / "copy").exists()
