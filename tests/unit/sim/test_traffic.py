"""Extra traffic has the mean and the CV that it was asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import traffic
from sim.exception import ScenarioError

LINK = 1.25e8


@settings(max_examples=60, deadline=None)
@given(st.floats(1e6, 2e8), st.floats(0.0, 1.5), st.integers(8, 256), st.integers(0, 10_000))
def test_loads_have_exactly_the_mean_and_cv(mean: float, cv: float, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    if cv > traffic.cv_max(mean, 2 * LINK, count):
        with pytest.raises(ScenarioError, match="have a CV of at most"):
            traffic.exact_loads(mean, cv, 2 * LINK, count, random)
        return
    loads = traffic.exact_loads(mean, cv, 2 * LINK, count, random)
    assert loads.min() >= 0
    assert loads.max() <= 2 * LINK * (1 + 1e-9)
    assert loads.mean() == pytest.approx(mean, rel=1e-6)
    assert traffic.cv_of(loads) == pytest.approx(cv, abs=1e-4)


@pytest.mark.parametrize(("mean", "cv"), [(40e6, 0.4), (70e6, 1.2), (100e6, 1.2), (20e6, 0.0)])
def test_flows_add_up_to_the_loads(mean: float, cv: float) -> None:
    flows = traffic.by_hosts(mean, cv, LINK, 32, 5, seed=4)
    loads = flows.host_traffic(32)
    assert loads.mean() == pytest.approx(mean, rel=1e-6)
    assert traffic.cv_of(loads) == pytest.approx(cv, abs=1e-4)
    assert (flows.source != flows.target).all()
    assert np.bincount(flows.source, flows.rate, 32).max() <= LINK * (1 + 1e-9)


def test_same_seed_same_flows() -> None:
    one, two = (traffic.by_hosts(7e7, 0.8, LINK, 32, 5, seed=9) for _ in range(2))
    assert (one.rate == two.rate).all()
    other = traffic.by_hosts(7e7, 0.8, LINK, 32, 5, seed=10)
    assert len(other.rate) != len(one.rate) or (one.rate != other.rate).any()


def test_machines_talk_with_others_and_hosts_have_the_mean_and_about_the_cv() -> None:
    hosts = np.arange(256)
    flows = traffic.by_vms(2e7, 0.8, LINK, hosts, 256, seed=2)
    loads = flows.host_traffic(256)
    assert loads.mean() == pytest.approx(2e7, rel=1e-6)
    assert traffic.cv_of(loads) == pytest.approx(0.8, rel=0.05)
    assert np.bincount(flows.source, minlength=256).max() <= traffic.PARTNERS_MAX


@settings(max_examples=60, deadline=None)
@given(st.floats(1e6, 1.5e8), st.floats(0.0, 1.2), st.floats(0.0, 1.0), st.integers(0, 10_000))
def test_uneven_hosts_send_what_others_receive(
    mean: float, cv: float, asymmetry: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    loads = traffic.exact_loads(mean, min(cv, traffic.cv_max(mean, 2 * LINK, 32)) * 0.99,
                                2 * LINK, 32, random)  # fmt: skip
    sent = traffic.split(loads, asymmetry, LINK, random)
    received = loads - sent
    assert sent.sum() == pytest.approx(received.sum(), rel=1e-9)
    assert max(sent.max(), received.max()) <= LINK * (1 + 1e-6)
    assert min(sent.min(), received.min()) >= -1e-6
    assert (np.abs(sent - received) <= asymmetry * loads + 1e-3).all()


def test_uneven_traffic_keeps_mean_and_cv_and_is_one_sided() -> None:
    flows = traffic.by_hosts(70e6, 0.8, LINK, 32, 5, 4, asymmetry=0.8)
    loads = flows.host_traffic(32)
    assert loads.mean() == pytest.approx(70e6, rel=1e-6)
    assert traffic.cv_of(loads) == pytest.approx(0.8, abs=1e-4)
    sent = np.bincount(flows.source, flows.rate, 32)
    difference = np.abs(2 * sent - loads) / loads
    assert 0.4 < np.median(difference) <= 0.8 + 1e-6


def test_no_share_is_refused() -> None:
    with pytest.raises(ScenarioError, match="asymmetry"):
        traffic.by_hosts(70e6, 0.8, LINK, 32, 5, 4, asymmetry=1.5)
    with pytest.raises(ScenarioError, match="rack_share"):
        traffic.Locality(1.5, 8)


def test_partners_are_in_the_own_rack_as_often_as_asked_for() -> None:
    hosts = np.arange(256).repeat(5)
    flows = traffic.by_vms(2e7, 0.4, LINK, hosts, 256, 2, traffic.Locality(0.8, 8))
    is_near = flows.source // 8 == flows.target // 8
    assert is_near.mean() == pytest.approx(0.8, abs=0.02)
    assert (flows.source != flows.target).all()
    everywhere = traffic.by_vms(2e7, 0.4, LINK, hosts, 256, 2)
    assert (everywhere.source // 8 == everywhere.target // 8).mean() < 0.1
