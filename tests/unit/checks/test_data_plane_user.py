import grp
import os
import pathlib
import pwd
import socket
from collections.abc import Iterator

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks import host
from acstor.checks.data_plane_user import check_data_plane_user
from tests.unit.checks.conftest import Configure, text

pytestmark = pytest.mark.root

USER = pwd.getpwnam("nobody")
OPTIONS = """
[dataplane]
user = nobody
admin_socket = {path}/admin.sock
mount_socket = {path}/mount.sock
mount_point = {path}/images
[peer]
tls_enabled = {tls}
key_file = {path}/host.key
[volumes]
socket_group = {group}
"""


@pytest.fixture
def running(tmp_path: pathlib.Path) -> Iterator[None]:
    """A data plane of the user."""
    path = str(tmp_path / "admin.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chown(path, USER.pw_uid, -1)
        yield


def options(path: pathlib.Path, *, tls: bool = False, group: str | None = None) -> str:
    own = grp.getgrgid(USER.pw_gid).gr_name
    return OPTIONS.format(path=path, tls=tls, group=group or own)


def test_machine_without_a_data_plane_has_no_user(configure: Configure) -> None:
    assert text(check_data_plane_user(configure())) == host.NOT_COMPUTE


def test_data_plane_of_root_mounts_itself(compute: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "root.sock"
    path.touch()
    compute.set_override("admin_socket", str(path), "dataplane")
    assert "is root" in text(check_data_plane_user(compute))


@pytest.mark.usefixtures("running")
def test_user_who_may_all_is_well_once_acstor_mount_runs(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    conf = configure(options(tmp_path))
    result = check_data_plane_user(conf)
    assert (result.code, "does not run" in text(result)) == (Code.WARNING, True)
    (tmp_path / "mount.sock").touch()
    assert check_data_plane_user(conf).code is Code.SUCCESS


@pytest.mark.usefixtures("running")
def test_missing_group_is_named_with_what_to_do(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    result = check_data_plane_user(configure(options(tmp_path, group="root")))
    assert result.code is Code.FAILURE
    assert "usermod -aG root nobody" in text(result)


@pytest.mark.usefixtures("running")
def test_key_must_be_readable(configure: Configure, tmp_path: pathlib.Path) -> None:
    key = tmp_path / "host.key"
    key.touch()
    (tmp_path / "mount.sock").touch()
    conf = configure(options(tmp_path, tls=True))
    key.chmod(0o600)
    assert "cannot read" in text(check_data_plane_user(conf))
    key.chmod(0o640)
    os.chown(key, 0, USER.pw_gid)
    assert check_data_plane_user(conf).code is Code.SUCCESS


@pytest.mark.usefixtures("running")
def test_mount_point_that_others_can_move_is_a_failure(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, USER.pw_uid, -1)
    conf = configure(options(tmp_path))
    conf.set_override("mount_point", f"{folder}/images", "dataplane")
    result = check_data_plane_user(conf)
    assert result.code is Code.FAILURE
    assert f"chown root {folder}" in text(result)


@pytest.mark.usefixtures("running")
def test_missing_user_is_a_warning(configure: Configure, tmp_path: pathlib.Path) -> None:
    conf = configure(options(tmp_path))
    conf.set_override("user", "nobody-of-that-name", "dataplane")
    result = check_data_plane_user(conf)
    assert (result.code, "systemd-sysusers" in text(result)) == (Code.WARNING, True)
