"""Policy services as they run: real processes, a real broker, one leader at a time."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from acstor.cluster.decision_journal import read_records
from acstor.cluster.ring.decision import Decision, read_decision
from acstor.cluster.ring.published_ring import RingReference
from acstor.cmd.daemon import EXIT_CONFIGURATION
from acstor.conf import loading
from acstor.native import RingHost, build_ring
from acstor.origin.posix import PosixOrigin
from acstor.policy.replay import replay
from acstor.repository.repository import Repository
from acstor.rpc import transport
from acstor.telemetry.host_states import HostState, HostStateSender, SequenceNumbers
from testbed.fixtures import broker as brokers
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import BIN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

INTERVAL = 0.5
LINK = 125e6
HOSTS = [f"h{n}" for n in range(6)]


class Controllers:
    """Some policy services over one origin, one directory for locks, one broker."""

    def __init__(self, path: pathlib.Path, broker: Broker) -> None:
        self.path = path
        (path / "origin").mkdir()
        self.origin = PosixOrigin(str(path / "origin"))
        Repository.init(self.origin)
        self.broker = broker
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.numbers = SequenceNumbers()
        self.busy: set[str] = set()
        hosts = [RingHost(name, "10.0.0.1:1", 100) for name in HOSTS]
        RingReference(self.origin).replace(None, build_ring(hosts, 64, 1))

    def config(self, name: str) -> pathlib.Path:
        path = self.path / f"{name}.conf"
        path.write_text(
            f"[DEFAULT]\nhost = {name}\nstate_path = {self.path}/{name}\n"
            f"transport_url = {self.broker.url}\n"
            f"[origin]\nurl = posix://{self.path}/origin\n"
            f"[coordination]\nbackend_url = file://{self.path}/coordination\n"
            "heartbeat_interval = 0.1\nmember_timeout = 2\n"
            f"[policy]\ninterval = {INTERVAL}\nmetrics_port = 0\n"
        )
        return path

    def start(self, name: str) -> None:
        with (self.path / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / "acstor-policy"), "--config-file", str(self.config(name))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(20)

    def stop(self) -> None:
        for name in list(self.processes):
            with contextlib.suppress(ProcessLookupError):
                self.processes[name].send_signal(signal.SIGCONT)
            self.kill(name)

    def decision(self) -> Decision | None:
        published = read_decision(self.origin)
        return published.decision if published else None

    def leader(self) -> str | None:
        """Return who wrote the decision in force."""
        decision = self.decision()
        return decision.leader.partition("/")[0] if decision else None

    def log(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-3000:]}"
            for path in self.path.glob("*.log")
        )

    def command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "acstor"), "--config-file", str(self.config(name)), "policy", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


class Hosts:
    """Agents' reports: each time it is asked, all of them report."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers
        conf = loading.load("test", ["--config-file", str(controllers.config("hosts"))])
        self._senders = {
            name: HostStateSender(lambda: transport.open_transport(conf)) for name in HOSTS
        }
        for sender in self._senders.values():
            sender.start()

    def tell(self) -> None:
        for name, sender in self._senders.items():
            sent = 0.9 * LINK if name in self._controllers.busy else 1e6
            sender.send(
                HostState(name, self._controllers.numbers.next(), "1", True, False, 1e6, sent, LINK)
            )

    def wait_for(self, what: str, weights: dict[str, bool]) -> Decision:
        """Return the decision that gives these hosts less (True) or no less than an ordinary one's.

        Meanwhile the hosts tell how they are.
        """

        def found() -> Decision | None:
            self.tell()
            decision = self._controllers.decision()
            if decision is None or not decision.weights:
                return None
            is_low = {name: decision.weight_of(name) < 5000 for name in weights}
            return decision if is_low == weights else None

        try:
            return wait_for(what, found, timeout=40, interval=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._controllers.log()}") from error

    def stop(self) -> None:
        for sender in self._senders.values():
            sender.stop(5)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("policy") / "broker") as running:
        yield running


@pytest.fixture
def controllers(tmp_path: pathlib.Path, broker: Broker) -> Iterator[Controllers]:
    found = Controllers(tmp_path, broker)
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def hosts(controllers: Controllers) -> Iterator[Hosts]:
    found = Hosts(controllers)
    yield found
    found.stop()


def test_leader_is_killed_again_and_again_and_one_leads_always(
    controllers: Controllers, hosts: Hosts
) -> None:
    for name in ("c1", "c2"):
        controllers.start(name)
    wait_for("a leader", lambda: controllers.leader(), 40)
    seen: list[tuple[int, int]] = []
    for number in range(3):
        controllers.busy = {f"h{number}"}
        decision = hosts.wait_for("the busy host is relieved", {f"h{number}": True})
        seen.append((decision.term, decision.sequence))
        killed = controllers.leader()
        assert killed is not None
        controllers.kill(killed)
        wait_for(
            f"another one leads\n{controllers.log()}",
            lambda killed=killed: controllers.leader() not in {None, killed},  # type: ignore[misc]
            40,
        )
        taken_over = controllers.decision()
        assert taken_over is not None
        assert taken_over.weights == decision.weights, "taking over changes nothing"
        controllers.start(killed)
    assert seen == sorted(seen)
    terms = [term for term, _ in seen]
    assert len(set(terms)) == 3
    for path in controllers.path.glob("c?/policy/journal.jsonl"):
        for record in read_records(str(path)):
            if record["kind"] == "decision":
                assert replay(record).differences == []


def test_two_leaders_one_of_them_paused(controllers: Controllers, hosts: Hosts) -> None:
    """The lock goes over while its holder is stopped; it goes on as if nothing had happened."""
    controllers.start("c1")
    wait_for("a leader", lambda: controllers.leader() == "c1", 40)
    controllers.busy = {"h0"}
    hosts.wait_for("the busy host is relieved", {"h0": True})
    before = controllers.decision()
    assert before is not None
    paused = controllers.processes["c1"]
    paused.send_signal(signal.SIGSTOP)
    for lock in (controllers.path / "coordination").rglob("*policy*"):
        if lock.is_file():
            os.unlink(lock)  # as when the lease of a backend has run out
    controllers.start("c2")
    wait_for(f"the other one leads\n{controllers.log()}", lambda: controllers.leader() == "c2", 40)
    taken_over = controllers.decision()
    assert taken_over is not None
    assert taken_over.term == before.term + 1
    paused.send_signal(signal.SIGCONT)
    log = controllers.path / "c1.log"
    # Who slept for longer than the lock lasts gives it up before it has seen who leads.
    wait_for("it notices", lambda: re.search("deposed|stands by", log.read_text()), 40)
    # Whatever is in force from now on was written in a term of its own, one after the other.
    controllers.busy = {"h1"}
    decision = hosts.wait_for("the other busy host is relieved", {"h1": True})
    assert decision.term > before.term


def test_operator_has_his_own_way(controllers: Controllers, hosts: Hosts) -> None:
    controllers.start("c1")
    wait_for("a leader", lambda: controllers.leader() == "c1", 40)
    controllers.busy = {"h0"}
    hosts.wait_for("the busy host is relieved", {"h0": True})
    explained = controllers.command("c1", "explain", "h0")
    assert explained.returncode == 0, explained.stderr
    assert "gives" in explained.stdout
    assert controllers.command("c1", "replay").returncode == 0
    assert controllers.command("c1", "pin", "h3", "--weight", "25%").returncode == 0
    hosts.wait_for("the pin is in force", {"h0": True, "h3": True})
    shown = controllers.command("c1", "show", "-f", "json")
    assert '"h3": 0.25' in shown.stdout
    controllers.kill("c1")
    (controllers.path / "c1").rename(controllers.path / "lost")  # the state is lost
    controllers.start("c2")
    wait_for("another one leads", lambda: controllers.leader() == "c2", 40)
    decision = controllers.decision()
    assert decision is not None
    assert decision.weights["h3"] == 2500
    assert controllers.command("c2", "unpin", "--all").returncode == 0


def test_service_ends_at_once_and_in_order(controllers: Controllers) -> None:
    controllers.start("c1")
    wait_for("a leader", lambda: controllers.leader() == "c1", 40)
    process = controllers.processes["c1"]
    process.send_signal(signal.SIGHUP)
    controllers.start("c2")
    controllers.processes.pop("c1")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    wait_for("the other one leads", lambda: controllers.leader() == "c2", 40)
    wrong = controllers.path / "wrong.conf"
    wrong.write_text("[policy]\nweights = nonsense\n")
    refused = subprocess.run(
        [str(BIN / "acstor-policy"), "--config-file", str(wrong)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == EXIT_CONFIGURATION  # systemd does not try again
    assert "nonsense" in refused.stdout + refused.stderr
