"""Refs of a POSIX origin: requests with lost answers, and ones carried out long afterwards."""

import os
import pathlib
from collections.abc import Callable
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import base, posix, posix_ref_file, posix_refs
from acstor.origin.posix_ref_file import Header, State
from tests.unit.origin.test_posix_refs import another, change, folder_of, late_link


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> posix.PosixOrigin:
    return posix.PosixOrigin(str(tmp_path))


def made_anew(origin: posix.PosixOrigin, times: int) -> None:
    present = origin.get_ref("ring")
    assert present is not None
    origin.swap_ref("ring", present.token, None)
    change(origin, times)


@pytest.mark.parametrize("is_answered_late", [False, True])
@pytest.mark.parametrize(
    ("meanwhile", "is_known"),
    [
        (lambda origin: change(origin, posix_refs.RETAINED_VERSIONS + 1), True),
        (lambda origin: change(origin, posix_ref_file.HISTORY_LENGTH - 1), True),
        (lambda origin: change(origin, posix_ref_file.HISTORY_LENGTH + 1), False),
        (lambda origin: made_anew(origin, 3), False),
    ],
    ids=["not retained", "in the history", "long ago", "made anew"],
)
def test_lost_answer_of_what_was_overtaken_is_no_refusal(
    origin: posix.PosixOrigin,
    meanwhile: Callable[[posix.PosixOrigin], object],
    *,
    is_known: bool,
    is_answered_late: bool,
) -> None:
    """The server is asked twice, as it seems not to answer, and others change the ref meanwhile."""
    real = os.link

    def overtaken() -> None:
        with mock.patch.object(os, "link", real):
            meanwhile(another(origin))

    def repeated(source: str, target: str) -> None:
        real(source, target)
        if not is_answered_late:
            overtaken()
        try:
            real(source, target)
        finally:
            if is_answered_late:
                overtaken()

    token = change(origin, 2)
    with mock.patch.object(os, "link", side_effect=repeated):
        if is_known:
            assert origin.swap_ref("ring", token, b"mine") is not None
        else:
            with pytest.raises(exception.UnavailableError, match="cannot be told"):
                origin.swap_ref("ring", token, b"mine")


def place_late(origin: posix.PosixOrigin, token: str, *, is_removal: bool = False) -> None:
    """Have the server carry out what was sent when the ref was in that state, long afterwards."""
    state = State.parse(token)
    assert state is not None
    content = b"ring" if is_removal else b"late"
    header = Header.of(content, is_removed=is_removal)
    (folder_of(origin) / state.place.after().name).write_bytes(header.encode() + content)


def listed_before(meanwhile: Callable[[], object]) -> Callable[[str], list[str]]:
    """Return a listing that sleeps, the first time, before it returns what it has found."""
    real, pending = os.listdir, [meanwhile]

    def slow(path: str) -> list[str]:
        found = real(path)
        if pending and os.path.realpath(path).endswith("@"):
            pending.pop()()
        return found

    return slow


def test_late_version_at_the_place_that_a_reader_has_listed_is_not_read(
    origin: posix.PosixOrigin,
) -> None:
    token = change(origin, 1)
    change(origin, 1)

    def meanwhile() -> None:
        change(another(origin), posix_refs.RETAINED_VERSIONS)
        place_late(origin, token)

    with mock.patch.object(os, "listdir", listed_before(meanwhile)):
        found = another(origin).get_ref("ring")
    assert found is not None
    assert found.content == b"content %d" % (posix_refs.RETAINED_VERSIONS - 1)


def test_late_removal_at_the_place_that_a_sweep_has_listed_removes_nothing(
    origin: posix.PosixOrigin,
) -> None:
    token = change(origin, 1)
    change(origin, 1)
    content = b"ring"
    left = pathlib.Path(origin.root, ".temporary", "left")
    left.write_bytes(Header.of(content, is_removed=True).encode() + content)
    os.utime(left, (0, 0))

    def meanwhile() -> None:
        change(another(origin), posix_refs.RETAINED_VERSIONS)
        place_late(origin, token, is_removal=True)

    with mock.patch.object(os, "listdir", listed_before(meanwhile)):
        another(origin).sweep()
    found = another(origin).get_ref("ring")
    assert found is not None
    assert found.content == b"content %d" % (posix_refs.RETAINED_VERSIONS - 1)


@pytest.mark.parametrize("times", [1, posix_refs.RETAINED_VERSIONS + 1])
def test_version_that_is_another_ones_is_a_refusal(origin: posix.PosixOrigin, times: int) -> None:
    change(origin, 2)
    with pytest.raises(exception.ConflictError) as caught:
        late_link(another(origin), lambda: change(origin, times))
    assert not isinstance(caught.value, base.OvertakenError)
