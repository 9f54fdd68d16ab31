"""A writer of a ref that is stopped, or killed, before any of its calls of the operating system."""

import os
import pathlib
import signal
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin import posix, posix_refs, posix_tree
from testbed.fixtures.stopped_ref_writer import Writers

NAME = "decision"
CONTENTS = {"create": "mine", "change": "mine", "remove": None}
NO_STEP = 10_000


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    opened = Writers()
    yield opened
    opened.close()


def prepared(path: pathlib.Path, kind: str) -> tuple[posix.PosixOrigin, str | None]:
    """Return an origin, and the token of its ref for a change of that kind."""
    path.mkdir()
    origin = posix.PosixOrigin(str(path))
    token = None
    if kind != "create":
        for number in range(posix_refs.RETAINED_VERSIONS + 1):  # so many that old ones are removed
            token = origin.swap_ref(NAME, token, str(number).encode())
    return origin, token


def count_steps(writers: Writers, path: pathlib.Path, kind: str) -> int:
    """Return how many calls a change makes that nothing happens to."""
    origin, token = prepared(path, kind)
    _, count = writers.run(origin.root, NAME, token, CONTENTS[kind], signal.SIGKILL, NO_STEP)
    assert count > 5
    return int(count)


def stopped_at_each_step(
    writers: Writers, path: pathlib.Path, kind: str
) -> Iterator[tuple[int, posix.PosixOrigin, str | None]]:
    """Yield an origin, and the token of its ref, for each call that a change may be stopped at."""
    for step in range(count_steps(writers, path / "counted", kind)):
        origin, token = prepared(path / str(step), kind)
        stopped = writers.run(origin.root, NAME, token, CONTENTS[kind], signal.SIGSTOP, step)
        assert stopped == ["stopped"]
        yield step, origin, token


@pytest.mark.parametrize("kind", sorted(CONTENTS))
def test_stopped_writer_hinders_nobody_and_never_wins_late(
    tmp_path: pathlib.Path, writers: Writers, kind: str
) -> None:
    for step, origin, token in stopped_at_each_step(writers, tmp_path, kind):
        before = origin.get_ref(NAME)
        was_seen = (before.token if before else None) != token
        # Others change it often enough that nothing is left of what the stopped one has read.
        for number in range(2 * posix_refs.RETAINED_VERSIONS):
            present = origin.get_ref(NAME)
            origin.swap_ref(NAME, present.token if present else None, b"other %d" % number)
        last = origin.get_ref(NAME)
        assert last is not None
        answer = writers.go_on()[0]
        if was_seen:  # it had won, which it may not know any more
            assert answer is None or "." in answer or answer == "UnavailableError", (step, answer)
        else:
            assert answer in ("ConflictError", "UnavailableError"), (step, answer)
        for other in (origin, posix.PosixOrigin(origin.root)):
            assert other.get_ref(NAME) == last, step
        token = origin.swap_ref(NAME, last.token, b"after")
        assert origin.swap_ref(NAME, token, None) is None
        assert posix.PosixOrigin(origin.root).get_ref(NAME) is None, step


@pytest.mark.parametrize("kind", sorted(CONTENTS))
def test_stopped_writer_of_a_ref_that_is_removed_and_made_again_loses(
    tmp_path: pathlib.Path, writers: Writers, kind: str
) -> None:
    for step, origin, _ in stopped_at_each_step(writers, tmp_path, kind):
        present = origin.get_ref(NAME)
        origin.swap_ref(NAME, present.token if present else None, None)
        assert origin.get_ref(NAME) is None
        made = origin.swap_ref(NAME, None, b"again")
        writers.go_on()
        for other in (origin, posix.PosixOrigin(origin.root)):
            found = other.get_ref(NAME)
            assert found is not None, step
            assert (found.token, found.content) == (made, b"again"), step
        assert origin.swap_ref(NAME, made, None) is None
        assert origin.get_ref(NAME) is None


@pytest.mark.parametrize("kind", sorted(CONTENTS))
def test_killed_writer_leaves_the_old_or_the_new_state(
    tmp_path: pathlib.Path, writers: Writers, kind: str
) -> None:
    for step in range(count_steps(writers, tmp_path / "counted", kind)):
        origin, token = prepared(tmp_path / str(step), kind)
        old = origin.get_ref(NAME)
        content = CONTENTS[kind]
        assert writers.run(origin.root, NAME, token, content, signal.SIGKILL, step) == ["killed"]
        fresh = posix.PosixOrigin(origin.root)
        found = fresh.get_ref(NAME)
        assert origin.get_ref(NAME) == found, step
        new = None if content is None else content.encode()
        assert found == old or (found.content if found else None) == new, step
        after = fresh.swap_ref(NAME, found.token if found else None, b"after")
        with pytest.raises(exception.ConflictError):
            origin.swap_ref(NAME, token, b"late")
        fresh.swap_ref(NAME, after, None)
        assert list(fresh.list_refs()) == [], step
        assert origin.get_ref(NAME) is None


@pytest.mark.parametrize("kind", sorted(CONTENTS))
def test_leftovers_are_swept(tmp_path: pathlib.Path, writers: Writers, kind: str) -> None:
    for step in range(count_steps(writers, tmp_path / "counted", kind)):
        origin, token = prepared(tmp_path / str(step), kind)
        writers.run(origin.root, NAME, token, CONTENTS[kind], signal.SIGKILL, step)
        is_there = origin.get_ref(NAME) is not None
        for entry in pathlib.Path(origin.root).glob(".temporary/*"):
            moment = entry.stat().st_mtime - posix_tree.TEMPORARY_AGE_SECONDS - 60
            os.utime(entry, (moment, moment))
        posix.PosixOrigin(origin.root).sweep()
        assert list(pathlib.Path(origin.root, ".temporary").iterdir()) == []
        assert list(origin.list_refs()) == ([NAME] if is_there else []), step
        assert (origin.get_ref(NAME) is not None) == is_there
