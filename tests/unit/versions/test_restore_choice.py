"""Choices of the method of a restore: the table, and the words."""

import pytest

from acstor import exception
from acstor.versions import rebuilding, restore_choice
from acstor.versions.moved_bytes import Estimate, Moved
from acstor.versions.restore_choice import REASON_LENGTH_MAX, Options, RestoreMethod

LOSS = rebuilding.NotRebuildableError("a rebuild would destroy its swap disk")
BUSY = rebuilding.BusyServerError("server s is locked")
OLD = exception.UnsupportedError("the agent of host h1 does not know restore_progress")
AWAY = exception.UnavailableError("the origin is away")
_R, _P = RestoreMethod.REBUILD, RestoreMethod.IN_PLACE


def moving(in_place: int, rebuild: int) -> Estimate:
    return Estimate(Moved(in_place, 1000), Moved(rebuild, 2000))


@pytest.mark.parametrize(
    ("options", "method", "words"),
    [
        (
            Options(None, None, moving(10, 20)),
            _P,
            "10 to 1000 bytes are moved, by a rebuild 20 to 2000",
        ),
        (Options(None, None, moving(0, 1)), _P, "0 to 1000 bytes"),
        (
            Options(None, None, moving(20, 20)),
            _R,
            "20 to 2000 bytes are moved, in place 20 to 1000",
        ),
        (Options(None, None, moving(10, 0)), _R, "in place 10"),
        (Options(None, None, moving(0, 0)), _R, "in place 0"),
        (Options(None, None, AWAY), _R, "not known: the origin is away"),
        (Options(None, OLD, moving(10, 20)), _R, "not in place: the agent of host h1"),
        (Options(None, OLD, AWAY), _R, "not in place: the agent of host h1"),
        (Options(LOSS, None, moving(20, 10)), _P, "would destroy its swap disk"),
        (Options(LOSS, None, AWAY), _P, "would destroy its swap disk"),
        (Options(LOSS, OLD, moving(10, 20)), None, "swap disk; and not in place: the agent"),
        (Options(LOSS, OLD, AWAY), None, "swap disk"),
    ],
)
def test_method_is_chosen(options: Options, method: RestoreMethod | None, words: str) -> None:
    choice = restore_choice.choose(options)
    assert choice.method is method
    assert words in choice.reason
    assert (choice.hint is None) == (method is not None)


def test_same_refusal_of_both_is_told_once() -> None:
    choice = restore_choice.choose(Options(BUSY, BUSY, AWAY))
    assert (choice.method, choice.reason, choice.hint) == (None, BUSY.message, BUSY.hint)


def test_reason_is_a_line_of_a_bounded_length() -> None:
    long = exception.UnavailableError("word\n" * REASON_LENGTH_MAX)
    choice = restore_choice.unknown(long)
    assert choice.method is RestoreMethod.REBUILD
    assert len(choice.reason) <= REASON_LENGTH_MAX
    assert "\n" not in choice.reason
