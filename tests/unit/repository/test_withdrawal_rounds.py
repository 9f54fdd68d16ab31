"""The ref that says which images are being withdrawn."""

import itertools
import pathlib
import uuid

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository.images import withdrawal_rounds
from acstor.repository.images.withdrawal_rounds import (
    PHASES,
    ROUNDS_REF,
    Phase,
    Rounds,
    Withdrawal,
    read_rounds,
    write_rounds,
)

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "withdrawals-v1.json"
ONE, TWO, THREE = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
ROUNDS = Rounds(
    9,
    {
        ONE: Withdrawal(Phase.ASKED, 7),
        TWO: Withdrawal(Phase.CLOSING, 9),
        THREE: Withdrawal(Phase.REMOVING, 4, "t-1"),
    },
    epoch="0123456789abcdef0123456789abcdef",
)


def test_version_requires_update() -> None:
    assert withdrawal_rounds.ROUNDS_VERSION == 1
    assert ROUNDS.encode() == GOLDEN.read_bytes()
    assert Rounds.parse(GOLDEN.read_bytes()) == ROUNDS


def test_images_that_are_asked_about_are_open() -> None:
    assert ROUNDS.closed == {TWO, THREE}


def test_every_change_begins_a_round() -> None:
    rounds = Rounds()
    for number, phase in enumerate((Phase.ASKED, Phase.CLOSING, Phase.REMOVING, None), 1):
        rounds = rounds.changed(ONE, phase)
        assert rounds.round == number
        assert rounds.images == ({ONE: Withdrawal(phase, number)} if phase else {})


def test_round_exceeds_what_any_host_knows() -> None:
    """The ref was lost, and a host has acknowledged round 17."""
    assert Rounds().changed(ONE, Phase.ASKED, 17).images[ONE].round == 18


def test_other_epoch_keeps_the_withdrawals_in_a_newer_round() -> None:
    after = ROUNDS.in_new_epoch(17)
    assert after.images == ROUNDS.images
    assert after.round == 18
    assert len(after.epoch) == 32
    assert after.epoch not in (ROUNDS.epoch, ROUNDS.in_new_epoch().epoch)


@pytest.mark.parametrize(
    ("before", "after"), sorted(itertools.product((None, *Phase), repeat=2), key=str)
)
def test_no_phase_is_left_out(before: Phase | None, after: Phase | None) -> None:
    rounds = Rounds(1, {ONE: Withdrawal(before, 1)} if before else {})
    if (before, after) in PHASES:
        assert rounds.changed(ONE, after).phase_of(ONE) is after
    else:
        with pytest.raises(exception.InternalError):
            rounds.changed(ONE, after)


def test_rounds_change_by_compare_and_swap() -> None:
    origin = MemoryOrigin()
    first = read_rounds(origin)
    assert first == Rounds()
    written = write_rounds(origin, first.changed(ONE, Phase.ASKED))
    assert read_rounds(origin) == written
    with pytest.raises(exception.ConflictError):
        write_rounds(origin, first.changed(TWO, Phase.ASKED))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b'{"version": 1}', b'{"version": 1, "round": -1, "images": {}}',
        b'{"version": 1, "round": 1, "images": {}}',
        b'{"version": 1, "epoch": 7, "round": 1, "images": {}}',
        b'{"version": 1, "epoch": "", "round": 1, "images": {"x": {"phase": "asked", "round": 1}}}',
        ROUNDS.encode().replace(b', "image_token": "t-1"', b""),
        ROUNDS.encode().replace(b"asked", b"gone"),
    ],
)  # fmt: skip
def test_malformed_rounds_are_an_error(content: bytes) -> None:
    origin = MemoryOrigin()
    origin.swap_ref(ROUNDS_REF, None, content)
    with pytest.raises(exception.CorruptError):
        read_rounds(origin)


def test_rounds_of_a_newer_release_are_unsupported() -> None:
    with pytest.raises(exception.UnsupportedError):
        Rounds.parse(b'{"version": 2}')
