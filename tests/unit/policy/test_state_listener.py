"""Host states and their way into the load history."""

import json
import pathlib
from typing import Any

import pytest

from acstor.policy.load_samples import CARRY, DIRECT, LoadSamples
from acstor.policy.state_listener import StateEndpoint

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "host-state-v1-full.json"
HOST = "compute-1.example.org"


def message(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text())
    return {**found, **changes}


@pytest.fixture
def load_samples() -> LoadSamples:
    return LoadSamples(10.0)


@pytest.fixture
def endpoint(load_samples: LoadSamples) -> StateEndpoint:
    return StateEndpoint(load_samples)


def test_state_becomes_a_load_and_a_sketch(
    load_samples: LoadSamples, endpoint: StateEndpoint
) -> None:
    endpoint.host_state({}, message())
    load = load_samples.collect(5.0).hosts[HOST]
    assert (load.extra_in, load.extra_out, load.moved_in, load.moved_out) == (
        12_500_000, 250_000, 1_000_000, 2_500_000,
    )  # fmt: skip
    assert (load.link, load.load) == (1_250_000_000, 0.125)
    assert load_samples.sketches()[HOST].count == 70_000


def test_states_of_hosts_that_are_down_or_drain_are_heard(
    load_samples: LoadSamples, endpoint: StateEndpoint
) -> None:
    endpoint.host_state({}, message(is_up=False))
    endpoint.host_state({}, message(host="h2", is_draining=True))
    assert load_samples.collect(5.0).missing == {HOST: "down", "h2": "draining"}


def test_what_is_no_state_is_counted_and_told_once(
    load_samples: LoadSamples, endpoint: StateEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    lies: list[Any] = [
        None, 5, {}, message(version=2), message(extra_out=float("nan")), message(extra_out=-1),
        message(sketch={"count": 1, "hashes": ["x"]}),
    ]  # fmt: skip
    for lie in lies:
        endpoint.host_state({}, lie)
    assert load_samples.counts[DIRECT, "malformed"] == len(lies)
    assert len(caplog.records) == 1
    assert load_samples.collect(5.0).hosts == {}


def test_absurd_state_is_told_with_the_host(
    load_samples: LoadSamples, endpoint: StateEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.host_state({}, message(extra_out=1e12, link_bytes_per_s=1e9))
    assert load_samples.counts[DIRECT, "absurd"] == 1
    assert HOST in caplog.text


@pytest.mark.parametrize("skew", [3600, -3600])
@pytest.mark.parametrize("own_skew", [0, 3600, -3600])
def test_clocks_that_are_off_silence_nobody(skew: int, own_skew: int) -> None:
    """A sequence number is the host's clock when it began; only its order counts."""
    now = [0.0]
    load_samples = LoadSamples(10.0, lambda: now[0], lambda: now[0] + own_skew)
    endpoint = StateEndpoint(load_samples, lambda: now[0], lambda: now[0] + own_skew)
    for number in range(10):
        now[0] = 10.0 * number
        right = 1_800_000_000_000 + int(now[0] * 1000)
        endpoint.host_state({}, message(sequence=right))
        endpoint.host_state({}, message(sequence=right + skew * 1000, host="h2"))
        assert sorted(load_samples.collect(now[0]).hosts) == [HOST, "h2"]
    assert load_samples.counts == {(DIRECT, "taken"): 20}


def test_agent_started_again_after_its_clock_was_put_back_is_heard_in_time() -> None:
    """Its numbers begin an hour lower; until its last state is too old they are taken for late."""
    now = [0.0]
    load_samples = LoadSamples(10.0, lambda: now[0])
    endpoint = StateEndpoint(load_samples, lambda: now[0])
    endpoint.host_state({}, message(sequence=1_800_003_600_000))
    found = []
    for number in range(1, CARRY + 3):
        now[0] = 10.0 * number
        endpoint.host_state({}, message(sequence=1_800_000_000_000 + number, extra_out=5.0))
        collection = load_samples.collect(now[0])
        found.append(HOST in collection.hosts and collection.hosts[HOST].extra_out == 5.0)
    assert found == [False] * CARRY + [True] * 2
    assert load_samples.counts == {(DIRECT, "taken"): 3, (DIRECT, "old"): CARRY}
