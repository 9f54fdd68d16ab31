"""Ceilometer's samples: the golden files come from a real Ceilometer 27."""

import copy
import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.policy.feeds.ceilometer import samples
from acstor.policy.feeds.ceilometer.bus import is_signed, signature
from acstor.policy.feeds.ceilometer.samples import MeterSample

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
POSTED: list[dict[str, Any]] = json.loads((GOLDEN / "ceilometer-samples-http-v1.json").read_text())
NOTIFIED: list[dict[str, Any]] = json.loads(
    (GOLDEN / "ceilometer-samples-bus-v1.json").read_text()
)["samples"]
AT = 1795298400.125  # 2026-11-21T22:00:00.125 UTC
SECRET = "secret"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def parsed(message: object) -> MeterSample:
    found = samples.from_publisher(message)
    assert found is not None
    return found


def test_what_the_publisher_posts() -> None:
    incoming, other, outgoing = (parsed(POSTED[number]) for number in (0, 1, 2))
    assert incoming.meter == samples.HOST_IN
    assert (incoming.volume, incoming.at, incoming.steady) == (1_000_000.0, AT, None)
    assert incoming.is_incoming
    assert incoming.is_of_host
    assert dict(incoming.metadata) == {
        "host": "compute1", "interface": "bond0", "index": 5, "interfaces": 2,
        "link_bytes_per_s": 2.5e9, "read_at": 4321.5, "moved_bytes": 5000.0,
        "boot_id": "00000000-0000-4000-8000-000000000001",
    }  # fmt: skip
    assert (other.volume, other.metadata["link_bytes_per_s"]) == (300.0, None)
    assert (outgoing.volume, outgoing.metadata["moved_bytes"]) == (2_000_000.0, 6000.0)
    instance = parsed(POSTED[4])
    assert (instance.meter, instance.volume) == (samples.INSTANCE_IN, 7000.0)
    assert not instance.is_of_host
    assert instance.project == "project"


def test_other_meters_are_passed_over() -> None:
    assert POSTED[6]["name"] == "cpu"
    assert samples.from_publisher(POSTED[6]) is None


def test_what_is_on_the_bus_is_the_same_with_monotonic_time() -> None:
    found = [samples.from_bus(message) for message in NOTIFIED]
    assert [each and each.volume for each in found] == [
        each and each.volume for each in map(samples.from_publisher, POSTED)
    ]
    assert [each and each.steady for each in found] == [4321.5] * 4 + [4321.25] * 2 + [None]


def test_signatures_are_ceilometers() -> None:
    for message in NOTIFIED:
        assert message["message_signature"] == signature(message, SECRET)
        assert is_signed(message, SECRET)
        assert not is_signed(message, "other")


@given(st.dictionaries(st.text(max_size=8), json_values), st.text(min_size=1, max_size=8))
def test_signature_of_anything_is_ceilometers(message: dict[str, Any], secret: str) -> None:
    utils = pytest.importorskip("ceilometer.publisher.utils", reason="Ceilometer is not installed")
    assert signature(message, secret) == utils.compute_signature(message, secret)
    signed = {**message, "message_signature": utils.compute_signature(message, secret)}
    assert is_signed(signed, secret)
    assert utils.verify_signature(signed, secret)


@pytest.mark.parametrize(
    "change",
    [
        {"counter_volume": 999_999_999}, {"resource_metadata": {}}, {"message_signature": None},
        {"message_signature": "é" * 64}, {"message_signature": ""}, {"timestamp": "now"},
    ],
)  # fmt: skip
def test_samples_that_were_changed_are_not_signed(change: dict[str, Any]) -> None:
    assert not is_signed({**NOTIFIED[0], **change}, SECRET)


@given(json_values)
def test_anything_is_signed_or_not(value: object) -> None:
    assert not is_signed(value, SECRET)
    assert not is_signed({"message_signature": "x", "value": value}, SECRET)


def test_objects_in_objects_without_end_are_not_signed() -> None:
    message: dict[str, Any] = {"message_signature": "x"}
    for _ in range(5000):
        message = {"message_signature": "x", "inner": message}
    assert not is_signed(message, SECRET)


@pytest.mark.parametrize(
    "change",
    [
        {"volume": -1}, {"volume": float("nan")}, {"volume": float("inf")}, {"volume": True},
        {"volume": "5"}, {"volume": None}, {"volume": 10**30}, {"volume": 10**400},
        {"type": "gauge"}, {"type": None}, {"name": 5}, {"resource_id": None}, {"resource_id": ""},
        {"resource_id": "x" * 256}, {"resource_metadata": None}, {"resource_metadata": []},
        {"timestamp": None}, {"timestamp": "yesterday"}, {"timestamp": "9999-99-99T00:00:00"},
        {"timestamp": 5},
    ],
)  # fmt: skip
def test_malformed_samples_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(exception.InvalidError):
        samples.from_publisher({**POSTED[0], **change})


@given(json_values, st.sampled_from(sorted(POSTED[0])))
def test_any_value_is_taken_or_refused(value: object, name: str) -> None:
    message = copy.deepcopy(POSTED[0])
    message[name] = value
    for each in (message, value):
        try:
            samples.from_publisher(each)
        except exception.InvalidError:
            continue


@pytest.mark.parametrize(
    "text",
    ["2026-11-21T22:00:00.125", "2026-11-21T22:00:00.125000+00:00", "2026-11-21T23:00:00.125+01:00",
     "2026-11-21T22:00:00.125Z"],
)  # fmt: skip
def test_time_stamps_are_utc_unless_they_say_otherwise(text: str) -> None:
    assert parsed({**POSTED[0], "timestamp": text}).at == AT
