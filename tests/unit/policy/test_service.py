"""A policy service's steps: what it does when dependencies fail, with everything else real."""

import math
import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.cluster.decision_journal import read_records
from acstor.cluster.leader_states import LeaderState
from acstor.cluster.ring.decision import DECISION_REF, Decision, read_decision
from acstor.cluster.ring.published_ring import RingReference
from acstor.conf import loading
from acstor.native import RingHost, build_ring
from acstor.origin.base import Origin
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.posix import PosixOrigin
from acstor.policy.load_samples import DIRECT, LoadSamples, Sample
from acstor.policy.metrics import PolicyMetrics
from acstor.policy.pins import PINS_REF, Pins
from acstor.policy.replay import replay
from acstor.policy.service import PolicyService
from acstor.repository.repository import Repository
from testbed.fixtures.conditions import wait_for

LINK = 125e6
INTERVAL = 10.0


class Deployment:
    """An origin, a directory for coordination, and services whose steps the test makes."""

    def __init__(self, path: pathlib.Path, origin: FaultyOrigin) -> None:
        self.path = path
        self.origin = origin
        self.open_origin: Callable[[], Origin] = lambda: origin
        self.sequence = 0
        self.services: list[tuple[PolicyService, LoadSamples, PolicyMetrics]] = []
        self.announced: list[bool] = []
        self.now = 1000.0

    def add(self) -> PolicyService:
        number = len(self.services)
        config = self.path / f"{number}.conf"
        config.write_text(
            f"[DEFAULT]\nhost = c{number}\nstate_path = {self.path}/{number}\n"
            f"[coordination]\nbackend_url = file://{self.path}/coordination\n"
            "heartbeat_interval = 0.1\n[policy]\ninterval = 10\n"
        )
        conf: cfg.ConfigOpts = loading.load("acstor-policy", ["--config-file", str(config)])
        load_samples, metrics = LoadSamples(INTERVAL, lambda: self.now), PolicyMetrics()
        service = PolicyService(
            conf, open_origin=lambda: self.open_origin(), load_samples=load_samples,
            metrics=metrics,
            announce=self.announced.append,
        )  # fmt: skip
        self.services.append((service, load_samples, metrics))
        service._leadership.start()
        return service

    def see(self, *, busy: float = 0.9) -> None:
        """Have all services hear of four hosts, one of them busy, and take a step."""
        self.sequence += 1
        self.now += INTERVAL
        for service, load_samples, _ in self.services:
            for number in range(4):
                extra = busy * LINK if number == 0 else 1e6
                load_samples.note(
                    Sample(f"h{number}", DIRECT, 0.0, 0.0, extra, link=LINK,
                           sequence=self.sequence)
                )  # fmt: skip
            service.reconcile()

    def journal(self, number: int = 0) -> list[dict[str, object]]:
        path = self.path / str(number) / "policy" / "journal.jsonl"
        return list(read_records(str(path))) if path.exists() else []

    def in_force(self) -> Decision | None:
        published = read_decision(self.origin)
        return published.decision if published else None


@pytest.fixture
def origin() -> FaultyOrigin:
    inner = MemoryOrigin()
    Repository.init(inner)
    return FaultyOrigin(inner)


@pytest.fixture
def deployment(tmp_path: pathlib.Path, origin: FaultyOrigin) -> Iterator[Deployment]:
    found = Deployment(tmp_path, origin)
    yield found
    for service, _, _ in found.services:
        service._leadership.stop(10)


@pytest.fixture
def leader(deployment: Deployment) -> PolicyService:
    service = deployment.add()
    wait_for("it holds the lock", lambda: service._leadership.is_leader)
    service.refresh()
    assert service.state is LeaderState.LEADING
    return service


def test_leader_publishes_journals_and_announces(
    deployment: Deployment, leader: PolicyService
) -> None:
    for _ in range(2):
        deployment.see()
    decision = deployment.in_force()
    assert decision is not None
    assert (decision.term, decision.sequence, decision.leader) == (1, 2, leader.name)
    assert decision.weights["h0"] < 3000
    recorded, published = deployment.journal()
    assert (recorded["kind"], published["kind"]) == ("decision", "published")
    assert replay(recorded).differences == []
    assert deployment.announced == [False]  # only who publishes rings has to look
    metrics = deployment.services[0][2].text()
    assert 'acstor_policy_state{state="leading"} 1.0' in metrics
    assert 'acstor_policy_decisions_total{reason="overload"} 1.0' in metrics
    assert leader.is_healthy()


def test_who_stands_by_knows_enough_to_decide_at_once(
    deployment: Deployment, leader: PolicyService
) -> None:
    second = deployment.add()
    deployment.see()
    assert second.state is LeaderState.STANDBY
    leader._leadership.stop(10)
    leader.refresh()
    wait_for("the other one holds the lock", lambda: second._leadership.is_leader)
    deployment.see()
    decision = deployment.in_force()
    assert decision is not None
    assert (decision.term, decision.leader) == (2, second.name)
    assert decision.weights["h0"] < 3000
    assert deployment.journal(0) == []


def test_who_stands_by_decides_what_a_leader_did_not_live_to(
    deployment: Deployment, leader: PolicyService, origin: FaultyOrigin
) -> None:
    """It came to the same decision, without effect; that is no reason to cool down."""
    second = deployment.add()
    deployment.see()
    origin.faults.append(Fault(Operation.SWAP_REF, Effect.ERROR))
    deployment.see()  # the leader is killed at its write
    origin.faults.clear()
    leader._leadership.stop(10)
    leader.refresh()
    deployment.services.pop(0)
    wait_for("the other one holds the lock", lambda: second._leadership.is_leader)
    deployment.see()
    decision = deployment.in_force()
    assert decision is not None
    assert decision.leader == second.name
    assert decision.weights["h0"] < 3000


def test_who_stands_by_cools_down_with_the_leader(
    deployment: Deployment, leader: PolicyService
) -> None:
    second = deployment.add()
    for _ in range(3):
        deployment.see()
    assert deployment.announced == [False]
    assert second._maker.history.cool_down > 0
    assert second._maker.history.cool_down <= leader._maker.history.cool_down + 1


def test_paused_leader_changes_nothing(deployment: Deployment, leader: PolicyService) -> None:
    deployment.see()
    # Another one took over while this one was paused between reading and writing.
    swap = deployment.origin.swap_ref
    newer = Decision(2, 9, "another", 0, "equation1", {"h1": 10_000})

    def pause(name: str, expected: str | None, content: bytes | None) -> str | None:
        ref = deployment.origin.get_ref(DECISION_REF)
        assert ref is not None
        swap(DECISION_REF, ref.token, newer.encode())
        return swap(name, expected, content)

    deployment.origin.swap_ref = pause  # type: ignore[method-assign]
    deployment.see()
    deployment.origin.swap_ref = swap  # type: ignore[method-assign]
    assert deployment.in_force() == newer
    assert leader.state is LeaderState.DEPOSED
    assert [record["kind"] for record in deployment.journal()] == ["decision", "refused"]
    deployment.see()
    assert deployment.in_force() == newer


def test_service_that_starts_before_the_origin_is_mounted_waits_for_it(
    deployment: Deployment, tmp_path: pathlib.Path
) -> None:
    mount_point = tmp_path / "mount point"
    mount_point.mkdir()
    deployment.open_origin = lambda: PosixOrigin(str(mount_point))
    service = deployment.add()
    wait_for("the lock", lambda: service._leadership.is_leader or None)
    for _ in range(2):
        deployment.see()
        assert "the origin holds no repository: mount" in service.problems["origin"]
        assert service.state is LeaderState.STANDBY
    assert list(mount_point.iterdir()) == []
    origin = Repository.init(PosixOrigin(str(mount_point))).origin
    deployment.see()
    assert "origin" not in service.problems
    assert service.state is LeaderState.LEADING
    assert read_decision(origin) is not None


def test_origin_that_is_away_stops_deciding_and_nothing_else(
    deployment: Deployment, leader: PolicyService, origin: FaultyOrigin
) -> None:
    deployment.see()
    origin.faults.append(Fault(Operation.GET_REF, Effect.ERROR))
    deployment.see()
    assert "origin" in leader.problems
    assert not leader.is_healthy()
    origin.faults.clear()
    for _ in range(2):
        deployment.see()
    decision = deployment.in_force()
    assert decision is not None
    assert decision.weights["h0"] < 3000
    assert leader.problems == {}


@pytest.mark.parametrize("effect", [Effect.ERROR, Effect.LOST_ANSWER])
def test_write_that_fails_is_decided_again(
    deployment: Deployment, leader: PolicyService, origin: FaultyOrigin, effect: Effect
) -> None:
    deployment.see()
    origin.faults.append(Fault(Operation.SWAP_REF, effect))
    deployment.see()
    origin.faults.clear()
    assert "origin" in leader.problems
    deployment.see()
    decision = deployment.in_force()
    assert decision is not None
    assert decision.weights["h0"] < 3000
    assert (decision.term, decision.sequence) == (1, 2)  # once
    assert leader.state is LeaderState.LEADING


def test_restart_without_state_goes_on_from_the_decision_in_force(
    deployment: Deployment, leader: PolicyService
) -> None:
    for _ in range(2):
        deployment.see()
    before = deployment.in_force()
    assert before is not None
    leader._leadership.stop(10)
    leader.refresh()
    deployment.services.clear()
    again = deployment.add()
    wait_for("it holds the lock", lambda: again._leadership.is_leader)
    for _ in range(6):
        deployment.see()
    after = deployment.in_force()
    assert after is not None
    assert after.term == before.term + 1
    assert after.weights == before.weights  # the same load asks for nothing else


def test_pins_are_followed_and_malformed_ones_told(
    deployment: Deployment, leader: PolicyService, origin: FaultyOrigin
) -> None:
    token = origin.swap_ref(PINS_REF, None, Pins({"h1": 2500}).encode())
    deployment.see(busy=0.1)
    decision = deployment.in_force()
    assert decision is not None
    assert decision.weights["h1"] == 2500
    origin.swap_ref(PINS_REF, token, b"{")
    deployment.see(busy=0.1)
    assert "malformed" in leader.problems["pins"]
    found = deployment.in_force()
    assert found is not None
    assert found.weights["h1"] == 2500


def publish_ring(origin: FaultyOrigin, count: int) -> None:
    hosts = [RingHost(f"h{n}", f"10.0.0.{n}:1", 100) for n in range(count)]
    reference = RingReference(origin)
    before = reference.read()
    reference.replace(before, build_ring(hosts, 64, 1, before.ring if before else None))


def test_hosts_of_the_ring_that_nobody_heard_of_are_silent_and_those_that_left_are_gone(
    deployment: Deployment, leader: PolicyService, origin: FaultyOrigin
) -> None:
    publish_ring(origin, 9)  # five of them are never heard of
    for _ in range(4):
        deployment.see()
    assert 'reason="blind"} 4.0' in deployment.services[0][2].text()
    publish_ring(origin, 4)  # half of the hosts left at once
    for _ in range(2):
        deployment.see()
    decision = deployment.in_force()
    assert decision is not None
    assert decision.weights.keys() == {"h0", "h1", "h2", "h3"}


def test_journal_that_cannot_be_written_stops_nothing(
    deployment: Deployment, leader: PolicyService
) -> None:
    (deployment.path / "0").mkdir(exist_ok=True)
    (deployment.path / "0" / "policy").write_text("in the way")
    for _ in range(2):
        deployment.see()
    assert "journal" in leader.problems
    decision = deployment.in_force()
    assert decision is not None
    assert decision.weights["h0"] < 3000


class Running:
    """A service that runs on a thread, and three hosts of which one is busy."""

    def __init__(self, deployment: Deployment, interval: float) -> None:
        config = deployment.path / "run.conf"
        config.write_text(
            f"[DEFAULT]\nhost = c9\nstate_path = {deployment.path}/run\n"
            f"[coordination]\nbackend_url = file://{deployment.path}/coordination\n"
            f"heartbeat_interval = 0.1\n[policy]\ninterval = {interval}\n"
        )
        conf = loading.load("acstor-policy", ["--config-file", str(config)])
        self.now = 0.0
        self.load_samples = LoadSamples(interval, lambda: self.now)
        self.service = PolicyService(
            conf,
            open_origin=lambda: deployment.origin,
            load_samples=self.load_samples,
            metrics=PolicyMetrics(),
        )
        self._sequence = 0
        self._thread = threading.Thread(target=self.service.run)

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.service.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()
        assert self.service.state is LeaderState.STOPPED

    def tell(self, seconds: float, share: float = 0.9) -> None:
        """Have the hosts tell how they are, some seconds after they last did."""
        self.now += seconds
        self._sequence += 1
        for name, extra in (("h0", share * LINK), ("h1", 0.0), ("h2", 0.0)):
            self.load_samples.note(
                Sample(name, DIRECT, 0.0, 0.0, extra, link=LINK, sequence=self._sequence)
            )


def is_relieved(deployment: Deployment) -> bool:
    decision = deployment.in_force()
    return decision is not None and bool(decision.weights) and decision.weights["h0"] < 3000


def test_run_claims_decides_and_ends(deployment: Deployment) -> None:
    with Running(deployment, 0.1) as running:

        def told() -> bool:
            running.tell(0.1)
            return is_relieved(deployment)

        wait_for("a decision", told, interval=0.02)


def test_second_report_of_overload_is_decided_on_at_once(deployment: Deployment) -> None:
    """An hour before the next collection is due."""
    with Running(deployment, 3600.0) as running:
        service = running.service
        wait_for("it leads", lambda: service.state is LeaderState.LEADING)
        service._collected_at -= 3600.0  # the last collection is a while ago
        running.tell(3600.0, 0.1)
        running.tell(3600.0)
        assert math.isinf(service._early_due()), "once is not enough"
        running.tell(3600.0)
        wait_for("a decision", lambda: is_relieved(deployment))
        assert service._maker.history.cool_down == 2
        former = deployment.in_force()
        for share in (0.1, 0.9, 0.9):
            running.tell(3600.0, share)
        assert math.isinf(service._early_due()), "cool-downs last as long as they should"
        assert deployment.in_force() == former


def test_topology_is_required_where_it_is_needed(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "acstor.conf"
    config.write_text("[policy]\nthresholds = algorithm2\n")
    conf = loading.load("acstor-policy", ["--config-file", str(config)])
    with pytest.raises(exception.ConfigurationError, match="topology"):
        PolicyService(
            conf, open_origin=MemoryOrigin, load_samples=LoadSamples(10.0), metrics=PolicyMetrics()
        )
