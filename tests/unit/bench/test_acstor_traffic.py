"""Extra traffic of the evaluation: the draw, and how it becomes packets."""

import pathlib

import numpy as np
import pytest

from bench.acstor import extra_traffic
from bench.acstor.extra_traffic import FRAME, Flow, Host, Plan
from bench.acstor.settings import EvaluationSettings
from sim import traffic
from sim.exception import ScenarioError
from testbed.exception import TestbedError
from testbed.rates import LinkRate

LINK = 12.5e6


@pytest.mark.parametrize(("mean", "cv"), [(7e6, 0.0), (7e6, 0.8), (7e6, 1.2), (10e6, 1.2)])
def test_hosts_have_exactly_the_mean_and_cv_in_both_directions(mean: float, cv: float) -> None:
    flows = extra_traffic.as_flows(extra_traffic.draw(32, mean, cv, LINK, 5, 1), 1.0)
    sent, received = np.zeros(32), np.zeros(32)
    for flow in flows:
        assert flow.source != flow.target
        sent[flow.source] += flow.rate
        received[flow.target] += flow.rate
    assert np.allclose(sent, received)
    assert float((sent + received).mean()) == pytest.approx(mean, rel=1e-6)
    assert traffic.cv_of(sent + received) == pytest.approx(cv, abs=1e-4)
    assert sent.max() <= LINK * (1 + 1e-9)


def test_draw_is_the_simulators_scaled() -> None:
    settings = EvaluationSettings(rate=LinkRate.parse("100mbit"), mean=70.0, cv=1.2)
    scaled = extra_traffic.draw(
        32, settings.mean_bytes_per_s, 1.2, settings.rate.bytes_per_s, 5, seed=3
    )
    simulated = traffic.by_hosts(70e6, 1.2, 125e6, 32, 5, 3)
    assert settings.scale == 10
    assert np.array_equal(scaled.source, simulated.source)
    assert np.array_equal(scaled.target, simulated.target)
    assert np.allclose(scaled.rate * settings.scale, simulated.rate)


def test_impossible_traffic_is_refused() -> None:
    with pytest.raises(ScenarioError, match="CV of at most"):
        extra_traffic.draw(32, 10e6, 2.0, LINK, 5, 1)


def test_host_that_has_more_than_all_others_is_refused() -> None:
    with pytest.raises(TestbedError, match="more than half"):
        extra_traffic.draw(3, 10e6, 0.9, LINK, 5, 1)


def test_no_traffic_is_no_flows() -> None:
    assert extra_traffic.as_flows(extra_traffic.draw(32, 0.0, 1.2, LINK, 5, 1), 1.0) == []


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_share_of_udp_holds_of_the_bytes(share: float) -> None:
    flows = extra_traffic.as_flows(extra_traffic.draw(32, 7e6, 0.8, LINK, 5, 1), share)
    total = sum(flow.rate for flow in flows)
    udp = sum(flow.rate for flow in flows if not flow.is_tcp)
    assert udp / total == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("rate", [1e3, 1e5, 1e6, 12.5e6, 1e9])
def test_bursts_are_short_and_fit_into_one_call(rate: float) -> None:
    frames = extra_traffic.burst_frames(rate)
    assert 1 <= frames * extra_traffic.PAYLOAD <= 65507
    assert frames == 1 or frames * FRAME / rate <= extra_traffic.BURST_S


def test_plan_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plan.json"
    plan = Plan([Host("n0", "10.0.0.1")], [Flow(0, 1, 5.0, True)], 30.0)
    plan.save(path)
    assert Plan.load(path) == plan


@pytest.mark.parametrize("busy", [1, 3])
def test_traffic_of_busy_hosts_takes_their_links_both_ways_and_little_of_others(busy: int) -> None:
    flows = extra_traffic.as_flows(extra_traffic.of_busy(16, busy, 0.9, LINK), 1.0)
    sent, received = np.zeros(16), np.zeros(16)
    for flow in flows:
        assert (flow.source < busy) != (flow.target < busy)
        sent[flow.source] += flow.rate
        received[flow.target] += flow.rate
    assert np.allclose(sent, received)
    assert np.allclose(sent[:busy], 0.9 * LINK)
    assert np.allclose(sent[busy:], 0.9 * LINK * busy / (16 - busy))


@pytest.mark.parametrize(("name", "value"), [("busy_hosts", 32), ("busy_share", 1.5)])
def test_impossible_busy_hosts_are_refused(name: str, value: float) -> None:
    with pytest.raises(TestbedError, match=name):
        EvaluationSettings(**{name: value})  # type: ignore[arg-type]
