"""Warm sets as one host tells them to another, and what is none."""

import json
import pathlib
import random
import uuid

import pytest

from acstor import exception
from acstor.control import bitmap
from acstor.control.chunk_set import ChunkSet
from acstor.preload import warm_set
from acstor.preload.warm_set import WARM_SET_VERSION, WarmSet

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "warm-set-v1.json"
IMAGE = str(uuid.UUID(int=1))
COUNT = 100


def made(read: set[int], held: set[int]) -> WarmSet:
    return WarmSet(IMAGE, COUNT, ChunkSet.of(read, COUNT), ChunkSet.of(held, COUNT))


def test_warm_set_version_requires_update() -> None:
    assert WARM_SET_VERSION == 1
    expected = made({0, 1, 9}, {1, 9, 50, 99})
    golden = json.loads(GOLDEN.read_text())
    assert WarmSet.from_answer("h1", IMAGE, golden) == expected
    assert WarmSet.from_answer("h1", IMAGE, expected.to_answer()) == expected
    assert {**expected.to_answer(), "read": 0, "held": 0} == {**golden, "read": 0, "held": 0}


def test_what_boots_read_comes_before_what_is_only_held() -> None:
    found = made({40, 50}, {1, 2, 3, 50})
    assert set(found.first(1)) == {40}
    assert set(found.first(3)) == {40, 50, 1}
    assert set(found.first(100)) == {40, 50, 1, 2, 3}
    assert set(found.first(0)) == set()


def test_set_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    scattered = {chunk for chunk in range(COUNT) if rng.random() < 0.5}
    whole = made({1}, scattered)
    longest = len(whole.held.encode())
    monkeypatch.setattr(warm_set, "SET_TEXT_MAX", longest - 1)
    found = WarmSet.from_answer("h1", IMAGE, whole.to_answer())
    assert (set(found.read), set(found.held)) == ({1}, set())


@pytest.mark.parametrize(
    "changes",
    [
        {"image": str(uuid.UUID(int=2))},
        {"chunk_count": -1},
        {"chunk_count": True},
        {"chunk_count": 1 << 40},
        {"chunk_count": COUNT + 8},
        {"read": None},
        {"read": 7},
        {"read": "no text of a set"},
        {"held": bitmap.encode(bytes(1 << 24))},
        {"held": "x" * (warm_set.SET_TEXT_MAX + 1)},
    ],
)
def test_what_is_no_warm_set_of_the_image_is_refused(changes: dict[str, object]) -> None:
    answer = {**made({1}, {2}).to_answer(), **changes}
    with pytest.raises(exception.CorruptError, match=r"h1|chunks"):
        WarmSet.from_answer("h1", IMAGE, answer)


@pytest.mark.parametrize("answer", [None, [], "warm"])
def test_what_is_no_object_is_refused(answer: object) -> None:
    with pytest.raises(exception.CorruptError, match="h1 tells no warm set"):
        WarmSet.from_answer("h1", IMAGE, answer)


def test_newer_version_is_refused() -> None:
    answer = {**made({1}, {2}).to_answer(), "version": 2}
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        WarmSet.from_answer("h1", IMAGE, answer)
