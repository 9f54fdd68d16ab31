"""From a host's overload to its relief: counters, broker, policy, ring, all as they run."""

import pathlib

import pytest

from testbed.fixtures import broker as brokers
from testbed.fixtures.broker import broker_in
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.policy_deployment import policy_deployment

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.extended,  # its bound is one of time: wants an idle machine
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

INTERVAL = 4.0
"""Seconds; what a process waits for its turn on a busy machine is to be little of it."""
BUSY = 0.95
BOUND = 3.5
"""Intervals; the target is 3, and what is over is for the processors that other tests share."""


def test_overloaded_host_is_relieved_within_three_intervals(tmp_path: pathlib.Path) -> None:
    with (
        broker_in(tmp_path / "broker") as broker,
        policy_deployment(tmp_path, broker, INTERVAL, quiet_period=3) as deployment,
    ):
        image = deployment.start(3)
        file = deployment.cloud.hosts[0].file(image)
        with CheckedReader(file, image.content, seed=1) as reader:
            first = deployment.relief(1, BUSY)
            assert first <= BOUND * INTERVAL, deployment.cloud.hosts[0].log()
            deployment.links[1].share = 0.05
            deployment.wait_shares(1, 0.25, 0.42)  # and back, when it is over
            reader.wait_reads(20)
        assert reader.errors == []
