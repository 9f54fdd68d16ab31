"""The first sectors of volumes, asked for and answered through a ref."""

import json

import pytest

from acstor.origin import keys
from acstor.origin.memory import MemoryOrigin
from acstor.repository.volumes import heads
from acstor.repository.volumes.heads import Head
from testbed.fixtures.documents import ROOT

GOLDEN = ROOT / "tests" / "golden" / "volume-head-v1.json"
VOLUME = "11111111-2222-4333-8444-555555555555"
NONCE = "0123456789abcdef" * 2


def test_head_version_requires_update() -> None:
    head = Head(NONCE, "compute-1", 7, b"\xeb\x63" + bytes(510))
    assert heads.HEAD_VERSION == 1
    assert heads.encode(head) == GOLDEN.read_bytes()
    assert heads.parse(GOLDEN.read_bytes()) == head
    keys.validate_ref_name(heads.head_ref(VOLUME))


def test_question_is_answered_once_and_removed() -> None:
    origin = MemoryOrigin()
    assert heads.asked(origin, VOLUME) is None
    nonce = heads.ask(origin, VOLUME)
    assert heads.asked(origin, VOLUME) == Head(nonce)
    assert heads.answer(origin, VOLUME, Head(nonce, "h1")), "it is heard"
    assert heads.asked(origin, VOLUME) == Head(nonce, "h1")
    answer = Head(nonce, "h1", 3, b"x" * 4096)
    assert heads.answer(origin, VOLUME, answer)
    assert heads.asked(origin, VOLUME) == answer
    assert not heads.answer(origin, VOLUME, Head(nonce, "h2", 4, b"y")), "it is answered"
    assert heads.asked(origin, VOLUME) == answer
    heads.remove(origin, VOLUME)
    assert heads.asked(origin, VOLUME) is None
    assert not heads.answer(origin, VOLUME, answer), "nobody asks any more"
    assert heads.asked(origin, VOLUME) is None


def test_answer_to_a_question_before_is_no_answer() -> None:
    origin = MemoryOrigin()
    first = heads.ask(origin, VOLUME)
    second = heads.ask(origin, VOLUME)
    assert first != second
    assert not heads.answer(origin, VOLUME, Head(first, "h1", 3, b"old"))
    assert heads.asked(origin, VOLUME) == Head(second)


def _changed(**answer: object) -> bytes:
    fields = json.loads(GOLDEN.read_bytes())
    fields["answer"].update(answer)
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"version":2,"nonce":"' + NONCE.encode() + b'"}',
        b'{"version":1}',
        b'{"version":1,"nonce":"no"}',
        b'{"version":1,"nonce":"' + NONCE.encode() + b'","answer":[]}',
        b'{"version":1,"nonce":"' + NONCE.encode() + b'","answer":{}}',
        _changed(epoch=-1),
        _changed(epoch=1 << 32),
        _changed(epoch=True),
        _changed(epoch=1e400),
        b'{"version":1,"nonce":"' + NONCE.encode() + b'","owner":7}',
        _changed(content=""),
        _changed(content="QQ=="),
        _changed(content="!"),
        _changed(content=None),
        _changed(content="A" * 8192),
        _changed(sha256="0" * 64),
        _changed(sha256=None),
    ],
)
def test_what_is_no_head_is_none(content: bytes) -> None:
    assert heads.parse(content) is None
