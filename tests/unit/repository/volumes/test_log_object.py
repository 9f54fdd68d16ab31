"""Telling whole log objects from damaged ones."""

import pathlib
import uuid

import pytest

from acstor import exception
from acstor.repository import layout
from acstor.repository.volumes import log_object
from acstor.repository.volumes.log_object import check_log_object
from tests.unit.repository.volumes import log_objects

GOLDEN = pathlib.Path(__file__).parents[3] / "golden" / "volume-log-v1.bin"
VOLUME = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
KEY = layout.log_key(VOLUME, 7, 9)
BODY = b"records" * 100


def test_data_planes_own_object_is_whole() -> None:
    assert log_object.LOG_VERSION == 1
    volume_id = str(uuid.UUID(bytes=b"Z" * 16))
    key = layout.log_key(volume_id, 3, 0x0102030405060708)
    check_log_object(key, GOLDEN.read_bytes())


def test_object_of_the_tests_is_whole() -> None:
    check_log_object(KEY, log_objects.log_object(VOLUME, 7, 9, BODY))
    check_log_object(KEY, log_objects.log_object(VOLUME, 7, 9))


@pytest.mark.parametrize("position", [0, 8, 17, 32, 40, 50, 80, 90, 121, 126, 128, 400])
def test_one_damaged_bit_is_found(position: int) -> None:
    content = bytearray(log_objects.log_object(VOLUME, 7, 9, BODY))
    content[position] ^= 0x10
    with pytest.raises(exception.CorruptError, match=KEY):
        check_log_object(KEY, bytes(content))


@pytest.mark.parametrize("size", [0, 8, 127, 128, 300])
def test_object_that_ends_early_is_damaged(size: int) -> None:
    with pytest.raises(exception.CorruptError, match=KEY):
        check_log_object(KEY, log_objects.log_object(VOLUME, 7, 9, BODY)[:size])


def test_object_under_another_key_is_damaged() -> None:
    content = log_objects.log_object(VOLUME, 7, 9, BODY)
    for other in (
        layout.log_key(VOLUME, 8, 9),
        layout.log_key(VOLUME, 7, 10),
        layout.log_key(str(uuid.UUID(int=1)), 7, 9),
        "packs/ab/cd",
    ):
        with pytest.raises(exception.CorruptError, match=other):
            check_log_object(other, content)


def test_object_of_a_newer_release_is_unsupported() -> None:
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        check_log_object(KEY, log_objects.log_object(VOLUME, 7, 9, BODY, version=2))
