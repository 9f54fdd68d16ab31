"""Hand-over of root's state to the data plane's user: what a data plane wrote, and nothing else."""

import os
import pathlib
import pwd
import socket

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.dataplane.given_state import give_state

pytestmark = pytest.mark.root

GROUP_OF_QEMU = 65530


@pytest.fixture
def user(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> pwd.struct_passwd:
    """Any user of this host who is not root."""
    conf.set_override("user", "nobody", "dataplane")
    conf.set_override("mount_socket", f"{tmp_path}/mount/mount.sock", "dataplane")
    return pwd.getpwnam("nobody")


def owner(path: pathlib.Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_uid, found.st_gid


def test_directories_are_made_for_the_user(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, tmp_path: pathlib.Path
) -> None:
    conf.set_override("admin_socket", f"{tmp_path}/run/acstor/x.sock", "dataplane")
    give_state(conf, f"{tmp_path}/run/acstor")
    state = pathlib.Path(conf.state_path)
    assert owner(state) == (0, 0), "the mount point is in it"
    for path in (state / "dataplane", state / "store", state / "volumes"):
        assert owner(path) == (user.pw_uid, user.pw_gid)
        assert path.stat().st_mode & 0o777 == 0o700
    run = tmp_path / "run" / "acstor"
    assert owner(run) == (user.pw_uid, user.pw_gid)
    assert run.stat().st_mode & 0o777 == 0o755


def test_directory_of_a_holder_that_was_root_is_given(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, tmp_path: pathlib.Path
) -> None:
    """The user's holder removes the socket that one of root's left there."""
    run = tmp_path / "run" / "acstor"
    conf.set_override("admin_socket", f"{run}/dataplane.sock", "dataplane")
    conf.set_override("holder_socket", f"{run}/supervision/holder.sock", "dataplane")
    give_state(conf, str(run))
    assert not (run / "supervision").exists()
    (run / "supervision").mkdir(mode=0o755)
    (run / "other").mkdir()
    give_state(conf, str(run))
    assert owner(run / "supervision") == (user.pw_uid, user.pw_gid)
    assert owner(run / "other") == (0, 0)
    (run / "supervision").rmdir()
    (run / "supervision").symlink_to(tmp_path)
    os.chown(run / "supervision", user.pw_uid, -1, follow_symlinks=False)
    give_state(conf, str(run))
    assert owner(tmp_path) == (0, 0)


def test_file_that_vanishes_meanwhile_is_no_error(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the user may be alive: the data plane must start all the same."""
    give_state(conf)
    store = conf.store.path
    monkeypatch.setattr(os, "listdir", lambda _: ["gone"])
    give_state(conf)
    assert owner(pathlib.Path(store)) == (user.pw_uid, user.pw_gid)


def test_what_root_wrote_is_given(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, short_path: pathlib.Path
) -> None:
    state = pathlib.Path(conf.state_path)
    log = state / "volumes" / "6f1c" / "log" / "00000001"
    session = state / "dataplane" / "fuse-session"
    for path in (log, session):
        path.parent.mkdir(parents=True)
        path.write_text("content")
    identity = state / "volumes-identity.json"
    identity.write_text("{}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{short_path}/nbd.sock")
        os.chown(short_path / "nbd.sock", -1, GROUP_OF_QEMU)
        give_state(conf)
        assert owner(short_path / "nbd.sock") == (user.pw_uid, GROUP_OF_QEMU), "QEMU goes on"
    for path in (log, log.parent, log.parents[1], session, identity, short_path):
        assert owner(path) == (user.pw_uid, user.pw_gid), path
    assert log.read_text() == "content"
    give_state(conf)


def test_links_and_other_names_stay(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, tmp_path: pathlib.Path
) -> None:
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("root's")
    other.write_text("root's")
    store = pathlib.Path(conf.store.path)
    store.mkdir(parents=True)
    (store / "link").symlink_to(secret)
    (store / "to-directory").symlink_to(tmp_path)
    os.link(other, store / "hard")
    give_state(conf)
    assert owner(store) == (user.pw_uid, user.pw_gid)
    for path in (secret, other, tmp_path):
        assert owner(path) == (0, 0), path


def test_what_root_wrote_into_directories_of_the_user_is_given_too(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd
) -> None:
    """A release before, to which a host went back, runs as root."""
    give_state(conf)
    written = pathlib.Path(conf.store.path, "written")
    written.write_text("root's")
    give_state(conf)
    assert owner(written) == (user.pw_uid, user.pw_gid)


def test_links_that_the_user_planted_lead_nowhere(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, tmp_path: pathlib.Path
) -> None:
    give_state(conf)
    secret = tmp_path / "secret"
    secret.write_text("root's")
    store = pathlib.Path(conf.store.path)
    (store / "link").symlink_to(secret)
    (store / "folder").symlink_to(tmp_path)
    os.link(secret, store / "hard")
    give_state(conf)
    assert owner(secret) == owner(tmp_path) == (0, 0)


def test_link_of_the_user_in_the_place_of_a_directory_is_refused(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, tmp_path: pathlib.Path
) -> None:
    """The directory above sockets is his: he may put a link to any directory of root there."""
    target, run = tmp_path / "etc", tmp_path / "run"
    for path in (target, run):
        path.mkdir()
    (target / "shadow").write_text("root's")
    (run / "nbd").symlink_to(target)
    for path in (run, run / "nbd"):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    for below in ("nbd", "nbd/more"):
        conf.set_override("socket_directory", f"{run}/{below}", "volumes")
        with pytest.raises(OSError, match="symbolic links"):
            give_state(conf)
    assert owner(target) == owner(target / "shadow") == (0, 0)
    assert os.listdir(target) == ["shadow"]


def test_file_says_that_it_was_done(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, tmp_path: pathlib.Path
) -> None:
    give_state(conf)
    given = tmp_path / "mount" / "state-given"
    assert owner(given) == (0, 0)
    os.utime(given, (0, 0))
    give_state(conf)
    assert given.stat().st_mtime > 0


def test_directory_of_another_stays_his(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, caplog: pytest.LogCaptureFixture
) -> None:
    store = pathlib.Path(conf.store.path)
    store.mkdir(parents=True)
    os.chown(store, GROUP_OF_QEMU, GROUP_OF_QEMU)
    give_state(conf)
    assert owner(store) == (GROUP_OF_QEMU, GROUP_OF_QEMU)
    assert f"{store} is of user {GROUP_OF_QEMU}" in caplog.text


def test_link_of_the_operator_leads_to_the_store(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, tmp_path: pathlib.Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "slots").write_text("")
    pathlib.Path(conf.state_path).mkdir()
    pathlib.Path(conf.store.path).symlink_to(disk)
    give_state(conf)
    for path in (disk, disk / "slots"):
        assert owner(path) == (user.pw_uid, user.pw_gid)


def test_interrupted_run_is_repeated(conf: cfg.ConfigOpts, user: pwd.struct_passwd) -> None:
    store = pathlib.Path(conf.store.path)
    (store / "a").mkdir(parents=True)
    for name in ("b", "c"):
        (store / name).write_text("")
    os.chown(store / "b", user.pw_uid, user.pw_gid)
    give_state(conf)
    for path in (store, store / "a", store / "b", store / "c"):
        assert owner(path) == (user.pw_uid, user.pw_gid)


def test_mount_below_is_not_asked(
    conf: cfg.ConfigOpts, user: pwd.struct_passwd, tmp_path: pathlib.Path
) -> None:
    images = pathlib.Path(conf.store.path, "images")
    images.mkdir(parents=True)
    conf.set_override("mount_point", str(images), "dataplane")
    give_state(conf)
    assert owner(images) == (0, 0)


def test_missing_user_is_named(conf: cfg.ConfigOpts) -> None:
    conf.set_override("user", "nobody-of-that-name", "dataplane")
    with pytest.raises(exception.ConfigurationError, match=r"\[dataplane\] user"):
        give_state(conf)
