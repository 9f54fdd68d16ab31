"""What of a host state reaches the book."""

import json
import pathlib
from typing import Any

import pytest

from acstor.policy.load_book import DIRECT, LoadBook
from acstor.policy.state_listener import StateEndpoint

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "host-state-v1-full.json"
HOST = "compute-1.example.org"


def message(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text())
    return {**found, **changes}


@pytest.fixture
def book() -> LoadBook:
    return LoadBook(10.0)


@pytest.fixture
def endpoint(book: LoadBook) -> StateEndpoint:
    return StateEndpoint(book)


def test_state_becomes_a_load_and_a_sketch(book: LoadBook, endpoint: StateEndpoint) -> None:
    endpoint.host_state({}, message())
    load = book.collect(5.0).hosts[HOST]
    assert (load.extra_in, load.extra_out, load.moved_in, load.moved_out) == (
        12_500_000, 250_000, 1_000_000, 2_500_000,
    )  # fmt: skip
    assert (load.link, load.load) == (1_250_000_000, 0.125)
    assert book.sketches()[HOST].count == 70_000


def test_states_of_hosts_that_are_down_or_drain_are_heard(
    book: LoadBook, endpoint: StateEndpoint
) -> None:
    endpoint.host_state({}, message(is_up=False))
    endpoint.host_state({}, message(host="h2", is_draining=True))
    assert book.collect(5.0).missing == {HOST: "down", "h2": "draining"}


def test_what_is_no_state_is_counted_and_told_once(
    book: LoadBook, endpoint: StateEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    lies: list[Any] = [
        None, 5, {}, message(version=2), message(extra_out=float("nan")), message(extra_out=-1),
        message(sketch={"count": 1, "hashes": ["x"]}),
    ]  # fmt: skip
    for lie in lies:
        endpoint.host_state({}, lie)
    assert book.counts[DIRECT, "malformed"] == len(lies)
    assert len(caplog.records) == 1
    assert book.collect(5.0).hosts == {}


def test_absurd_state_is_told_with_the_host(
    book: LoadBook, endpoint: StateEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.host_state({}, message(extra_out=1e12, link_bytes_per_s=1e9))
    assert book.counts[DIRECT, "absurd"] == 1
    assert HOST in caplog.text
