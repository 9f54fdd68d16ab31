"""Which images the hosts use, as it is written in the origin."""

import pathlib
import uuid

import pytest

from acstor import exception
from acstor.origin.faulty import FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository import usage
from acstor.repository.usage import Usage, forget_usage, read_all, read_usage, write_usage

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "usage-v1.json"
IMAGES = frozenset(str(uuid.UUID(int=number)) for number in (1, 2))


def test_usage_version_requires_update() -> None:
    assert usage.USAGE_VERSION == 1
    assert Usage(IMAGES).encode() == GOLDEN.read_bytes()
    assert Usage.parse(GOLDEN.read_bytes(), "h1") == Usage(IMAGES)


def test_usage_of_all_hosts_is_read() -> None:
    origin = FaultyOrigin(MemoryOrigin())
    assert read_usage(origin, "h1") is None
    assert write_usage(origin, "h1", IMAGES)
    assert write_usage(origin, "h2", [])
    assert read_all(origin) == {"h1": Usage(IMAGES), "h2": Usage()}


def test_usage_is_written_only_when_it_changed() -> None:
    origin = FaultyOrigin(MemoryOrigin())
    assert write_usage(origin, "h1", IMAGES)
    assert not write_usage(origin, "h1", IMAGES)
    assert origin.calls[Operation.SWAP_REF] == 1
    assert write_usage(origin, "h1", [])
    assert read_usage(origin, "h1") == Usage()


def test_host_that_is_forgotten_uses_nothing() -> None:
    origin = MemoryOrigin()
    write_usage(origin, "h1", IMAGES)
    assert forget_usage(origin, "h1")
    assert not forget_usage(origin, "h1")
    assert read_all(origin) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "images": "all"}',
        b'{"version": 1, "images": ["no uuid"]}', b'{"version": 1, "images": [7]}',
    ],
)  # fmt: skip
def test_malformed_usage_is_never_taken_for_none(content: bytes) -> None:
    origin = MemoryOrigin()
    origin.swap_ref("usage/h1", None, content)
    with pytest.raises(exception.CorruptError, match="h1"):
        read_all(origin)


def test_usage_of_a_newer_release_is_unsupported() -> None:
    with pytest.raises(exception.UnsupportedError):
        Usage.parse(b'{"version": 2, "images": []}', "h1")
