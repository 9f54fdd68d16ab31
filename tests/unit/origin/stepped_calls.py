"""Stepping the calls of the operating system of several threads, and losing some of their answers.

Each actor of :mod:`tests.unit.repository.interleaving` stops before each call. Calls that decide
(``link`` and ``rename``) may fare as requests to an NFS server do: the answer is lost, the request
was sent twice, or it is carried out long after its sender was told that nobody answers.
"""

import contextlib
import errno
import os
import pathlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from tests.unit.repository import interleaving

CALLS = (
    "open", "link", "unlink", "rename", "mkdir", "rmdir", "fsync", "listdir", "lstat", "stat",
)  # fmt: skip
DECISIVE = ("link", "rename")


class SteppedCalls:
    """The calls of actors, while :meth:`installed`.

    :param choice: decides what becomes of decisive calls.
    :param loss: share of them that something happens to.
    """

    def __init__(self, choice: random.Random, loss: float) -> None:
        self._choice = choice
        self._loss = loss
        self._actors: dict[int, interleaving.Actor] = {}
        self._late: list[Callable[[], object]] = []
        self.time = 0

    def tick(self) -> int:
        """Return the time, which no two ask for at once."""
        self.time += 1
        return self.time

    def actor(self, name: str, action: Callable[[], object]) -> interleaving.Actor:
        """Return a thread that runs only between two of its calls."""

        def run(_: object) -> object:
            self._actors[threading.get_ident()] = made[0]
            try:
                return action()
            finally:
                del self._actors[threading.get_ident()]

        made: list[interleaving.Actor] = []
        made.append(interleaving.Actor(name, run, mock.sentinel.no_origin))
        return made[0]

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Have the actors stop before their calls."""
        with contextlib.ExitStack() as patches:
            for name in CALLS:
                patches.enter_context(mock.patch.object(os, name, self._stepped(name)))
            yield

    def carry_out_late(self) -> None:
        """Carry out what was sent and not answered, as far as it can be done now."""
        while self._late:
            with contextlib.suppress(OSError):
                self._late.pop(self._choice.randrange(len(self._late)))()

    def _stepped(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def called(*arguments: Any, **named: Any) -> Any:
            actor = self._actors.get(threading.get_ident())
            if actor is None:
                return real(*arguments, **named)
            if actor.is_killed:
                raise interleaving.Killed  # nor does it clean up
            actor.pause()
            if self._late and self._choice.random() < 0.1:
                self.carry_out_late()
            if name == "fsync":
                return None  # durability is not what is stepped here, and a disk is slow
            if name in DECISIVE and self._choice.random() < self._loss:
                places = [_resolved(argument) for argument in arguments]
                return self._unanswered(lambda: real(*places, **named))
            return real(*arguments, **named)

        return called

    def _unanswered(self, request: Callable[[], object]) -> object:
        fate = self._choice.choice(("lost", "repeated", "late"))
        if fate == "late":
            self._late.append(request)
        else:
            request()
        if fate == "repeated":
            return request()
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def _resolved(path: str) -> str:
    """Return a path that means the same once the descriptor in it is another file's."""
    descriptor = pathlib.PurePath(path).parent
    if descriptor.parent == pathlib.PurePath("/proc/self/fd"):
        return os.path.join(os.readlink(descriptor), os.path.basename(path))
    return path
