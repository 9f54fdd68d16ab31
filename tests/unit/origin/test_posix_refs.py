"""Refs of a POSIX origin: what is late, lost, damaged, newer, or not there at all."""

import dataclasses
import errno
import os
import pathlib
import shutil
from collections.abc import Callable
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import base, posix, posix_ref_file, posix_refs, posix_write, retrying
from acstor.origin.posix_ref_file import Header, Place, State

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden" / "posix-ref-v1.bin"


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> posix.PosixOrigin:
    (tmp_path / "origin").mkdir()
    return posix.PosixOrigin(str(tmp_path / "origin"))


def another(origin: posix.PosixOrigin) -> posix.PosixOrigin:
    """Return the same origin as a process sees it that has just started."""
    return posix.PosixOrigin(origin.root)


def folder_of(origin: posix.PosixOrigin, name: str = "ring") -> pathlib.Path:
    return pathlib.Path(origin.root, ".refs", f"{name}@")


def change(origin: posix.PosixOrigin, times: int, name: str = "ring") -> str:
    """Change a ref so often; return its token."""
    token = None
    for number in range(times):
        present = origin.get_ref(name)
        content = b"content %d" % number
        token = origin.swap_ref(name, present.token if present else None, content)
    assert token is not None
    return token


def test_file_format_requires_a_new_version() -> None:
    whole = GOLDEN.read_bytes()
    header, content = posix_ref_file.parse_file(whole, "golden")
    assert posix_ref_file.REF_FILE_VERSION == 1
    assert content == b'{"a": "record"}\n'
    assert (header.is_removed, header.nonce) == (False, "00112233aabbccdd")
    assert header.follows("01234567ffffffff", 1)
    assert header.follows("89abcdefffffffff", 2)
    assert header.follows("89abcdefffffffff", 1) is False
    assert header.follows("89abcdefffffffff", 3) is None
    assert header.encode() + content == whole, "bump REF_FILE_VERSION"


def test_header_is_never_longer_than_is_read() -> None:
    header = Header.of(b"x")
    for _ in range(2 * posix_ref_file.HISTORY_LENGTH):
        header = Header.of(b"", header, is_removed=True)
        header = dataclasses.replace(header, length=99_999_999)
        assert len(header.encode()) <= posix_ref_file.HEADER_BYTES_MAX
    assert Header.parse(header.encode(), "file") == (header, len(header.encode()))


def test_newer_file_is_refused(origin: posix.PosixOrigin) -> None:
    token = change(origin, 1)
    state = State.parse(token)
    assert state is not None
    file = folder_of(origin) / state.place.name
    file.chmod(0o644)
    file.write_bytes(file.read_bytes().replace(b"acstor-ref 1 ", b"acstor-ref 2 something "))
    for call in (
        lambda: another(origin).get_ref("ring"),
        lambda: origin.swap_ref("ring", token, b"x"),
    ):
        with pytest.raises(exception.UnsupportedError, match="version 2"):
            call()


@pytest.mark.parametrize(
    "damage",
    [lambda whole: b"", lambda whole: whole[:-1], lambda whole: whole + b"x",
     lambda whole: bytes(len(whole)), lambda whole: whole.replace(b"0", b"1")],
    ids=["empty", "short", "long", "zeros", "other"],
)  # fmt: skip
def test_torn_file_is_never_taken_for_the_ref(
    origin: posix.PosixOrigin, damage: Callable[[bytes], bytes]
) -> None:
    state = State.parse(change(origin, 1))
    assert state is not None
    file = folder_of(origin) / state.place.name
    file.chmod(0o644)
    file.write_bytes(damage(file.read_bytes()))
    for one in (origin, another(origin)):
        with pytest.raises(exception.CorruptError, match="not what was written"):
            one.get_ref("ring")


def damage(
    origin: posix.PosixOrigin, token: str, content: bytes = b"damaged"
) -> base.DamagedRefError:
    """Damage the file of a state; return what is said of the ref then."""
    state = State.parse(token)
    assert state is not None
    file = folder_of(origin) / state.place.name
    file.chmod(0o644)
    file.write_bytes(content)
    with pytest.raises(base.DamagedRefError) as caught:
        origin.get_ref("ring")
    return caught.value


@pytest.mark.parametrize("content", [b"", b"damaged"])
def test_damaged_ref_is_replaced_by_one_who_has_seen_it_so(
    origin: posix.PosixOrigin, content: bytes
) -> None:
    former = change(origin, 6)
    seen = damage(origin, former, content)
    token = another(origin).swap_ref("ring", seen.token, b"new")
    for one in (origin, another(origin)):
        assert one.get_ref("ring") == base.Ref(str(token), b"new")
        assert one.refresh_ref("ring", base.Ref(former, b"old")) == base.Ref(str(token), b"new")
        for late in (seen.token, former):
            with pytest.raises(exception.ConflictError):
                one.swap_ref("ring", late, b"late")
    assert origin.swap_ref("ring", token, b"next") is not None


def test_damaged_ref_is_removed_by_one_who_has_seen_it_so(origin: posix.PosixOrigin) -> None:
    seen = damage(origin, change(origin, 2))
    assert origin.swap_ref("ring", seen.token, None) is None
    assert another(origin).get_ref("ring") is None
    assert not folder_of(origin).exists()


def test_ref_that_is_damaged_otherwise_or_whole_again_is_not_replaced(
    origin: posix.PosixOrigin,
) -> None:
    token = change(origin, 2)
    state = State.parse(token)
    assert state is not None
    file = folder_of(origin) / state.place.name
    whole = file.read_bytes()
    seen = damage(origin, token)
    for content in (b"damaged otherwise", whole):
        file.write_bytes(content)
        with pytest.raises(exception.ConflictError):
            origin.swap_ref("ring", seen.token, b"new")
    assert origin.get_ref("ring") == base.Ref(token, b"content 1")


def test_writer_of_what_was_damaged_and_replaced_meanwhile_is_told_that_nobody_knows(
    origin: posix.PosixOrigin,
) -> None:
    token = change(origin, posix_refs.RETAINED_VERSIONS)
    real = posix_write.add_name

    def overtaken(temporary: str, target: str) -> None:
        real(temporary, target)
        with mock.patch.object(posix_write, "add_name", side_effect=real):
            state = State.parse(token)
            assert state is not None
            made = State(state.place.after(), "0" * 16)
            present = damage(origin, made.token).token
            other = another(origin)
            for number in range(posix_refs.RETAINED_VERSIONS + 1):
                present = str(other.swap_ref("ring", present, b"%d" % number))

    with (
        mock.patch.object(posix_write, "add_name", side_effect=overtaken),
        pytest.raises(exception.UnavailableError, match="cannot be told"),
    ):
        origin.swap_ref("ring", token, b"overtaken")


def test_versions_are_bounded(origin: posix.PosixOrigin) -> None:
    change(origin, 50)
    files = [Place.parse(path.name) for path in folder_of(origin).iterdir()]
    numbers = sorted(place.number for place in files if place is not None)
    assert numbers == [0, *range(51 - posix_refs.RETAINED_VERSIONS, 51)]


def test_versions_that_crashed_writers_left_are_removed_in_order(
    origin: posix.PosixOrigin,
) -> None:
    def crashed(path: str, places: object) -> None:
        raise KeyboardInterrupt

    token = change(origin, 10)
    with mock.patch.object(posix_refs, "_remove_ascending", side_effect=crashed):
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                origin.swap_ref("ring", token, b"x")
            present = origin.get_ref("ring")
            assert present is not None
            token = present.token
    removed = []
    real = posix_write.remove_if_there

    def noted(path: str) -> bool:
        place = Place.parse(os.path.basename(path))
        removed.extend([] if place is None else [place.number])
        return real(path)

    with mock.patch.object(posix_write, "remove_if_there", side_effect=noted):
        origin.swap_ref("ring", token, b"y")
    assert removed == [7, 8, 9, 10]


def test_removed_ref_leaves_no_file(origin: posix.PosixOrigin) -> None:
    token = change(origin, 10, "gc/condemned/one")
    origin.swap_ref("gc/condemned/one", token, None)
    left = [path for path in pathlib.Path(origin.root).rglob("*") if not path.is_dir()]
    assert left == []
    assert not folder_of(origin, "gc/condemned/one").exists()


def late_link(origin: posix.PosixOrigin, meanwhile: Callable[[], object]) -> object:
    """Change a ref, with ``meanwhile`` just before the version gets its name."""
    real = posix_write.add_name

    def late(temporary: str, path: str) -> None:
        with mock.patch.object(posix_write, "add_name", real):
            meanwhile()
        real(temporary, path)

    present = origin.get_ref("ring")
    assert present is not None
    with mock.patch.object(posix_write, "add_name", side_effect=late):
        return origin.swap_ref("ring", present.token, b"late")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (1, exception.ConflictError),
        (posix_refs.RETAINED_VERSIONS, exception.ConflictError),
        (posix_ref_file.HISTORY_LENGTH, exception.ConflictError),
        (posix_ref_file.HISTORY_LENGTH + 5, exception.UnavailableError),
    ],
)
def test_writer_that_slept_before_the_link_loses(
    origin: posix.PosixOrigin, others: int, expected: type[exception.AcstorError]
) -> None:
    change(origin, 3)
    sleeper = another(origin)
    with pytest.raises(expected):
        late_link(sleeper, lambda: change(origin, others))
    for one in (origin, sleeper, another(origin)):
        present = one.get_ref("ring")
        assert present is not None
        assert present.content == b"content %d" % (others - 1)
    assert len(list(folder_of(origin).iterdir())) == posix_refs.RETAINED_VERSIONS + 1


def test_writer_that_slept_after_the_link_knows_that_it_won(origin: posix.PosixOrigin) -> None:
    token = change(origin, 3)
    sleeper = another(origin)
    real = posix_write.add_name

    def overtaken(temporary: str, path: str) -> None:
        real(temporary, path)
        with mock.patch.object(posix_write, "add_name", real):
            change(origin, 20)

    with mock.patch.object(posix_write, "add_name", side_effect=overtaken):
        assert sleeper.swap_ref("ring", token, b"mine") is not None
    present = sleeper.get_ref("ring")
    assert present is not None
    assert present.content == b"content 19"


def test_writer_that_slept_while_the_ref_was_made_anew_loses(origin: posix.PosixOrigin) -> None:
    change(origin, 3)

    def made_anew() -> None:
        present = origin.get_ref("ring")
        assert present is not None
        origin.swap_ref("ring", present.token, None)
        change(origin, 2)

    # Whether it was the ref for a moment, before the removal, nobody knows any more.
    with pytest.raises(exception.UnavailableError, match="cannot be told"):
        late_link(another(origin), made_anew)
    present = another(origin).get_ref("ring")
    assert present is not None
    assert present.content == b"content 1"


def test_what_is_late_in_an_incarnation_that_is_over_is_nobodys(origin: posix.PosixOrigin) -> None:
    """As a link that a server carries out an hour after it was sent."""
    old = State.parse(change(origin, 3))
    assert old is not None
    present = origin.get_ref("ring")
    assert present is not None
    temporary = folder_of(origin).parent / "late"
    shutil.copy(folder_of(origin) / old.place.name, temporary)
    origin.swap_ref("ring", present.token, None)
    made = origin.swap_ref("ring", None, b"again")
    os.link(temporary, folder_of(origin) / old.place.after(7).name)
    for one in (origin, another(origin)):
        found = one.get_ref("ring")
        assert found is not None
        assert (found.token, found.content) == (made, b"again")
    origin.swap_ref("ring", made, None)
    assert list(origin.list_refs()) == []
    folder_of(origin).mkdir()
    os.link(temporary, folder_of(origin) / old.place.after(9).name)
    assert another(origin).get_ref("ring") is None
    assert another(origin).swap_ref("ring", None, b"third") is not None


def test_creator_that_slept_until_the_sweep_makes_no_half_ref(origin: posix.PosixOrigin) -> None:
    """He wakes when the first of his files is gone: either he wins all, or nothing."""
    change(origin, 1, "other")
    real_rename, real_unlink = os.rename, os.unlink
    pending: list[tuple[str, str]] = []
    failed: list[OSError] = []

    def wakes(path: str, **options: int | None) -> None:
        real_unlink(path, **options)
        if pending and "dir_fd" in options:
            try:
                real_rename(*pending.pop())
            except OSError as error:
                failed.append(error)

    def sleeps(source: str, target: str) -> None:
        if not target.endswith("ring@"):
            real_rename(source, target)
            return
        os.utime(source, (0, 0))
        pending.append((source, target))
        with mock.patch.object(os, "rename", real_rename), mock.patch.object(os, "unlink", wakes):
            another(origin).sweep()
        assert not pending
        if failed:
            raise failed[0]

    with (
        mock.patch.object(os, "rename", sleeps),
        pytest.raises(exception.UnavailableError),
    ):
        origin.swap_ref("ring", None, b"mine")
    for one in (origin, another(origin)):
        assert one.get_ref("ring") is None
    assert origin.swap_ref("ring", None, b"again") is not None
    assert os.listdir(os.path.join(origin.root, ".temporary")) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_foreign_file_in_the_folder_of_a_removed_ref_is_in_nobodys_way(
    origin: posix.PosixOrigin, is_late: bool
) -> None:
    """As an NFS client leaves it that crashed while it had a removed version open."""
    token = change(origin, 3)
    if not is_late:
        (folder_of(origin) / ".nfs0001").touch()
    origin.swap_ref("ring", token, None)
    if is_late:
        folder_of(origin).mkdir()
        (folder_of(origin) / ".nfs0001").touch()
    else:
        assert list(origin.list_refs()) == []
    made = another(origin).swap_ref("ring", None, b"again")
    (folder_of(origin) / ".nfs0002").touch()
    assert another(origin).swap_ref("ring", made, b"changed") is not None
    assert (folder_of(origin) / ".nfs0002").exists()


def test_foreign_file_that_cannot_be_removed_is_named(origin: posix.PosixOrigin) -> None:
    change(origin, 1, "other")
    (folder_of(origin) / "lost+found").mkdir(parents=True)
    with (
        mock.patch.object(posix_refs, "CREATION_WAIT_SECONDS", 0.0),
        pytest.raises(exception.UnavailableError, match=r"lost\+found"),
    ):
        origin.swap_ref("ring", None, b"x")
    (folder_of(origin) / "lost+found").rmdir()
    assert origin.swap_ref("ring", None, b"x") is not None


@pytest.mark.parametrize("call", ["link", "rename"])
def test_lost_answer_is_found_out(origin: posix.PosixOrigin, call: str) -> None:
    real = getattr(os, call)

    def repeated(source: str, target: str) -> None:
        real(source, target)
        if "@" in target:
            real(source, target)  # as an NFS client repeats a request without an answer

    token = None if call == "rename" else change(origin, 1)
    with mock.patch.object(os, call, side_effect=repeated):
        assert origin.swap_ref("ring", token, b"mine") is not None
    present = origin.get_ref("ring")
    assert present is not None
    assert present.content == b"mine"


def test_timeout_after_the_effect_is_a_success(origin: posix.PosixOrigin) -> None:
    real = os.link

    def timed_out(source: str, target: str) -> None:
        real(source, target)
        raise OSError(errno.ETIMEDOUT, "soft mount")

    token = change(origin, 1)
    with mock.patch.object(os, "link", side_effect=timed_out):
        assert origin.swap_ref("ring", token, b"mine") is not None


def test_repeat_that_finds_its_own_content_makes_it_durable(origin: posix.PosixOrigin) -> None:
    token = change(origin, 1)
    wrapped = retrying.RetryingOrigin(origin, 60.0, sleep=lambda seconds: None)
    real, synchronised = posix_write.synchronise_folder, []
    failures = [OSError(errno.EIO, "once")]

    def fails_once(path: str) -> None:
        if failures and os.path.realpath(path).endswith("@"):
            raise failures.pop()
        synchronised.append(os.path.realpath(path))
        real(path)

    with mock.patch.object(posix_write, "synchronise_folder", side_effect=fails_once):
        assert wrapped.swap_ref("ring", token, b"mine") is not None
    assert str(folder_of(origin)) in synchronised


def test_change_is_durable_before_it_is_answered(origin: posix.PosixOrigin) -> None:
    """File, name, and the names of what is around it, each before what relies on it."""
    events: list[str] = []

    def noting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def noted(*arguments: object) -> object:
            answer = real(*arguments)
            path = os.path.realpath(str(arguments[-1]))
            events.append(f"{name} {os.path.basename(path).rsplit('.', 1)[-1]}")
            return answer

        return noted

    token = change(origin, 6)
    real_sync = posix_write.synchronise_folder
    with (
        mock.patch.object(os, "link", noting("link", os.link)),
        mock.patch.object(os, "unlink", noting("unlink", os.unlink)),
        mock.patch.object(posix_write, "synchronise_folder", noting("sync", real_sync)),
    ):
        origin.swap_ref("ring", token, b"x")
    assert events[:3] == ["link 7", "sync ring@", "unlink 3"]


@pytest.mark.parametrize("is_former", [False, True])
def test_origin_that_was_unmounted_has_not_lost_its_refs(
    origin: posix.PosixOrigin, is_former: bool
) -> None:
    if is_former:
        pathlib.Path(origin.root, "refs").mkdir()
    token = origin.swap_ref("ring", None, b"x")
    origin.put_if_absent("object", [b"x"])
    reader = another(origin)
    root = pathlib.Path(origin.root)
    root.rename(root.parent / "elsewhere")
    root.mkdir()  # what is below a mount point
    for one in (origin, reader):
        for call in (
            lambda one=one: one.get_ref("ring"),
            lambda one=one: one.refresh_ref("ring", None),
            lambda one=one: list(one.list_refs("images/")),
            lambda one=one: list(one.list()),
            lambda one=one: list(one.list("packs/")),
            lambda one=one: one.exists("object"),
            lambda one=one: one.delete("object"),
            lambda one=one: one.get_range("object", 0, 1),
        ):
            with pytest.raises(exception.UnavailableError, match="mounted"):
                call()
        with pytest.raises((exception.UnavailableError, exception.ConflictError)):
            one.swap_ref("ring", token, b"y")
    shutil.rmtree(root)
    (root.parent / "elsewhere").rename(root)
    found = reader.get_ref("ring")
    assert found is not None
    assert found.content == b"x"


def test_damaged_ref_of_a_killed_removal_keeps_no_sweep_from_the_rest(
    origin: posix.PosixOrigin,
) -> None:
    token = origin.swap_ref("ring", None, b"mine")
    killed = RuntimeError("killed")
    with (
        mock.patch.object(posix_refs.PosixRefs, "_bury", side_effect=killed),
        mock.patch.object(posix_write, "remove_if_there"),
        pytest.raises(RuntimeError),
    ):
        origin.swap_ref("ring", token, None)
    temporary = pathlib.Path(origin.root, ".temporary")
    (temporary / "other").write_bytes(b"x")
    for left in temporary.iterdir():
        os.utime(left, (0, 0))
    for version in pathlib.Path(origin.root, ".refs", "ring@").iterdir():
        version.unlink()  # the temporary file is the same
        version.write_bytes(b"damaged")
    origin.sweep()
    assert list(temporary.iterdir()) == []
