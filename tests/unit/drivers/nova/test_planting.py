"""Planting and removing one link, whatever is there and wherever it is killed."""

import contextlib
import fcntl
import os
import pathlib
import stat
import subprocess
import sys
import tempfile

import pytest

from acstor import exception
from acstor.drivers.nova.image_links import nova_lock
from acstor.drivers.nova.image_links.base_names import base_name, image_of_link, is_base_name
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.link_states import LinkEvent
from acstor.drivers.nova.image_links.nova_directories import TEMPORARY_PREFIX, NovaDirectories
from acstor.drivers.nova.image_links.planting import Planter
from testbed.doubles.faulty_file_operations import (
    EVERY_STEP,
    NO_SPACE,
    FaultyFileOperations,
    KilledError,
)
from testbed.fixtures.nova_host import NOVA_USER, NovaHost
from tests.unit.drivers.nova.conftest import IMAGE, OTHER, make_planter

HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "a")
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that holds a lock, as Nova does while it downloads."""

    def __init__(self, path: pathlib.Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=20)


def not_used() -> None:
    return None


def plant(planter: Planter, image_id: str = IMAGE) -> LinkEvent:
    planter.prepare()
    return planter.plant(image_id).event


def leftovers(nova: NovaHost) -> list[str]:
    return [
        os.path.join(folder, name)
        for folder, directories, files in os.walk(nova.instances)
        for name in (*directories, *files)
        if name.startswith(TEMPORARY_PREFIX)
    ]


def assert_planted(nova: NovaHost, mount: pathlib.Path) -> None:
    """The link is complete and Nova's user can work with everything around it."""
    assert os.readlink(nova.link(IMAGE)) == f"{mount}/{IMAGE}.raw"
    lock = nova.instances / "locks" / f"nova-{base_name(IMAGE)}"
    assert stat.S_ISREG(lock.lstat().st_mode)
    assert leftovers(nova) == []
    if os.geteuid() == 0:
        for path in (nova.base, nova.instances / "locks", nova.link(IMAGE), lock):
            assert nova.owner_of(path) == NOVA_USER, path


def test_names_are_the_sha1_of_the_image_id() -> None:
    assert base_name(IMAGE) == "10c56efd90c998f406d4e0b99d9c58feeaf896c5"
    assert is_base_name(base_name(IMAGE))
    assert not is_base_name(base_name(IMAGE) + "_20")
    assert not is_base_name("swap_512")


def test_link_of_somebody_else_is_not_taken_for_ours() -> None:
    name = base_name(IMAGE)
    assert image_of_link(name, f"/anywhere/{IMAGE}.raw") == IMAGE
    assert image_of_link(name, f"/anywhere/{OTHER}.raw") is None
    assert image_of_link(name, f"{IMAGE}.raw") is None
    assert image_of_link(name, "/cache/image") is None


def test_link_is_planted_with_everything_around_it(nova: NovaHost, mount: pathlib.Path) -> None:
    assert plant(make_planter(nova, mount)) is LinkEvent.PLANT
    assert_planted(nova, mount)


def test_link_that_nova_removed_is_planted_again(nova: NovaHost, mount: pathlib.Path) -> None:
    """Hazard 2: the image cache manager removes the link and the lock file."""
    planter = make_planter(nova, mount)
    plant(planter)
    nova.link(IMAGE).unlink()
    (nova.instances / "locks" / f"nova-{base_name(IMAGE)}").unlink()
    assert plant(planter) is LinkEvent.PLANT
    assert_planted(nova, mount)


@pytest.mark.parametrize("content", [b"", b"Nova's own"])
def test_regular_file_is_never_touched(nova: NovaHost, mount: pathlib.Path, content: bytes) -> None:
    nova.base.mkdir()
    nova.link(IMAGE).write_bytes(content)
    before = nova.link(IMAGE).stat()
    planter = make_planter(nova, mount)
    assert plant(planter) is LinkEvent.FILE_FOUND
    assert planter.remove(IMAGE, not_used).event is LinkEvent.FILE_FOUND
    assert nova.link(IMAGE).read_bytes() == content
    after = nova.link(IMAGE).lstat()
    assert (after.st_ino, after.st_mtime_ns, after.st_uid) == (
        before.st_ino, before.st_mtime_ns, before.st_uid,
    )  # fmt: skip


def test_file_that_arrives_while_the_lock_is_taken_wins(
    nova: NovaHost, mount: pathlib.Path
) -> None:
    """Nova's cache_image takes no lock, and so may be quicker at any moment."""

    class NovaIsQuicker(FileOperations):
        def symlink(self, target: str, path: str) -> None:
            pathlib.Path(path).write_bytes(b"Nova's own")
            super().symlink(target, path)

    assert plant(make_planter(nova, mount, NovaIsQuicker())) is LinkEvent.FILE_FOUND
    assert nova.link(IMAGE).read_bytes() == b"Nova's own"


@pytest.mark.parametrize("kind", ["link", "other image", "other mount", "directory"])
def test_what_is_not_ours_is_left_alone(nova: NovaHost, mount: pathlib.Path, kind: str) -> None:
    nova.base.mkdir()
    link = nova.link(IMAGE)
    if kind == "directory":
        link.mkdir()
    else:
        targets = {
            "link": "/cache/image",
            "other image": f"{mount}/{OTHER}.raw",
            "other mount": f"/elsewhere/{IMAGE}.raw",
        }
        link.symlink_to(targets[kind])
    before = link.lstat()
    planter = make_planter(nova, mount)
    assert plant(planter) is LinkEvent.STRANGER_FOUND
    assert planter.remove(IMAGE, not_used).event is LinkEvent.STRANGER_FOUND
    assert link.lstat().st_ino == before.st_ino


def test_link_to_a_former_mount_point_goes_only_when_asked_for(
    nova: NovaHost, mount: pathlib.Path
) -> None:
    nova.base.mkdir()
    nova.link(IMAGE).symlink_to(f"/former/{IMAGE}.raw")
    planter = make_planter(nova, mount)
    assert planter.planted_images() == {IMAGE}
    planter.prepare()
    assert planter.remove(IMAGE, not_used, of_any_mount=True).event is LinkEvent.REMOVE
    assert not os.path.lexists(nova.link(IMAGE))


def test_lock_that_nova_holds_is_not_waited_for(nova: NovaHost, mount: pathlib.Path) -> None:
    planter = make_planter(nova, mount)
    planter.prepare()
    lock = nova.instances / "locks" / f"nova-{base_name(IMAGE)}"
    with Holder(lock):
        assert planter.plant(IMAGE).event is LinkEvent.LOCKED
        assert not os.path.lexists(nova.link(IMAGE))
    assert planter.plant(IMAGE).event is LinkEvent.PLANT
    with Holder(lock):
        assert planter.remove(IMAGE, not_used).event is LinkEvent.LOCKED
        assert os.path.lexists(nova.link(IMAGE))
    assert planter.remove(IMAGE, not_used).event is LinkEvent.REMOVE


def test_lock_keeps_nova_out(nova: NovaHost, mount: pathlib.Path) -> None:
    planter = make_planter(nova, mount)
    plant(planter)
    lock = nova.instances / "locks" / f"nova-{base_name(IMAGE)}"
    seen = []

    def look() -> None:
        probe = "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX|fcntl.LOCK_NB)"
        found = subprocess.run(
            [sys.executable, "-c", probe, str(lock)], capture_output=True, check=False, timeout=30
        )
        seen.append(found.returncode)

    planter.remove(IMAGE, look)
    look()
    assert seen == [1, 0]


def test_lock_file_that_nova_removes_meanwhile_is_locked_anew(
    nova: NovaHost, mount: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image cache manager unlinks it without holding it."""
    directories = NovaDirectories(nova.settings, "h1", FileOperations())
    directories.prepare()
    lock = nova.instances / "locks" / f"nova-{base_name(IMAGE)}"
    real = fcntl.lockf
    removed: list[bool] = []

    def lockf(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        if not removed:
            removed.append(True)
            lock.unlink()

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with nova_lock.held(nova.settings, directories, base_name(IMAGE)):
        assert removed
        monkeypatch.undo()
        with pytest.raises(AssertionError), Holder(lock):
            pass


def test_missing_lock_directory_is_not_taken_for_a_lock_that_is_held(
    nova: NovaHost, mount: pathlib.Path
) -> None:
    planter = make_planter(nova, mount)
    planter.prepare()
    (nova.instances / "locks").rmdir()
    with pytest.raises(FileNotFoundError, match="locks"):
        planter.plant(IMAGE)


def test_lock_file_that_nova_removes_before_it_is_opened_is_made_again(
    nova: NovaHost, mount: pathlib.Path
) -> None:
    removed: list[str] = []

    class NovaRemoves(FileOperations):
        def open_file(self, path: str) -> int:
            if not removed:
                removed.append(path)
                os.unlink(path)
            return super().open_file(path)

    assert plant(make_planter(nova, mount, NovaRemoves())) is LinkEvent.PLANT
    assert len(removed) == 1
    assert_planted(nova, mount)


def test_link_in_use_stays(nova: NovaHost, mount: pathlib.Path) -> None:
    planter = make_planter(nova, mount)
    plant(planter)
    outcome = planter.remove(IMAGE, lambda: "in use")
    assert (outcome.event, outcome.reason) == (LinkEvent.KEEP, "in use")
    assert_planted(nova, mount)


def test_missing_instances_path_says_what_to_do(nova: NovaHost, mount: pathlib.Path) -> None:
    planter = make_planter(nova, mount)
    nova.instances.rmdir()
    with pytest.raises(exception.NotFoundError, match="instances_path") as failure:
        planter.prepare()
    assert "nova_config_file" in failure.value.hint
    assert planter.planted_images() == frozenset()


def count_steps(nova: NovaHost, mount: pathlib.Path) -> int:
    files = FaultyFileOperations(EVERY_STEP)
    plant(make_planter(nova, mount, files))
    return len(files.done)


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_at_any_step_is_repaired_by_the_next_run(
    tmp_path: pathlib.Path, mount: pathlib.Path, is_after: bool
) -> None:
    steps = count_steps(NovaHost(tmp_path / "counted"), mount)
    assert steps >= (12 if os.geteuid() == 0 else 8)
    for step in range(steps):
        nova = NovaHost(tmp_path / f"killed-{step}")
        files = FaultyFileOperations(step, is_after=is_after)
        with pytest.raises(KilledError):
            plant(make_planter(nova, mount, files))
        assert_nova_can_work(nova)
        assert plant(make_planter(nova, mount)) is LinkEvent.PLANT
        assert_planted(nova, mount)


def assert_nova_can_work(nova: NovaHost) -> None:
    """Whatever exists under a name that Nova uses belongs to Nova's user; a link need not."""
    if os.geteuid() != 0:
        return
    for path in (nova.base, nova.instances / "locks"):
        if path.exists():
            assert nova.owner_of(path) == NOVA_USER
            for lock in path.glob("nova-*"):
                assert nova.owner_of(lock) == NOVA_USER


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_while_removing_leaves_a_link_or_none(
    tmp_path: pathlib.Path, mount: pathlib.Path, is_after: bool
) -> None:
    for step in range(2):
        nova = NovaHost(tmp_path / f"killed-{step}")
        plant(make_planter(nova, mount))
        files = FaultyFileOperations(step, is_after=is_after)
        try:
            make_planter(nova, mount, files).remove(IMAGE, not_used)
        except KilledError:
            assert nova.link(IMAGE).is_symlink() is not is_after
        assert make_planter(nova, mount).remove(IMAGE, not_used).event is LinkEvent.REMOVE


def test_full_disk_at_any_step_is_an_error_and_leaves_nothing_half_done(
    tmp_path: pathlib.Path, mount: pathlib.Path
) -> None:
    steps = count_steps(NovaHost(tmp_path / "counted"), mount)
    for step in range(steps):
        nova = NovaHost(tmp_path / f"full-{step}")
        files = FaultyFileOperations(step, number=NO_SPACE)
        with contextlib.suppress(OSError):  # some steps are tidying up, which may fail
            plant(make_planter(nova, mount, files))
        assert len(files.done) > step
        assert_nova_can_work(nova)
        assert plant(make_planter(nova, mount)) is LinkEvent.PLANT
        assert_planted(nova, mount)


def test_leftovers_of_other_hosts_are_not_swept(nova: NovaHost, mount: pathlib.Path) -> None:
    """Hazard 11: instances_path may be shared, and their run may be under way."""
    theirs = nova.instances / f"{TEMPORARY_PREFIX}h1-2@_base"
    theirs.mkdir()
    ours = nova.instances / f"{TEMPORARY_PREFIX}h1@_base"
    ours.mkdir()
    make_planter(nova, mount).prepare()
    assert theirs.exists()
    assert not ours.exists()


def test_directory_that_nova_made_meanwhile_is_used(nova: NovaHost, mount: pathlib.Path) -> None:
    class NovaIsQuicker(FileOperations):
        def rename(self, former: str, path: str) -> None:
            os.mkdir(path)
            pathlib.Path(path, "swap_1").write_bytes(b"")
            super().rename(former, path)

    make_planter(nova, mount, NovaIsQuicker()).prepare()
    assert (nova.base / "swap_1").exists()
    assert leftovers(nova) == []


def test_hosts_that_share_instances_path_agree(nova: NovaHost, mount: pathlib.Path) -> None:
    """Hazard 11: the link and the lock are shared, and lead to the same path everywhere."""
    assert plant(make_planter(nova, mount, host="h1")) is LinkEvent.PLANT
    inode = nova.link(IMAGE).lstat().st_ino
    assert plant(make_planter(nova, mount, host="h2")) is LinkEvent.PLANT
    assert nova.link(IMAGE).lstat().st_ino == inode


@pytest.mark.root
def test_novas_user_can_lock_remove_and_replace(mount: pathlib.Path) -> None:
    """The agent runs as root, nova-compute does not."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="acstor-test-") as name:
        os.chmod(name, 0o755)
        nova = NovaHost(pathlib.Path(name, "nova"))
        plant(make_planter(nova, mount))
        link, lock = nova.link(IMAGE), nova.instances / "locks" / f"nova-{base_name(IMAGE)}"
        child = os.fork()
        if child == 0:  # no new program: Python itself may be out of that user's reach
            status = 1
            with contextlib.suppress(BaseException):
                os.setgroups([])
                os.setgid(NOVA_USER)
                os.setuid(NOVA_USER)
                fcntl.lockf(os.open(lock, os.O_WRONLY | os.O_APPEND), fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(link)
                os.unlink(lock)
                os.close(os.open(f"{link}.part", os.O_WRONLY | os.O_CREAT))
                os.rename(f"{link}.part", link)
                status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert link.is_file()
