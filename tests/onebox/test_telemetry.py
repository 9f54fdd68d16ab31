"""A real Ceilometer on the one-box: it alone tells policy services how busy hosts are, and who is.

Three policy services hear of the same traffic: one by Ceilometer's ``http`` publisher, one on its
notification bus, one from the agents. Each decides for itself, in an origin of its own: nothing of
the cloud changes. The server's network card is put into it by libvirt, and what comes in through it
by this test, since the one-box has no networks of Neutron.
"""

import base64
import copy
import datetime
import functools
import json
import pathlib
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acstor.cluster.ring.decision import MEAN_WEIGHT
from acstor.origin.posix import PosixOrigin
from acstor.policy.collection import HostLoad
from acstor.repository.repository import Repository
from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import BoxHost, ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.guest_console import GuestConsole
from testbed.fixtures.instances import Instance, instances_of
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.policy_services import PolicyService, decision_in, extra_traffic, running
from testbed.fixtures.tiny_guest import network_command
from testbed.onebox.configuration import acstor, endpoints
from testbed.onebox.network import CONTROLLER_ADDRESS
from testbed.onebox.services import base_environment

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox,
    # Compares rates that several processes read: wants an idle machine, and minutes.
    pytest.mark.extended,
]  # fmt: skip

POLL = 2
"""Seconds between two polls of Ceilometer, and between two reports of an agent."""
INTERVAL = 2 * POLL
PORT, METRICS_PORT = 9475, 9481
PASSWORD, SECRET = "one-box", "signed with this"
TIMEOUT = 90.0
TRAFFIC_SECONDS = 600
SHARE = 0.9
"""Share of its link that a host is made to send."""
ERROR = 0.1
"""Largest difference of the feeds here, where each means over other seconds of a busy machine; over
the same seconds it is 5 %, and a functional test holds them to that."""
TAP = "acstor-tap"
PIECE = 500_000
"""Bytes that are sent into a server at a time."""
METERS = [
    "acstor.host.network.incoming.bytes", "acstor.host.network.outgoing.bytes",
    "network.incoming.bytes", "network.outgoing.bytes",
]  # fmt: skip
SAMPLES = "acstor_policy_samples"


class Telemetry:
    """Policy services on the controller and Ceilometer's agents on all hosts."""

    def __init__(self, box: RunningBox, server: Instance) -> None:
        self.box = box
        self.server = server
        self.busy = box.hosts[0]
        self.folder = box.directory.shared / "telemetry"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self._started: list[tuple[BoxHost, str]] = []
        # What each hears, and nothing else.
        self.http = self._policy(0, "http", {}, {
            "listen_address": CONTROLLER_ADDRESS, "listen_port": str(PORT), "password": PASSWORD,
        })  # fmt: skip
        bus = {"oslo_messaging_notifications": {"transport_url": endpoints.TRANSPORT_URL}}
        self.bus = self._policy(
            1, "bus", bus, {"notifications": "true", "telemetry_secret": SECRET}
        )
        self.direct = self._policy(
            2, "direct", {"DEFAULT": {"transport_url": endpoints.TRANSPORT_URL}}, {}
        )
        self.policies = (self.http, self.bus, self.direct)

    def _policy(
        self, number: int, name: str, more: dict[str, dict[str, str]], ceilometer: dict[str, str]
    ) -> PolicyService:
        origin = self.origin(name)
        origin.mkdir()
        Repository.init(PosixOrigin(str(origin)))
        options = {
            **more,
            "origin": {"url": f"posix://{origin}"},
            "coordination": {"backend_url": f"file://{self.folder}/coordination-{name}"},
            "policy": {"interval": str(INTERVAL)},
            "ceilometer": ceilometer,
        }
        return PolicyService(
            self.box, self.folder, f"policy-{name}", METRICS_PORT + number, options
        )

    def origin(self, name: str) -> pathlib.Path:
        """Return where a policy service keeps what it decides."""
        return self.folder / f"origin-{name}"

    def start(self) -> None:
        """Start Ceilometer."""
        self._write_definitions()
        for host in self.box.all_hosts:
            path = self.folder / f"ceilometer-{host.name}.conf"
            path.write_text(self._ceilometer(host))
            if isinstance(host, ComputeHost):
                arguments = ("--polling-namespaces", "compute")
                self._spawn(host, "ceilometer-polling", str(path), *arguments)
            else:
                self._spawn(host, "ceilometer-agent-notification", str(path))

    def _spawn(self, host: BoxHost, program: str, config: str, *more: str) -> None:
        directory = self.box.directory
        argv = [directory.program(program), "--config-file", config, *more]
        host.host.spawn(program, argv, base_environment(directory))
        self._started.append((host, program))

    def stop(self) -> None:
        """Kill Ceilometer, which has nothing to lose, with its children."""
        for host, program in self._started:
            host.host.signal(program, signal.SIGKILL, session=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_definitions(self) -> None:
        source = {"name": "acstor", "meters": METERS}
        user = f"http://ceilometer:{PASSWORD}@{CONTROLLER_ADDRESS}:{PORT}"
        publishers = [f"{user}/v1/samples?batch=True&timeout=2", f"file://{self.copy}?json=True"]
        sink = {"name": "policy", "publishers": publishers}
        for name, content in {
            "polling": {"sources": [{**source, "interval": POLL}]},
            "pipeline": {"sources": [{**source, "sinks": ["policy"]}], "sinks": [sink]},
            "event_pipeline": {"sources": [], "sinks": []},
        }.items():
            (self.folder / f"{name}.yaml").write_text(json.dumps(content))

    @property
    def copy(self) -> pathlib.Path:
        """File to which Ceilometer's pipeline writes what it publishes, too."""
        return self.folder / "samples"

    def _ceilometer(self, host: BoxHost) -> str:
        login = "".join(f"{name} = {value}\n" for name, value in endpoints.login("nova").items())
        return (
            f"[DEFAULT]\nhost = {host.name}\ntransport_url = {endpoints.TRANSPORT_URL}\n"
            f"libvirt_type = qemu\npipeline_cfg_file = {self.folder}/pipeline.yaml\n"
            f"event_pipeline_cfg_file = {self.folder}/event_pipeline.yaml\n"
            f"[polling]\ncfg_file = {self.folder}/polling.yaml\n"
            f"[publisher]\ntelemetry_secret = {SECRET}\n[notification]\npipelines = meter\n"
            f"[service_credentials]\n{login}"
            f"[acstor]\ninterfaces = eth0\nlink_speed = {acstor.LINK_SPEED}\n"
            f"metrics_url = http://{host.host.address}:{acstor.METRICS_PORT}/metrics\n"
        )

    def wait(self, what: str, probe: Callable[[], Any]) -> Any:
        """Wait for a condition; fail with the ends of all logs."""
        try:
            return wait_for(what, probe, TIMEOUT, 0.2)
        except AssertionError as error:
            logs = [
                f"{program} on {host.name}: {host.host.log_since_start(program)[-2000:]}"
                for host, program in self._started
            ]
            logs += [f"{each.name}: {each.log()[-2000:]}" for each in self.policies]
            raise AssertionError("\n".join([str(error), *logs])) from error

    def published(self, meter: str) -> dict[str, Any]:
        """Return the newest sample of a meter of the busy host, as it was posted."""

        def newest() -> dict[str, Any] | None:
            lines = self.copy.read_text().rpartition("\n")[0].splitlines()
            found = [json.loads(line) for line in lines]
            name = self.busy.name
            wanted = [
                each for each in found
                if each["name"] == meter and each["resource_metadata"].get("host") == name
            ]  # fmt: skip
            return wanted[-1] if wanted else None

        sample: dict[str, Any] = self.wait(f"a sample of {meter}", newest)
        return sample


@pytest.fixture(scope="module")
def telemetry(whole_box: RunningBox, tiny: Template) -> Iterator[Telemetry]:
    """All of it, with a host that is busy and a server on it that is sent to."""
    with instances_of(whole_box) as made:
        host = whole_box.hosts[0]
        (server,) = made.request(tiny, host=host)
        found = Telemetry(whole_box, server)
        try:
            found.start()
            with running(*found.policies), extra_traffic(host, SHARE, TRAFFIC_SECONDS):
                server.wait()
                yield found
        finally:
            found.stop()


@pytest.fixture
def card(telemetry: Telemetry) -> None:
    """A network card in the server, in use."""
    telemetry.server.checked(boot=1)
    domain, definition = telemetry.server.id, telemetry.folder / "card.xml"
    definition.write_text(
        f"<interface type='ethernet'><target dev='{TAP}'/><model type='virtio'/></interface>"
    )
    telemetry.busy.run("/usr/bin/virsh", "attach-device", domain, str(definition), "--live")
    telemetry.busy.run("/usr/sbin/ip", "link", "set", TAP, "up")
    GuestConsole(telemetry.busy, domain).run(network_command())


def test_each_feed_alone_has_the_busy_host_relieved_and_they_agree(telemetry: Telemetry) -> None:
    name = telemetry.busy.name
    loads = {}
    for feed, policy in zip(("http", "bus", "direct"), telemetry.policies, strict=True):
        (first, *_) = telemetry.wait(f"a decision by {feed}", policy.decisions)
        loads[feed] = HostLoad.from_json(first["inputs"]["collection"]["hosts"][name])
        decision = decision_in(telemetry.origin(feed))
        assert decision is not None
        idle = telemetry.box.hosts[1].name
        assert decision.weight_of(name) < MEAN_WEIGHT < decision.weight_of(idle), decision.weights
    print({feed: round(load.extra_out) for feed, load in loads.items()})
    expected = loads["direct"].extra_out
    assert expected > 0.8 * loads["direct"].link
    for feed in ("http", "bus"):
        assert loads[feed].extra_out == pytest.approx(expected, rel=ERROR), feed
        assert loads[feed].link == loads["direct"].link
        policy = telemetry.http if feed == "http" else telemetry.bus
        assert policy.metric(SAMPLES, feed="direct") == 0
        for outcome in ("malformed", "unsigned", "unauthenticated", "absurd", "future"):
            assert policy.metric(SAMPLES, feed="ceilometer", outcome=outcome) == 0, outcome
    assert telemetry.direct.metric(SAMPLES, feed="ceilometer") == 0


@pytest.mark.usefixtures("card")
def test_who_on_the_busy_host_causes_its_traffic_is_explained(telemetry: Telemetry) -> None:
    def explained(policy: PolicyService) -> bool:
        send_into(telemetry.busy, TAP, PIECE)
        (row,) = policy.command("explain", telemetry.busy.name)
        return any(
            each["instance"] == telemetry.server.id and each["received"] > 0
            for each in row["Instances"]
        )

    for policy in (telemetry.http, telemetry.bus):
        told = functools.partial(explained, policy)
        telemetry.wait(f"the server among those of {policy.name}", told)
    (row,) = telemetry.direct.command("explain", telemetry.busy.name)
    assert row["Instances"] == [], "agents do not know of instances"


def test_samples_that_are_wrong_are_counted_and_change_nothing(telemetry: Telemetry) -> None:
    policy = telemetry.http
    telemetry.wait("samples that are taken", lambda: policy.metric(SAMPLES, outcome="taken") >= 2)
    sample = telemetry.published(METERS[0])
    assert post([sample]) == {"old": 1}  # what was posted before, or is older than the newest
    assert post([changed(sample, read_at=-60.0)]) == {"old": 1}
    assert post([changed(sample, at=-600.0)]) == {"late": 1}
    assert post([changed(sample, at=3600.0)]) == {"future": 1}
    assert post([changed(sample, volume=-1)]) == {"malformed": 1}
    pair = [sample, telemetry.published(METERS[1])]
    # A host that nobody has, and a link that carries a thousand times what it can.
    for seconds, volume in ((0.0, 0), (10.0, 10**11 * acstor.LINK_SPEED)):
        absurd = [changed(each, read_at=seconds, volume=volume, host="nobody") for each in pair]
        outcomes = post(absurd)
    assert outcomes == {"part": 1, "absurd": 1}
    with pytest.raises(urllib.error.HTTPError, match="401"):
        post([sample], "guessed")
    wanted = ("old", "late", "future", "malformed", "absurd", "unauthenticated")

    def counted() -> bool:
        return all(policy.metric(SAMPLES, feed="ceilometer", outcome=each) for each in wanted)

    telemetry.wait("what was posted among the counts", counted)
    decision = decision_in(telemetry.origin("http"))
    assert decision is None or "nobody" not in decision.weights


def changed(
    sample: dict[str, Any],
    *,
    at: float = 0.0,
    read_at: float = 0.0,
    volume: int | None = None,
    host: str | None = None,
) -> dict[str, Any]:
    """Return a sample with other times, in seconds from its own, another volume, another host."""
    found = copy.deepcopy(sample)
    stamp = datetime.datetime.fromisoformat(sample["timestamp"]) + datetime.timedelta(seconds=at)
    found["timestamp"] = stamp.isoformat()
    found["resource_metadata"]["read_at"] += read_at
    found["volume"] = sample["volume"] if volume is None else volume
    if host is not None:
        found["resource_metadata"]["host"] = host
    return found


def post(samples: list[dict[str, Any]], password: str = PASSWORD) -> dict[str, int]:
    """Post samples as Ceilometer's publisher does; return what became of them.

    :raises HTTPError: when they are refused.
    """
    login = base64.b64encode(f"ceilometer:{password}".encode()).decode()
    request = urllib.request.Request(
        f"http://{CONTROLLER_ADDRESS}:{PORT}/v1/samples",
        json.dumps(samples).encode(),
        {"Content-Type": "application/json", "Authorization": f"Basic {login}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, int] = json.load(answer)["samples"]
    return found


def send_into(host: ComputeHost, interface: str, count: int) -> None:
    """Send bytes into an interface of a host, whose other end is in a server."""
    program = (
        "import socket, sys; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW);"
        "s.bind((sys.argv[1], 0));"
        "frame = b'\\xff' * 6 + b'\\x02' * 6 + b'\\x88\\xb5' + bytes(1400);"
        "[s.send(frame) for _ in range(int(sys.argv[2]) // len(frame))]"
    )
    host.run("/usr/bin/python3", "-c", program, interface, str(count))
