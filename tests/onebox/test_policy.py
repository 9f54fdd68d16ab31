"""Policy services on the one-box's controller: requests leave a busy host, no server waits."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acstor.cluster.ring.decision import DECISION_REF
from acstor.cluster.ring.published_ring import read_ring
from acstor.origin import ref_replacement
from acstor.origin.posix import PosixOrigin
from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import FLAVOR, Instances
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.policy_services import PolicyService, decision_in, extra_traffic, running
from testbed.onebox.configuration import acstor

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

INTERVAL = 2.0
METRICS_PORT = 9474
SHARE = 0.9
TRAFFIC_SECONDS = 300
TIMEOUT = 90.0


class Cloud:
    """Ring and decision that are published to the hosts of the one-box."""

    def __init__(self, box: RunningBox) -> None:
        self._box = box
        self.origin = box.directory.shared / "origin"

    def ring(self) -> tuple[int, dict[str, int]]:
        """Return generation and v-nodes by host."""
        found = read_ring(PosixOrigin(str(self.origin)))
        assert found is not None
        return found.ring.generation, {host.name: host.vnodes for host in found.ring.hosts}

    def forget_decision(self) -> None:
        """Have equal weights again, as an operator who does without a policy service."""
        ref_replacement.replace(PosixOrigin(str(self.origin)), DECISION_REF, None)
        wait("all hosts have equal shares", lambda: is_even(self.ring()[1]))

    def in_use(self, generation: int) -> bool:
        """Return whether every data plane looks up in this generation, or a later one."""
        status = [host.ask("status") for host in self._box.hosts]
        return all(each and (each["ring_generation"] or 0) >= generation for each in status)


def wait(what: str, probe: Callable[[], Any]) -> Any:
    return wait_for(what, probe, TIMEOUT, 0.2)


@pytest.fixture
def cloud(box: RunningBox) -> Iterator[Cloud]:
    found = Cloud(box)
    yield found
    found.forget_decision()


@pytest.fixture
def policies(box: RunningBox, cloud: Cloud) -> Iterator[list[PolicyService]]:
    """Two on the controller, with its configuration: one leads, the other follows."""
    folder = box.directory.shared / "policies"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    options = {
        "policy": {"interval": str(INTERVAL)},
        "coordination": {"heartbeat_interval": "0.5", "member_timeout": "5"},
    }
    found = [
        PolicyService(
            box, folder, f"policy-{n}", METRICS_PORT + n, options, [acstor.CONFIG_FILE]
        )
        for n in range(2)
    ]  # fmt: skip
    with running(*found):
        yield found
    shutil.rmtree(folder)


def leader_of(policies: list[PolicyService]) -> PolicyService | None:
    """Return the one that leads."""
    leading = [each for each in policies if each.metric("acstor_policy_state", state="leading")]
    return leading[0] if len(leading) == 1 else None


def test_requests_leave_a_busy_host_and_no_server_needs_the_policy(
    box: RunningBox,
    cloud: Cloud,
    policies: list[PolicyService],
    tiny: Template,
    unseen: Template,
    instances: Instances,
) -> None:
    busy, other = box.hosts
    server = instances.create(tiny, host=busy)
    first_check = server.checked(boot=1)
    leader: PolicyService = wait("one leads", lambda: leader_of(policies))
    generation, before = cloud.ring()
    assert is_even(before), "without a decision all hosts have equal shares"
    with extra_traffic(busy, SHARE, TRAFFIC_SECONDS):
        leader.wait("a decision", leader.decisions, TIMEOUT)
        shown, (row,) = leader.command("show"), leader.command("explain", busy.name)
        assert shown["weights"][busy.name] < 1 < shown["weights"][other.name]
        assert row["Part"] == "gives"
        assert row["Used"] > 0.8
        new, after = wait("a new ring", lambda: newer(cloud, generation))
        assert after[busy.name] < before[busy.name]
        assert all(after[name] > before[name] for name in after if name != busy.name)
        wait("every data plane uses it", lambda: cloud.in_use(new))
        # An image that no host has: its chunks are fetched as the new ring says.
        assert booted_as_typed(box, unseen, instances) in box.hosts

    decision = decision_in(cloud.origin)
    assert decision is not None
    leader.signal(signal.SIGKILL)
    follower = next(each for each in policies if each is not leader)
    follower.wait("it leads", lambda: leader_of([follower]), TIMEOUT)
    taken_over = decision_in(cloud.origin)
    assert taken_over is not None
    assert taken_over.weights == decision.weights
    follower.signal(signal.SIGKILL)
    wait("no policy service runs", lambda: not any(each.is_running for each in policies))
    generation, vnodes = cloud.ring()
    later = server.checked(after=first_check)
    server.checked(after=later)
    assert not server.could_not_read()
    assert cloud.ring() == (generation, vnodes)


def is_even(vnodes: dict[str, int]) -> bool:
    """Return whether all hosts have the same number, as far as it can be divided."""
    return max(vnodes.values()) - min(vnodes.values()) <= len(vnodes)


def newer(cloud: Cloud, generation: int) -> tuple[int, dict[str, int]] | None:
    found = cloud.ring()
    return found if found[0] > generation else None


def booted_as_typed(box: RunningBox, template: Template, instances: Instances) -> ComputeHost:
    """Create a server as a user does, and have it read all of its files; return its host."""
    text = box.openstack(
        "server", "create", "--image", template.id, "--flavor", FLAVOR, "--nic", "none", "--wait",
        "typed", "-f", "json",
    )  # fmt: skip
    server = instances.adopt(json.loads(text)["id"], template)
    server.checked(boot=1)
    server.assert_on_link()
    return server.host
