"""A real Ceilometer: its polling agent, notification agent, ``http`` publisher, and our pollsters.

The host's traffic is what goes over loopback; the agent's meter and Ceilometer watch it together.
"""

import contextlib
import importlib.util
import json
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from acstor.conf import loading
from acstor.http_server.metrics import MetricsEndpoint
from acstor.policy.feeds.base import build_feeds
from acstor.policy.feeds.ceilometer.instances import InstanceRate
from acstor.policy.feeds.ceilometer.traffic_file import read_beside
from acstor.policy.load_samples import CEILOMETER, LoadSamples, Sample
from acstor.policy.service import Feed
from acstor.telemetry.traffic import InterfaceCounters, NetlinkInterfaces, TrafficMeter
from testbed.fixtures import broker as brokers
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import BIN
from testbed.fixtures.ports import free_port

pytestmark = [
    pytest.mark.extended,  # compares rates read by several processes: wants an idle machine
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
    pytest.mark.skipif(
        importlib.util.find_spec("ceilometer") is None,
        reason="needs ceilometer (test-requirements)",
    ),
]

POLL = 2
"""Seconds between two polls of Ceilometer."""
ERROR = 0.05
"""Largest difference of the two feeds over the same time, as a part: the page says so."""
RATE = 20_000_000
"""Bytes per second that go over loopback."""
SECRET = "signed with this"
METERS = [
    "acstor.host.network.incoming.bytes", "acstor.host.network.outgoing.bytes",
    "network.incoming.bytes", "network.outgoing.bytes",
]  # fmt: skip
INSTANCE = "11111111-2222-4333-8444-555555555555"
NODE = f"""<node>
<domain type="test">
  <name>instance-00000001</name><uuid>{INSTANCE}</uuid><memory>65536</memory>
  <metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
    <nova:name>web</nova:name>
    <nova:flavor name="small" id="small"><nova:memory>64</nova:memory><nova:disk>1</nova:disk>
      <nova:swap>0</nova:swap><nova:ephemeral>0</nova:ephemeral><nova:vcpus>1</nova:vcpus>
      <nova:extraSpecs/></nova:flavor>
    <nova:owner><nova:user uuid="u1">u</nova:user><nova:project uuid="p1">p</nova:project>
    </nova:owner><nova:root type="image" uuid="22222222-2222-4333-8444-555555555555"/>
  </nova:instance></metadata>
  <os><type arch="x86_64">hvm</type></os>
  <devices><interface type="network"><mac address="52:54:00:00:00:01"/>
    <source network="default"/><target dev="tap0"/></interface></devices>
</domain>
<network><name>default</name><ip address="192.168.122.1" netmask="255.255.255.0"/></network>
</node>
"""
"""Node of libvirt's test driver in place of a hypervisor: a server of Nova's."""


class Traffic:
    """Sends over loopback at a steady rate until stopped."""

    def __init__(self) -> None:
        self._is_stopping = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]
        self._server = socket.create_server(("127.0.0.1", 0))
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        block = bytes(RATE // 100)
        with socket.create_connection(self._server.getsockname()) as connection:
            due = time.monotonic()
            while not self._is_stopping.wait(max(0.0, due - time.monotonic())):
                connection.sendall(block)
                due += 0.01

    def _receive(self) -> None:
        accepted, _ = self._server.accept()
        with accepted:
            while accepted.recv(1 << 20):
                pass

    def stop(self) -> None:
        self._is_stopping.set()
        for thread in self._threads:
            thread.join(20)
        self._server.close()


class Agent:
    """Reads the counters of loopback again and again, as an agent does."""

    def __init__(self) -> None:
        self._interfaces = NetlinkInterfaces(["lo"], 10_000)
        self._read: list[tuple[float, InterfaceCounters]] = []
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping.wait(0.05):
            counters = self._interfaces.read(None)[0]
            self._read.append((time.monotonic(), counters))

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join(20)

    def rates(self, first: float, last: float) -> tuple[float, float]:
        """Return what its meter says of the time between two readings: received, sent."""
        meter = TrafficMeter()
        for wanted in (first, last):
            at, counters = min(self._read, key=lambda pair: abs(pair[0] - wanted))
            assert abs(at - wanted) < 0.5
            found = meter.sample(at, [counters], None)
        assert found.extra_in is not None
        assert found.extra_out is not None
        return found.extra_in, found.extra_out


class RecordingSamples(LoadSamples):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(10.0)
        self.samples: list[Sample] = []

    def note(self, sample: Sample) -> str:
        self.samples.append(sample)
        return super().note(sample)


class Telemetry:
    """Ceilometer's two agents with a policy service's feeds, over one broker."""

    def __init__(self, path: pathlib.Path, broker: Broker, feed: str) -> None:
        self.path = path
        self.broker = broker
        self.port = free_port()
        self.load_samples = RecordingSamples()
        self.data_plane = 0  # bytes that it says to have served
        self.endpoint = MetricsEndpoint("127.0.0.1", 0, text=self._metrics, is_healthy=lambda: True)
        self.endpoint.start()
        conf = path / "acstor.conf"
        conf.write_text(
            f"[DEFAULT]\nhost = c1\nstate_path = {path}\n"
            + (f"transport_url = {broker.url}\n" if feed == "bus" else "")
            + "[ceilometer]\n"
            + (
                f"notifications = true\ntelemetry_secret = {SECRET}\n"
                if feed == "bus"
                else f"listen_address = 127.0.0.1\nlisten_port = {self.port}\npassword = word\n"
            )
        )
        built = build_feeds(loading.load("test", ["--config-file", str(conf)]), self.load_samples)
        self.feeds: list[Feed] = [each for name, each in built if name != "message broker"]
        for each in self.feeds:
            each.start()
        self._configure()
        self.processes = [
            self._started("ceilometer-agent-notification"),
            self._started("ceilometer-polling", "--polling-namespaces", "compute"),
        ]

    def _metrics(self) -> str:
        moved = f"acstor_serve_bytes_total {self.data_plane}"
        return f"# TYPE acstor_serve_bytes counter\n{moved}\n# EOF\n"

    def _configure(self) -> None:
        (self.path / "polling.yaml").write_text(
            json.dumps({"sources": [{"name": "acstor", "interval": POLL, "meters": METERS}]})
        )
        publisher = f"http://ceilometer:word@127.0.0.1:{self.port}/v1/samples?timeout=2&batch=True"
        copy = f"file://{self.path}/samples?json=True"
        (self.path / "pipeline.yaml").write_text(
            json.dumps(
                {
                    "sources": [{"name": "acstor", "meters": METERS, "sinks": ["policy"]}],
                    "sinks": [{"name": "policy", "publishers": [publisher, copy]}],
                }
            )
        )
        (self.path / "node.xml").write_text(NODE)
        (self.path / "event_pipeline.yaml").write_text(json.dumps({"sources": [], "sinks": []}))
        (self.path / "ceilometer.conf").write_text(
            f"[DEFAULT]\nhost = Compute-1\ntransport_url = {self.broker.url}\n"
            f"libvirt_uri = test://{self.path}/node.xml\n"
            f"[polling]\ncfg_file = {self.path}/polling.yaml\n"
            f"[publisher]\ntelemetry_secret = {SECRET}\n"
            "[notification]\npipelines = meter\n"
            f"[acstor]\ninterfaces = lo\nlink_speed = 10000\n"
            f"metrics_url = http://{self.endpoint.address}/metrics\n"
        )

    def _started(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.path / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(BIN / program), *arguments, "--config-file",
                 str(self.path / "ceilometer.conf"), "--config-dir", str(self.path / "none")],
                cwd=self.path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
        for each in self.feeds:
            each.stop(10)
        self.endpoint.stop()

    def log(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-3000:]}"
            for path in self.path.glob("*.log")
        )

    def readings(self) -> list[float]:
        """Return when Ceilometer has read the counters, monotonic seconds."""
        lines = (self.path / "samples").read_text().rpartition("\n")[0].splitlines()
        metadata = [json.loads(line)["resource_metadata"] for line in lines]
        return sorted({each["read_at"] for each in metadata if "read_at" in each})

    def count(self, outcome: str) -> int:
        return self.load_samples.counts[CEILOMETER, outcome]

    def wait_for(self, what: str, outcome: str, more: int) -> None:
        least = self.count(outcome) + more
        try:
            wait_for(what, lambda: self.count(outcome) >= least, 90)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.load_samples.counts}\n{self.log()}") from error


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("ceilometer") / "broker") as running:
        yield running


@contextlib.contextmanager
def telemetry_in(path: pathlib.Path, broker: Broker, feed: str) -> Iterator[Telemetry]:
    (path / "none").mkdir()
    found = Telemetry(path, broker, feed)
    try:
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("feed", ["http", "bus"])
def test_ceilometer_alone_tells_what_the_agent_would(
    tmp_path: pathlib.Path, broker: Broker, feed: str
) -> None:
    with telemetry_in(tmp_path, broker, feed) as telemetry:
        agent, traffic = Agent(), Traffic()
        try:
            telemetry.wait_for("rates of some polls", "taken", 5)
        finally:
            traffic.stop()
            agent.stop()
        polled = telemetry.load_samples.samples[1:5]  # with the traffic all the time
        # Over the bus samples are heard sooner than the pipeline writes them down.
        wait_for("the readings", lambda: len(telemetry.readings()) >= 6, 30)
        readings = telemetry.readings()[1:6]
        assert telemetry.count("incomplete") == 0
        for number, sample in enumerate(polled):
            direct = agent.rates(readings[number], readings[number + 1])
            print(f"{feed}: {sample.extra_in} {sample.extra_out} B/s, directly {direct}")
            assert direct[0] > 0.8 * RATE
            assert (sample.extra_in, sample.extra_out) == pytest.approx(direct, rel=ERROR)
        load = telemetry.load_samples.collect(time.time()).hosts["compute-1"]
        assert load.link == 10_000 * 125_000
        assert telemetry.count("malformed") + telemetry.count("unsigned") == 0
        # What the data plane says to have moved is no extra traffic; what it does not say unknown.
        telemetry.data_plane = 1 << 50
        least = len(telemetry.load_samples.samples)
        wait_for("a poll with it", lambda: 0.0 in _sent(telemetry.load_samples.samples[least:]), 30)
        telemetry.endpoint.stop()
        telemetry.wait_for("polls without the agent", "moved-unknown", 2)


@pytest.mark.skipif(importlib.util.find_spec("libvirt") is None, reason="needs libvirt-python")
@pytest.mark.parametrize("feed", ["http", "bus"])
def test_who_on_a_host_causes_its_traffic_is_told(
    tmp_path: pathlib.Path, broker: Broker, feed: str
) -> None:
    """libvirt's test driver counts 100 bytes received for each millisecond that passes."""
    with telemetry_in(tmp_path, broker, feed) as telemetry:

        def rates() -> list[InstanceRate]:
            found = read_beside(str(tmp_path / "policy" / "journal.jsonl"))
            return [each for each in found.get("compute-1", []) if each.received and each.sent]

        try:
            (rate,) = wait_for("rates of the instance", rates, 60)
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n{telemetry.load_samples.counts}\n{telemetry.log()}"
            ) from error
        assert (rate.instance, rate.name, rate.project) == (INSTANCE, "web", "p1")
        print(f"{feed}: {rate.received} and {rate.sent} B/s")
        assert rate.received == pytest.approx(100_000, rel=0.25)


def _sent(samples: list[Sample]) -> list[float | None]:
    return [each.extra_out for each in samples]
