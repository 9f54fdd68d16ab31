"""Writers, readers, removers and sweepers of one ref, stepped between their calls of the system.

In thousands of orders that a seed decides, with kills, lost answers and requests that the server
carries out late. What they see must be what one ref would show; the same orders must find out
variants that are broken on purpose.
"""

import contextlib
import itertools
import os
import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import posix, posix_ref_file, posix_refs, posix_write
from acstor.origin.posix_ref_file import Header, Place, State
from tests.unit.origin.ref_history import History, HistoryError, Outcome, Read, Swap
from tests.unit.origin.stepped_calls import SteppedCalls
from tests.unit.repository import interleaving

SEEDS = range(400)
NAME = "ring"
TRIES = 5
SHARED_MEMORY = "/dev/shm"


class Users:
    """Actors' actions on one origin, and what they saw."""

    def __init__(self, root: str, calls: SteppedCalls, choice: random.Random) -> None:
        self.history = History()
        self._root = root
        self._calls = calls
        self._choice = choice
        self._contents = map(str, itertools.count())

    def change(self) -> None:
        """Change the ref some times, sometimes by removing it."""
        origin = posix.PosixOrigin(self._root)
        for _ in range(TRIES):
            with contextlib.suppress(exception.AcstorError):
                token, before = self.read(origin)
                after = None if self._choice.random() < 0.2 else next(self._contents)
                if before is not None or after is not None:
                    self._swap(origin, token, before, after)

    def look(self) -> None:
        """Read the ref some times, sometimes what changed only."""
        origin = posix.PosixOrigin(self._root)
        known = None
        for _ in range(TRIES):
            begin = self._calls.tick()
            with contextlib.suppress(exception.UnavailableError):
                known = origin.refresh_ref(NAME, known)
                content = None if known is None else known.content.decode()
                self.history.reads.append(Read(begin, self._calls.tick(), content))

    def sweep(self) -> None:
        """Remove temporary files of whatever age, as after the longest sleep of their writer."""
        origin = posix.PosixOrigin(self._root)
        for _ in range(2):
            with contextlib.suppress(exception.AcstorError):
                origin.sweep()

    def read(self, origin: posix.PosixOrigin) -> tuple[str | None, str | None]:
        """Return token and content of the ref."""
        begin = self._calls.tick()
        ref = origin.get_ref(NAME)
        content = None if ref is None else ref.content.decode()
        self.history.reads.append(Read(begin, self._calls.tick(), content))
        return (None if ref is None else ref.token), content

    def _swap(
        self, origin: posix.PosixOrigin, token: str | None, before: str | None, after: str | None
    ) -> None:
        begin = self._calls.tick()
        outcome = Outcome.UNKNOWN  # also of who is killed
        try:
            origin.swap_ref(NAME, token, None if after is None else after.encode())
            outcome = Outcome.YES
        except exception.ConflictError:
            outcome = Outcome.NO
        finally:
            self.history.swaps.append(Swap(begin, self._calls.tick(), before, after, outcome))


@contextlib.contextmanager
def repeatable(choice: random.Random) -> Iterator[None]:
    """Let names and limits follow from the seed; take leftovers of any age for abandoned ones."""

    def name() -> str:
        return choice.randbytes(8).hex()

    with (
        mock.patch.object(posix_ref_file, "random_nonce", name),
        mock.patch.object(posix_write, "unique_name", name),
        mock.patch.object(posix, "TEMPORARY_AGE_SECONDS", -1.0),
        mock.patch.object(posix_refs, "CREATION_WAIT_SECONDS", 0.0),
        mock.patch.object(posix_refs, "RETAINED_VERSIONS", choice.choice((1, 4))),
        # Root walks through the folders, others name paths, which may lead elsewhere meanwhile.
        mock.patch.object(os, "geteuid", return_value=choice.choice((0, 1000))),
    ):
        yield


def run_once(seed: int) -> None:
    """Run one order.

    :raises HistoryError: when what was seen is not what one ref shows.
    """
    choice = random.Random(seed)
    calls = SteppedCalls(choice, choice.choice((0.0, 0.1, 0.5)))
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as root, repeatable(choice):
        users = Users(root, calls, choice)
        posix.PosixOrigin(root).swap_ref("other", None, b"x")
        actions: Sequence[Callable[[], None]] = [
            users.change, users.change, users.change, users.look, users.sweep,
        ]  # fmt: skip
        with calls.installed():
            actors = [
                calls.actor(f"{number} {action.__name__}", action)
                for number, action in enumerate(actions)
            ]
            kills = {
                actor.name: choice.randint(1, 300) for actor in actors if choice.random() < 0.2
            }
            interleaving.run(actors, choice, kills)
        for actor in actors:
            if actor.error is not None:
                raise AssertionError(f"seed {seed}: {actor.name}") from actor.error
        check_end(root, calls, users)


def check_end(root: str, calls: SteppedCalls, users: Users) -> None:
    """Check what is left once nobody is at it any more, also by a late request."""
    calls.carry_out_late()
    origin = posix.PosixOrigin(root)
    token, content = users.read(origin)
    users.history.check()
    try:
        made = origin.swap_ref(NAME, token, b"last")
        assert origin.swap_ref(NAME, made, None) is None
    except exception.AcstorError as error:
        raise HistoryError(f"{content} cannot be changed any more: {error}") from error
    origin.sweep()
    left = [path for path in pathlib.Path(root, ".refs").iterdir() if path.name != "other@"]
    left += pathlib.Path(root, ".temporary").iterdir()
    if left:
        raise HistoryError(f"left over: {left}")


def violation(seeds: Sequence[int]) -> Exception | None:
    """Return what is first found to be wrong."""
    for seed in seeds:
        try:
            run_once(seed)
        except (HistoryError, AssertionError) as error:
            return error
    return None


@pytest.mark.skipif(not os.path.isdir(SHARED_MEMORY), reason="a disk takes too long")
@pytest.mark.parametrize("part", range(4))
def test_refs_are_linearisable(part: int) -> None:
    for seed in SEEDS[part::4]:
        try:
            run_once(seed)
        except HistoryError as error:
            raise AssertionError(f"seed {seed}") from error


def _descending(path: str, places: Sequence[Place]) -> None:
    for place in reversed(places):
        posix_write.remove_if_there(os.path.join(path, place.name))


def _present_only(self: posix_refs.PosixRefs, path: str, state: State) -> Header | None:
    return self._header_of(path, state)


BROKEN: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "who made a version takes it for the state": lambda: mock.patch.object(
        posix_refs.PosixRefs, "_check_overtaken"
    ),
    "later versions are removed before earlier ones": lambda: mock.patch.object(
        posix_refs, "_remove_ascending", _descending
    ),
    "nobody looks for the next version": lambda: mock.patch.object(
        posix_refs.PosixRefs, "_find_state", _present_only
    ),
}


@pytest.mark.skipif(not os.path.isdir(SHARED_MEMORY), reason="a disk takes too long")
@pytest.mark.parametrize("variant", sorted(BROKEN))
def test_broken_variants_are_found_out(variant: str) -> None:
    with BROKEN[variant]():
        assert violation(SEEDS) is not None
