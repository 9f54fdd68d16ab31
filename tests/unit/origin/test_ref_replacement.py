"""Changing a ref while others change it too."""

import pytest

from acstor import exception
from acstor.origin import ref_replacement
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin

NAME = "counts/one"


def increment(content: bytes | None) -> bytes:
    return str(int(content or b"0") + 1).encode()


def content_of(origin: FaultyOrigin) -> bytes | None:
    ref = origin.get_ref(NAME)
    return None if ref is None else ref.content


def conflict(call: int | None = None) -> Fault:
    return Fault(Operation.SWAP_REF, Effect.ERROR, call=call, error=exception.ConflictError)


def test_change_sees_what_the_quicker_one_wrote() -> None:
    origin = FaultyOrigin(MemoryOrigin())
    seen: list[bytes | None] = []
    waits: list[float] = []

    def changed(content: bytes | None) -> bytes:
        seen.append(content)
        if len(seen) == 1:
            origin.swap_ref(NAME, None, b"41")
        return increment(content)

    assert ref_replacement.change(origin, NAME, changed, waits.append)
    assert seen == [None, b"41"]
    assert content_of(origin) == b"42"
    assert len(waits) == 1


def test_waits_grow_and_stay_bounded() -> None:
    origin = FaultyOrigin(MemoryOrigin(), [conflict()])
    waits: list[float] = []
    with pytest.raises(exception.ConflictError):
        ref_replacement.change(origin, NAME, increment, waits.append)
    assert origin.calls[Operation.SWAP_REF] == ref_replacement.ATTEMPTS_MAX
    assert len(waits) == ref_replacement.ATTEMPTS_MAX - 1
    assert all(0 <= wait <= min(0.5, 0.02 * 2**number) for number, wait in enumerate(waits))


def test_other_errors_are_not_tried_again() -> None:
    origin = FaultyOrigin(MemoryOrigin(), [Fault(Operation.SWAP_REF, Effect.ERROR)])
    with pytest.raises(exception.UnavailableError):
        ref_replacement.change(origin, NAME, increment)
    assert origin.calls[Operation.SWAP_REF] == 1


def test_replace_writes_and_removes_only_what_differs() -> None:
    origin = FaultyOrigin(MemoryOrigin(), [conflict(call=2)])
    assert ref_replacement.replace(origin, NAME, b"x")
    assert not ref_replacement.replace(origin, NAME, b"x")
    assert ref_replacement.replace(origin, NAME, b"y")  # after a conflict
    assert content_of(origin) == b"y"
    assert ref_replacement.replace(origin, NAME, None)
    assert not ref_replacement.replace(origin, NAME, None)
    assert content_of(origin) is None
    assert origin.calls[Operation.SWAP_REF] == 4
