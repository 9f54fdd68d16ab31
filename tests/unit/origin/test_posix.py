"""Properties of the POSIX origin alone: leftovers, durability, errors, direct writes."""

import errno
import mmap
import os
import pathlib
import stat
import subprocess
import sys
import urllib.parse
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import posix, posix_errors, posix_lock, posix_tree, posix_write


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> posix.PosixOrigin:
    return posix.PosixOrigin(str(tmp_path))


def temporaries(origin: posix.PosixOrigin) -> list[str]:
    return os.listdir(os.path.join(origin.root, ".temporary"))


def test_missing_root_is_refused_and_not_made(tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.InvalidError, match="does not exist"):
        posix.PosixOrigin(str(tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()


def test_objects_are_read_only_files_under_their_key(origin: posix.PosixOrigin) -> None:
    origin.put_if_absent("packs/aa/object", [b"abc"])
    path = pathlib.Path(origin.root, "packs/aa/object")
    assert path.read_bytes() == b"abc"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert temporaries(origin) == []


@pytest.mark.parametrize("failing", ["writev", "fsync", "link"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, exception.ExhaustedError),
        (errno.EDQUOT, exception.ExhaustedError),
        (errno.EIO, exception.UnavailableError),
        (errno.ESTALE, exception.UnavailableError),
        (errno.EROFS, exception.InvalidError),
    ],
)
def test_failed_put_leaves_nothing(
    origin: posix.PosixOrigin, failing: str, code: int, expected: type[exception.AcstorError]
) -> None:
    origin.put_if_absent("packs/first", [b"x"])
    error = OSError(code, os.strerror(code))
    with mock.patch.object(os, failing, side_effect=error), pytest.raises(expected):
        origin.put_if_absent("packs/object", [b"abc"])
    assert not origin.exists("packs/object")
    assert temporaries(origin) == []
    assert origin.put_if_absent("packs/object", [b"abc"])


def test_short_writes_are_continued(origin: posix.PosixOrigin) -> None:
    real = os.writev

    def short(descriptor: int, views: list[memoryview]) -> int:
        return real(descriptor, [views[0][:3]])

    with mock.patch.object(os, "writev", side_effect=short):
        origin.put_if_absent("object", [b"abcdefgh", b"ij", b"klmnop"])
    assert origin.get("object", 100) == b"abcdefghijklmnop"


@pytest.mark.parametrize("is_aligned", [True, False])
@pytest.mark.parametrize("has_direct", [True, False])
def test_large_buffers_are_stored_whatever_the_file_system_can(
    origin: posix.PosixOrigin, is_aligned: bool, has_direct: bool
) -> None:
    block = os.urandom(posix_write.BLOCK_SIZE)
    with mmap.mmap(-1, 5 << 20) as buffer:
        buffer[:] = block * (len(buffer) // len(block))
        start = 0 if is_aligned else 17
        view = memoryview(buffer)[start : start + (3 << 20)]
        expected = bytes(view) + b"tail"
        flag = os.O_DIRECT if has_direct else 0
        with mock.patch.object(os, "O_DIRECT", flag):
            origin.put_if_absent("object", [view, b"tail"])
        view.release()
    assert origin.get("object", 5 << 20) == expected


def test_lost_answer_of_link_is_recognised_as_success(
    origin: posix.PosixOrigin, tmp_path: pathlib.Path
) -> None:
    real = os.link

    def repeated(source: str, target: str) -> None:
        real(source, target)
        real(source, target)

    with mock.patch.object(os, "link", side_effect=repeated):
        assert origin.put_if_absent("object", [b"abc"])
    assert origin.get("object", 3) == b"abc"


def test_file_system_without_links_renames_without_replacing(origin: posix.PosixOrigin) -> None:
    error = OSError(errno.EPERM, "no links here")
    with mock.patch.object(os, "link", side_effect=error):
        assert origin.put_if_absent("object", [b"abc"])
        assert not origin.put_if_absent("object", [b"def"])
        with mock.patch.object(posix, "is_there", return_value=False):
            assert not origin.put_if_absent("object", [b"ghi"])
    assert origin.get("object", 3) == b"abc"
    assert temporaries(origin) == []


def test_file_that_the_server_gave_to_another_user_is_linked(origin: posix.PosixOrigin) -> None:
    """As Linux does it (fs.protected_hardlinks) where an NFS server squashes all users to one."""
    real = os.link

    def protected(source: str, target: str) -> None:
        if not os.stat(source).st_mode & stat.S_IWUSR:
            raise PermissionError(errno.EPERM, "protected_hardlinks", source)
        real(source, target)

    with (
        mock.patch.object(os, "link", side_effect=protected),
        mock.patch.object(
            posix_write, "_rename_exclusively", side_effect=OSError(errno.EINVAL, "NFS")
        ),
    ):
        assert origin.put_if_absent("object", [b"abc"])
        assert not origin.put_if_absent("object", [b"def"])
        token = origin.swap_ref("ring", None, b"1")
        assert origin.swap_ref("ring", token, b"2") is not None
    path = pathlib.Path(origin.root, "object")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"abc", 0o444)
    assert temporaries(origin) == []


def test_sweep_removes_old_leftovers_only(origin: posix.PosixOrigin) -> None:
    origin.put_if_absent("object", [b"abc"])
    folder = pathlib.Path(origin.root, ".temporary")
    for name, age in (("old", posix_tree.TEMPORARY_AGE_SECONDS + 60), ("young", 60.0)):
        (folder / name).write_bytes(b"half")
        moment = (folder / name).stat().st_mtime - age
        os.utime(folder / name, (moment, moment))
    assert origin.sweep() == 1
    assert temporaries(origin) == ["young"]


def test_stale_ref_is_opened_again(origin: posix.PosixOrigin) -> None:
    origin.swap_ref("ring", None, b"content")
    real, calls = os.fstat, []

    def stale_once(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.ESTALE, "stale")
        return real(descriptor)

    with mock.patch.object(os, "fstat", side_effect=stale_once):
        found = origin.get_ref("ring")
    assert found is not None
    assert found.content == b"content"


def test_refreshed_ref_is_not_read_while_its_file_is_the_same(
    origin: posix.PosixOrigin, tmp_path: pathlib.Path
) -> None:
    origin.swap_ref("ring", None, b"content")
    known = origin.get_ref("ring")
    assert known is not None
    (path,) = pathlib.Path(origin.root, ".refs", "ring@").glob("*.1")
    path.chmod(0o644)
    with path.open("r+b") as file:  # damage: only reading would tell
        file.seek(-7, os.SEEK_END)
        file.write(b"CONTENT")
    assert origin.refresh_ref("ring", known) is known
    with pytest.raises(exception.CorruptError, match="not what was written"):
        origin.get_ref("ring")


def test_swapped_back_ref_has_another_token(origin: posix.PosixOrigin) -> None:
    first = origin.swap_ref("ring", None, b"a")
    second = origin.swap_ref("ring", first, b"b")
    third = origin.swap_ref("ring", second, b"a")
    assert len({first, second, third}) == 3


HOLD_LOCK = """
import sys
import urllib.parse
from acstor.origin import posix_lock
with posix_lock.exclusive(sys.argv[1], 5.0):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_lock_excludes_another_process_until_it_is_killed(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(exception.DeadlineError), posix_lock.exclusive(path, 0.01):
        pass
    holder.kill()
    holder.communicate()
    with posix_lock.exclusive(path, 5.0):
        pass


def test_every_errno_has_a_kind() -> None:
    for code in errno.errorcode:
        error = posix_errors.from_os_error(OSError(code, "x"), "doing")
        assert isinstance(error, exception.AcstorError)
        assert error.hint


@pytest.mark.parametrize("url", ["posix://host/path", "posix:relative", "posix:///missing/folder"])
def test_bad_url_is_refused(url: str) -> None:

    with pytest.raises(exception.InvalidError):
        posix.PosixOrigin.from_url(urllib.parse.urlsplit(url))


@pytest.mark.parametrize("is_former", [False, True])
def test_nothing_is_written_to_the_mount_point_of_an_origin_that_was_unmounted(
    tmp_path: pathlib.Path, is_former: bool
) -> None:
    """Before, the second attempt made all folders anew, and stored what nobody finds again."""
    root = tmp_path / "origin"
    (root / "refs" if is_former else root).mkdir(parents=True)
    origin = posix.PosixOrigin(str(root))
    origin.put_if_absent("packs/aa/one", [b"1"])
    token = origin.swap_ref("ring", None, b"1")
    root.rename(tmp_path / "unmounted")
    root.mkdir()
    for _ in range(3):
        for write in (
            lambda: origin.put_if_absent("packs/aa/two", [b"2"]),
            lambda: origin.put_if_absent("packs/bb/two", [b"2"]),
            lambda: origin.put_if_absent("logs/one/two", [b"2"]),
            lambda: origin.swap_ref("ring", token, b"2"),
            lambda: origin.swap_ref("images/one", None, b"2"),
        ):
            with pytest.raises(exception.UnavailableError):
                write()
    assert list(root.iterdir()) == []
    root.rmdir()
    (tmp_path / "unmounted").rename(root)
    assert origin.put_if_absent("packs/bb/two", [b"2"])
    assert origin.swap_ref("ring", token, b"2")
