"""Usage records of the hosts in the origin."""

import dataclasses
import json
import pathlib
import uuid

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository.images import usage
from acstor.repository.images.usage import Usage, base_name, forget_usage, read_all, read_usage
from testbed.fixtures.usage_records import write_usage

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
ONE, TWO, THREE = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
RECORD = Usage(
    images={ONE: ("1b6b4f0e-6a05-4f31-93f4-0b3a9ff5d2c1",), TWO: ()},
    bases=frozenset({base_name(THREE)}),
    manifests={"ab" * 32: ONE},
    sequence=41,
    time="2026-11-23T07:00:00+00:00",
    boot="4f7ff6a2-8d3f-4a1c-9be0-0d2f7cf0a5b7",
    agent="00112233445566778899aabbccddeeff",
    round=7,
    epoch="0123456789abcdef0123456789abcdef",
    speaks_within=35.0,
)


def test_usage_version_requires_update() -> None:
    assert usage.USAGE_VERSION == 2
    golden = (GOLDEN / "usage-v2.json").read_bytes()
    assert RECORD.encode() == golden
    assert Usage.parse(golden, "h1") == RECORD


def test_address_of_the_data_plane_is_in_the_record_where_it_is_known() -> None:
    content = dataclasses.replace(RECORD, peer_address="10.0.0.1:7420").encode()
    assert json.loads(content)["peer_address"] == "10.0.0.1:7420"
    assert Usage.parse(content, "h1").peer_address == "10.0.0.1:7420"


def test_usage_of_the_release_before_is_read() -> None:
    found = Usage.parse((GOLDEN / "usage-v1.json").read_bytes(), "h1")
    assert found == Usage({ONE: (), TWO: ()})
    assert (found.sequence, found.round) == (0, 0)


def test_image_is_used_by_its_id_or_by_the_name_of_its_base() -> None:
    assert [RECORD.uses(image) for image in (ONE, TWO, THREE)] == [True, True, True]
    assert not dataclasses.replace(RECORD, bases=frozenset()).uses(THREE)


def test_usage_of_all_hosts_is_read() -> None:
    origin = MemoryOrigin()
    assert read_usage(origin, "h1") is None
    one = write_usage(origin, "h1", [ONE, TWO])
    two = write_usage(origin, "h2")
    assert read_all(origin) == {"h1": one, "h2": two}


def test_host_that_is_forgotten_uses_nothing() -> None:
    origin = MemoryOrigin()
    write_usage(origin, "h1", [ONE])
    assert forget_usage(origin, "h1")
    assert not forget_usage(origin, "h1")
    assert read_all(origin) == {}


def test_no_more_instances_are_named_than_help() -> None:
    names = tuple(f"{number:036}" for number in range(usage.INSTANCES_MAX + 1))
    found = Usage.parse(Usage({ONE: names}).encode(), "h1")
    assert found.images == {ONE: names[: usage.INSTANCES_MAX]}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "images": "all"}',
        b'{"version": 1, "images": ["no uuid"]}', b'{"version": 1, "images": [7]}',
        b'{"version": 2, "images": {}}',
        *(
            RECORD.encode().replace(former, wrong)
            for former, wrong in (
                (b'"sequence": 41', b'"sequence": -1'), (b'"round": 7', b'"round": true'),
                (b'"round": 7', b'"round": "7"'), (b'"' + b"ab" * 32, b'"' + b"ab" * 31),
                (b'"images": {', b'"images": {"x": [], '), (b'"bases": [', b'"bases": ["x", '),
            )
        ),
    ],
)  # fmt: skip
def test_malformed_usage_is_never_taken_for_none(content: bytes) -> None:
    origin = MemoryOrigin()
    origin.swap_ref("usage/h1", None, content)
    with pytest.raises(exception.CorruptError, match="h1"):
        read_all(origin)


def test_usage_of_a_newer_release_is_unsupported() -> None:
    with pytest.raises(exception.UnsupportedError):
        Usage.parse(b'{"version": 3, "images": []}', "h1")
