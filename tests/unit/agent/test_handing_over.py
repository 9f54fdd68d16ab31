import os
import pathlib
import socket
from collections.abc import Iterator

import pytest

from acstor.agent.handing_over import hand_over
from acstor.control.client import AdminClient

pytestmark = pytest.mark.root

USER = 65533


@pytest.fixture
def data_plane(tmp_path: pathlib.Path) -> Iterator[AdminClient]:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.chown(path, USER, USER)
        yield AdminClient(str(path))


def test_data_plane_of_another_user_reads_it_and_nobody_else(
    data_plane: AdminClient, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "state" / "agent" / "manifests" / "x.manifest"
    path.parents[2].mkdir(mode=0o755)
    path.parents[1].mkdir(mode=0o700)
    hand_over(data_plane, str(path), b"content")
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (USER, 0o600)
    assert [path.parents[n].stat().st_mode & 0o777 for n in range(3)] == [0o711, 0o711, 0o755]
    hand_over(data_plane, str(path), b"next")
    assert path.read_bytes() == b"next"


def test_file_stays_root_s_where_the_data_plane_is_root_or_away(
    data_plane: AdminClient, tmp_path: pathlib.Path
) -> None:
    path, admin_socket = tmp_path / "agent" / "ring.bin", tmp_path / "admin.sock"
    os.chown(admin_socket, 0, 0)
    for _ in range(2):
        hand_over(data_plane, str(path), b"content")
        assert (path.stat().st_uid, path.parent.stat().st_mode & 0o777) == (0, 0o700)
        admin_socket.unlink(missing_ok=True)
