"""Taking refs of the former layout over: without loss, killed anywhere, beside readers."""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Callable
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import (
    mounts,
    posix,
    posix_former_refs,
    posix_refs,
    posix_tree,
    posix_write,
)
from acstor.repository import upgrade
from acstor.repository.repository import FORMAT_VERSION, Format, Repository

CONTENTS = {"ring": b"ring", "images/one": b"1", "gc/condemned/two": b"", "format": b"{}"}


class Killed(BaseException):
    """Stand-in for SIGKILL."""


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> posix.PosixOrigin:
    """An origin in the former layout."""
    (tmp_path / "refs").mkdir()
    opened = posix.PosixOrigin(str(tmp_path))
    for name, content in CONTENTS.items():
        opened.swap_ref(name, None, content)
    assert (tmp_path / "refs" / "images" / "one").read_bytes() == b"1"
    return opened


@pytest.fixture
def restore(
    origin: posix.PosixOrigin, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], None]:
    """Return a function that makes the origin's directory what it was at first."""
    saved = tmp_path_factory.mktemp("saved") / "origin"
    shutil.copytree(origin.root, saved)

    def restored() -> None:
        shutil.rmtree(origin.root)
        shutil.copytree(saved, origin.root)

    return restored


def contents(origin: posix.PosixOrigin) -> dict[str, bytes]:
    found = {name: origin.get_ref(name) for name in origin.list_refs()}
    return {name: ref.content for name, ref in found.items() if ref is not None}


def contents_or_none(origin: posix.PosixOrigin) -> dict[str, bytes] | None:
    """Return the contents, None while they are being converted."""
    try:
        return contents(origin)
    except exception.UnavailableError:
        return None


def check_no_ref_is_seen_missing(origin: posix.PosixOrigin) -> None:
    for name in CONTENTS:
        with contextlib.suppress(exception.UnavailableError):
            assert origin.get_ref(name) is not None


def test_refs_are_taken_over_and_former_programs_kept_out(origin: posix.PosixOrigin) -> None:
    beside = posix.PosixOrigin(origin.root)
    known = beside.get_ref("ring")
    assert origin.convert_refs()
    assert not origin.convert_refs()
    for one in (origin, beside, posix.PosixOrigin(origin.root)):
        assert contents(one) == CONTENTS
        assert not one.needs_locks
    assert known is not None
    refreshed = beside.refresh_ref("ring", known)
    assert refreshed is not None
    assert (refreshed.content, refreshed.token != known.token) == (b"ring", True)
    with pytest.raises(exception.ConflictError):
        beside.swap_ref("ring", known.token, b"late")
    # What an older release does at each ref; one that finds no image would collect them all.
    path = os.path.join(origin.root, "refs", "images", "one")
    for call in (
        lambda: os.open(path, os.O_RDONLY),
        lambda: os.scandir(os.path.join(origin.root, "refs", "images")),
        lambda: os.scandir(os.path.join(origin.root, "refs")),
        lambda: os.rename(pathlib.Path(origin.root, ".temporary"), path),
    ):
        with pytest.raises(NotADirectoryError):
            call()
    former = pathlib.Path(origin.root, ".refs-former")
    assert (former / "images" / "one").read_bytes() == b"1"
    assert not [key for key in origin.list() if key.startswith("refs")]


@pytest.mark.parametrize("call", ["rename", "link", "mkdir", "fsync"])
def test_killed_conversion_loses_nothing_and_is_repeated(
    origin: posix.PosixOrigin, call: str
) -> None:
    real: Callable[..., object] = getattr(os, call)
    for step in range(100):
        left = [step]

        def dies(*arguments: object, left: list[int] = left, **more: object) -> object:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*arguments, **more)

        killed = False
        with mock.patch.object(os, call, side_effect=dies):
            try:
                posix.PosixOrigin(origin.root).convert_refs()
            except Killed:
                killed = True
        for one in (origin, posix.PosixOrigin(origin.root)):
            assert contents_or_none(one) in (CONTENTS, None), (call, step)
            check_no_ref_is_seen_missing(one)
        if not killed:
            break
    assert step >= 1
    assert contents(origin) == CONTENTS
    assert not posix.PosixOrigin(origin.root).needs_locks


@pytest.mark.parametrize("operation", ["get", "refresh", "names", "swap"])
def test_conversion_in_the_midst_of_a_call_is_noticed(
    origin: posix.PosixOrigin, operation: str
) -> None:
    """A caller that has just seen the former layout in use finds it gone."""
    other = posix.PosixOrigin(origin.root)
    known = origin.get_ref("ring")
    assert known is not None
    real = getattr(posix_former_refs.FormerRefs, operation)

    def late(refs: object, *arguments: object) -> object:
        with mock.patch.object(posix_former_refs.FormerRefs, operation, real):
            other.convert_refs()
        return real(refs, *arguments)

    with mock.patch.object(posix_former_refs.FormerRefs, operation, late):
        match operation:
            case "get":
                found = origin.get_ref("ring")
                assert found is not None
                assert found.content == b"ring"
            case "refresh":
                found = origin.refresh_ref("ring", known)
                assert found is not None
                assert found.content == b"ring"
            case "names":
                assert sorted(origin.list_refs()) == sorted(CONTENTS)
            case "swap":
                with pytest.raises(exception.ConflictError):
                    origin.swap_ref("ring", known.token, b"late")
    assert contents(origin) == CONTENTS


def test_stopped_holder_of_a_lock_leaves_the_former_layout_in_use(
    origin: posix.PosixOrigin,
) -> None:
    refs = posix_former_refs.FormerRefs(origin._tree, os.path.join(origin.root, ".refs"))
    with (
        refs.frozen(),
        mock.patch.object(posix_former_refs, "LOCK_DEADLINE_SECONDS", 0.01),
        pytest.raises(exception.DeadlineError),
    ):
        posix.PosixOrigin(origin.root).convert_refs()
    assert origin.needs_locks
    assert contents(origin) == CONTENTS


def replaced_without_lock(origin: posix.PosixOrigin, content: bytes) -> None:
    """Change a ref as a program of an older release that has, or believes it has, the lock."""
    written = pathlib.Path(origin.root, ".temporary", "older")
    written.write_bytes(content)
    written.rename(pathlib.Path(origin.root, "refs", "images", "one"))


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("call", ["rename", "fsync", "mkdir"])
def test_change_of_an_older_program_is_taken_over_or_refused(
    origin: posix.PosixOrigin, restore: Callable[[], None], call: str, is_late: bool
) -> None:
    """At every step, before and after it; also when the locks went away in the midst."""
    real: Callable[..., object] = getattr(os, call)
    taken = 0
    for step in range(1000):
        restore()
        left = [step]
        outcomes: list[bool] = []

        def change(outcomes: list[bool] = outcomes) -> None:
            with mock.patch.object(os, call, real):
                try:
                    replaced_without_lock(origin, b"acknowledged")
                    outcomes.append(True)
                except OSError:
                    outcomes.append(False)

        def beside(
            *arguments: object,
            left: list[int] = left,
            change: Callable[[], None] = change,
            **more: object,
        ) -> object:
            left[0] -= 1
            if left[0] == -1 and not is_late:
                change()
            answer = real(*arguments, **more)
            if left[0] == -1 and is_late:
                change()
            return answer

        with mock.patch.object(os, call, beside):
            posix.PosixOrigin(origin.root).convert_refs()
        if not outcomes:
            break
        ref = posix.PosixOrigin(origin.root).get_ref("images/one")
        assert ref is not None
        assert (ref.content == b"acknowledged") == outcomes[0], (call, step)
        taken += outcomes[0]
    assert taken


def test_change_that_the_server_carries_out_in_the_folder_put_aside_is_taken_over(
    origin: posix.PosixOrigin,
) -> None:
    """As a request of an NFS client that had looked the folder up before."""
    real = os.rename

    def beside(source: str, target: str) -> None:
        real(source, target)
        if target.endswith(".refs-former"):
            former = pathlib.Path(target)
            (former / "ring").unlink()
            (former / "images" / "one").write_bytes(b"acknowledged")
            (former / "images" / "two").write_bytes(b"2")

    with mock.patch.object(os, "rename", beside):
        assert origin.convert_refs()
    changed = CONTENTS | {"images/one": b"acknowledged", "images/two": b"2"}
    del changed["ring"]
    assert contents(origin) == changed


def test_two_conversions_at_once(origin: posix.PosixOrigin, restore: Callable[[], None]) -> None:
    """The second begins at each step of the first."""
    real = os.rename
    for step in range(1000):
        restore()
        left = [step]

        def beside(source: str, target: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                with (
                    mock.patch.object(os, "rename", real),
                    mock.patch.object(posix_former_refs, "LOCK_DEADLINE_SECONDS", 0.01),
                    contextlib.suppress(exception.DeadlineError, exception.UnavailableError),
                ):
                    posix.PosixOrigin(origin.root).convert_refs()
            real(source, target)

        with mock.patch.object(os, "rename", beside):
            posix.PosixOrigin(origin.root).convert_refs()
        assert contents(posix.PosixOrigin(origin.root)) == CONTENTS
        assert pathlib.Path(origin.root, "refs").is_file()
        assert pathlib.Path(origin.root, ".refs-former", "ring").read_bytes() == b"ring"
        assert not pathlib.Path(origin.root, ".conversion").exists()
        if left[0] >= 0:
            break
    assert step > len(CONTENTS)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_conversion_that_cannot_write_the_fence_changes_nothing(
    origin: posix.PosixOrigin, code: int
) -> None:
    real = posix_write.write_temporary

    def fails(folder: str, views: list[memoryview]) -> str:
        if any(b"keeps older releases" in bytes(view) for view in views):
            raise OSError(code, os.strerror(code))
        return real(folder, views)

    with (
        mock.patch.object(posix_write, "write_temporary", fails),
        pytest.raises((exception.ExhaustedError, exception.UnavailableError)),
    ):
        posix.PosixOrigin(origin.root).convert_refs()
    assert origin.needs_locks
    assert contents(origin) == CONTENTS
    assert os.listdir(os.path.join(origin.root, ".conversion")) == []
    assert origin.convert_refs()


def test_killed_conversion_leaves_no_folder_that_an_older_sweep_fails_at(
    origin: posix.PosixOrigin,
) -> None:
    real, left = os.rename, [6]

    def dies(source: str, target: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        real(source, target)

    with (
        mock.patch.object(shutil, "rmtree"),
        mock.patch.object(os, "rename", dies),
        pytest.raises(Killed),
    ):
        origin.convert_refs()
    with os.scandir(os.path.join(origin.root, ".temporary")) as entries:
        assert [entry.name for entry in entries if entry.is_dir()] == []


def test_copy_without_hidden_files_is_refused(
    origin: posix.PosixOrigin, tmp_path_factory: pytest.TempPathFactory
) -> None:
    origin.convert_refs()
    origin.put_if_absent("object", [b"x"])
    copied = tmp_path_factory.mktemp("copy")
    for entry in pathlib.Path(origin.root).glob("[!.]*"):
        shutil.copy(entry, copied / entry.name)
    copy = posix.PosixOrigin(str(copied))
    calls: list[Callable[[], object]] = [
        lambda: list(copy.list_refs()),
        lambda: copy.get_ref("ring"),
        lambda: copy.swap_ref("ring", None, b"x"),
        copy.convert_refs,
    ]
    for call in calls:
        with pytest.raises(exception.UnavailableError) as raised:
            call()
        assert "hidden files" in str(raised.value.hint)
    assert not (copied / ".refs").exists()


def test_new_repository_without_refs_is_no_copy(tmp_path: pathlib.Path) -> None:
    """The folder is there before what says so, whenever it is killed."""
    real = os.link

    def dies(source: str, target: str) -> None:
        if target.endswith("/refs"):
            raise Killed
        real(source, target)

    with mock.patch.object(os, "link", dies), pytest.raises(Killed):
        posix.PosixOrigin(str(tmp_path)).convert_refs()
    assert (tmp_path / ".refs").is_dir()
    opened = posix.PosixOrigin(str(tmp_path))
    opened.convert_refs()
    assert list(opened.list_refs()) == []


def test_upgrade_of_the_repository_converts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "refs").mkdir()
    origin = posix.PosixOrigin(str(tmp_path))
    older = Format("6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0", 65536, version=2)
    origin.put_if_absent("format", [older.encode()])
    origin.swap_ref("images/one", None, b"1")
    assert Repository.open(origin).format.version == 2
    assert origin.needs_locks
    assert upgrade.upgrade(origin).format.version == FORMAT_VERSION
    assert not posix.PosixOrigin(str(tmp_path)).needs_locks
    assert origin.get_ref("images/one") is not None


def test_new_repository_needs_no_locks_and_keeps_former_programs_out(
    tmp_path: pathlib.Path,
) -> None:
    origin = posix.PosixOrigin(str(tmp_path))
    Repository.init(origin)
    assert not origin.needs_locks
    assert (tmp_path / "refs").is_file()
    origin.swap_ref("ring", None, b"x")
    assert (tmp_path / posix_refs.FOLDER / "ring@").is_dir()


MOUNTS = "30 1 0:40 / {root} rw - nfs4 server:/export rw,vers=4.2,{options}\n"


@pytest.mark.parametrize("option", ["nolock", "local_lock=all", "local_lock=posix"])
def test_former_layout_refuses_changes_where_locks_are_local(
    origin: posix.PosixOrigin, tmp_path: pathlib.Path, option: str
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS.format(root=origin.root, options=option))
    known = origin.get_ref("ring")
    assert known is not None
    with mock.patch.object(mounts, "MOUNTS", str(mountinfo)):
        mounted_so = posix.PosixOrigin(origin.root)
        with pytest.raises(exception.InvalidError, match=option):
            mounted_so.swap_ref("ring", known.token, b"x")
        with pytest.raises(exception.InvalidError, match=option):
            mounted_so.convert_refs()
    assert origin.convert_refs()
    token = origin.get_ref("ring")
    assert token is not None
    with mock.patch.object(mounts, "MOUNTS", str(mountinfo)):
        assert origin.swap_ref("ring", token.token, b"x") is not None


def test_mount_with_other_options_in_the_place_of_one_that_was_checked_is_noticed(
    origin: posix.PosixOrigin, tmp_path: pathlib.Path
) -> None:
    """Numbers of devices and mounts are given again: none of both tells the two apart."""
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS.format(root=origin.root, options="hard"))
    known = origin.get_ref("ring")
    assert known is not None
    with mock.patch.object(mounts, "MOUNTS", str(mountinfo)):
        token = origin.swap_ref("ring", known.token, b"x")
        mountinfo.write_text(MOUNTS.format(root=origin.root, options="nolock"))
        with pytest.raises(exception.InvalidError, match="nolock"):
            origin.swap_ref("ring", token, b"y")


def test_what_cannot_change_is_looked_at_once(tmp_path: pathlib.Path) -> None:
    """The mounts of a host may be thousands of lines; who owns a lock file is settled."""
    (tmp_path / "refs").mkdir()
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS.format(root=tmp_path, options="hard"))
    origin = posix.PosixOrigin(str(tmp_path))
    with (
        mock.patch.object(mounts, "MOUNTS", str(mountinfo)),
        mock.patch.object(posix_former_refs, "find_mount", wraps=mounts.find_mount) as looks,
        mock.patch.object(
            posix_tree.PosixTree, "give_to_owner", autospec=True,
            side_effect=posix_tree.PosixTree.give_to_owner,
        ) as given,
    ):  # fmt: skip
        token = None
        for number in range(5):
            token = origin.swap_ref("ring", token, b"%d" % number)
    assert looks.call_count == 1
    locks = [call for call in given.call_args_list if ".locks/" in call.args[1]]
    assert len(locks) == 1
