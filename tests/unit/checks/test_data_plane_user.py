import grp
import os
import pathlib
import pwd
import socket
import tempfile
from collections.abc import Iterator

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks import host
from acstor.checks.data_plane_user import check_data_plane_user
from acstor.conf import config_files
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
def tmp_path() -> Iterator[pathlib.Path]:
    """A directory that the user gets to."""
    with tempfile.TemporaryDirectory(prefix="acstor-") as name:
        path = pathlib.Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture
def running(tmp_path: pathlib.Path, config_file: pathlib.Path) -> Iterator[None]:
    """A data plane of the user, with an origin of his."""
    path = str(tmp_path / "admin.sock")
    os.chown(config_file.parent / "origin", USER.pw_uid, -1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chown(path, USER.pw_uid, -1)
        yield


@pytest.fixture
def mounting(tmp_path: pathlib.Path) -> Iterator[None]:
    """An acstor-mount that listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "mount.sock"))
        listener.listen()
        yield


def options(path: pathlib.Path, *, tls: bool = False, group: str | None = None) -> str:
    own = grp.getgrgid(USER.pw_gid).gr_name
    return OPTIONS.format(path=path, tls=tls, group=group or own)


def test_machine_without_a_data_plane_has_no_user(configure: Configure) -> None:
    assert text(check_data_plane_user(configure())) == host.NOT_COMPUTE


def test_data_plane_of_root_mounts_itself(compute: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "root.sock"
    compute.set_override("admin_socket", str(path), "dataplane")
    compute.set_override("user", "nobody", "dataplane")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        result = check_data_plane_user(compute)
        assert result.code is Code.SUCCESS
        assert "is root" in text(result)
        assert f"one of nobody fails: nobody cannot write to the origin {tmp_path}" in text(result)
    # What it left says nothing about the next one.
    assert check_data_plane_user(compute).code is Code.FAILURE


@pytest.mark.usefixtures("running")
def test_user_who_may_all_is_well_once_acstor_mount_runs(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    conf = configure(options(tmp_path))
    result = check_data_plane_user(conf)
    assert (result.code, "does not run" in text(result)) == (Code.WARNING, True)
    socket_path = str(tmp_path / "mount.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(socket_path)
        listener.listen()
        assert check_data_plane_user(conf).code is Code.SUCCESS
    assert os.path.exists(socket_path)
    assert "does not run" in text(check_data_plane_user(conf)), "it was killed"


@pytest.mark.usefixtures("running")
def test_missing_group_is_named_with_what_to_do(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    result = check_data_plane_user(configure(options(tmp_path, group="root")))
    assert result.code is Code.FAILURE
    assert "usermod -aG root nobody" in text(result)


@pytest.mark.usefixtures("running", "mounting")
def test_key_must_be_readable(configure: Configure, tmp_path: pathlib.Path) -> None:
    key = tmp_path / "host.key"
    key.touch()
    conf = configure(options(tmp_path, tls=True))
    key.chmod(0o600)
    assert "cannot read" in text(check_data_plane_user(conf))
    key.chmod(0o640)
    os.chown(key, 0, USER.pw_gid)
    assert check_data_plane_user(conf).code is Code.SUCCESS
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    key.rename(closed / "host.key")
    conf.set_override("key_file", str(closed / "host.key"), "peer")
    assert "cannot read" in text(check_data_plane_user(conf))
    closed.chmod(0o711)
    authority = tmp_path / "tls" / "ca.pem"
    authority.parent.mkdir()
    authority.touch(mode=0o600)
    assert f"cannot read {authority} ([peer] ca_file)" in text(check_data_plane_user(conf))


@pytest.mark.usefixtures("running", "mounting")
def test_configuration_must_be_readable(configure: Configure, tmp_path: pathlib.Path) -> None:
    conf = configure(options(tmp_path))
    (tmp_path / "acstor.conf").chmod(0o600)
    assert f"cannot read {tmp_path}/acstor.conf" in text(check_data_plane_user(conf))


@pytest.mark.usefixtures("running", "mounting")
def test_store_and_origin_must_be_within_reach(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    conf = configure(options(tmp_path))
    os.chown(tmp_path / "origin", 0, 0)
    assert f"cannot write to the origin {tmp_path}" in text(check_data_plane_user(conf))
    os.chown(tmp_path / "origin", USER.pw_uid, -1)
    (tmp_path / "disk").mkdir(mode=0o700)
    conf.set_override("path", f"{tmp_path}/disk/store", "store")
    assert f"cannot get to {tmp_path}/disk/store" in text(check_data_plane_user(conf))


@pytest.mark.usefixtures("running", "mounting")
def test_mount_point_that_is_not_root_s_is_a_failure(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "images").mkdir()
    os.chown(tmp_path / "images", USER.pw_uid, -1)
    result = check_data_plane_user(configure(options(tmp_path)))
    assert f"{tmp_path}/images is not a directory of root" in text(result)


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


PASSWORDS = """
[DEFAULT]
transport_url = rabbit://acstor:topsecret@controller:5671/acstor
[rpc]
secrets = 0123456789abcdef0123456789abcdef
"""


@pytest.mark.usefixtures("running", "mounting")
def test_passwords_that_the_user_reads_are_named(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    conf = configure(options(tmp_path) + PASSWORDS)
    result = check_data_plane_user(conf)
    assert result.code is Code.WARNING
    assert "nobody reads [DEFAULT] transport_url, [rpc] secrets" in text(result)
    assert f"put such lines into {tmp_path}/secrets.conf, owner root, mode 0600" in text(result)
    assert "topsecret" not in text(result)


@pytest.mark.usefixtures("running", "mounting")
def test_passwords_in_a_file_of_root_alone_are_well(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    conf = configure(options(tmp_path))
    secrets = tmp_path / "secrets.conf"
    secrets.write_text(PASSWORDS)
    secrets.chmod(0o600)
    conf(
        config_files.with_secrets(["--config-file", str(tmp_path / "acstor.conf")]),
        project="acstor",
        default_config_dirs=[],
    )
    assert conf.config_file == [str(tmp_path / "acstor.conf"), str(secrets)]
    assert check_data_plane_user(conf).code is Code.SUCCESS
    secrets.chmod(0o644)
    assert "nobody reads" in text(check_data_plane_user(conf))
