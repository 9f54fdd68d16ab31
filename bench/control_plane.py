"""Control plane: what it costs a host's link and processor, in a deployment of 1,000 hosts.

Measured with the programs' own code, scaled by how often each thing happens by default:

* states: the message as oslo.messaging sends it, and the processor time of the policy service for
  one collection of all hosts;
* looks: a whole agent (its data plane in memory) that looks at an origin behind HTTP where nothing
  has changed; every byte between the two counts;
* membership: the description of all members, as often as a host reads it;
* one generation a minute, which is more than a deployment sees: the decision and the ring that
  each host reads, and what it takes to build them.

What the guests read and what coordination's own protocol adds to the members' descriptions is not
in it. One command: ``python -m bench.control_plane [--hosts N] [--json FILE]``.
"""

import contextlib
import dataclasses
import json
import pathlib
import random
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from oslo_config import cfg
from oslo_log import log

from acstor import warning_filters
from acstor.agent.agent import Agent
from acstor.agent.metrics import AgentMetrics
from acstor.cluster.member import Member
from acstor.cluster.membership import MEMBERS_EVERY
from acstor.cluster.ring import building
from acstor.cluster.ring.decision import Decision, replace_decision
from acstor.cluster.ring.published_ring import RingReference
from acstor.conf import loading
from acstor.native import Ring
from acstor.origin.base import Origin
from acstor.origin.http.driver import HttpOrigin
from acstor.origin.memory import MemoryOrigin
from acstor.policy import observation, similarity
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.load_samples import DIRECT, LoadSamples, Sample
from acstor.policy.settings import PolicySettings
from acstor.repository.repository import Repository
from acstor.telemetry.host_state_details import DiskHealth, PeerLatency
from acstor.telemetry.host_states import HostState
from bench import comparison
from bench.comparison import Row, Series
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.origin_server import OriginServer

LINK = 125e6
"""Bytes per second: 1 Gbit/s, in one direction."""
AMQP_BYTES = 400
"""Bytes of one message beside its body: method, header and body frames, acknowledgement, TCP and
IP."""
GENERATIONS_PER_SECOND = 1 / 60
LINK_TARGET, CORE_TARGET = 0.001, 0.01
SKETCH_EVERY = 6
VNODES_PER_HOST = 128
PEERS, IMAGES, HASHES = 64, 5, 256
LOOKS = 50


@dataclasses.dataclass
class Cost:
    """Cost of one activity for one host."""

    what: str
    bytes_per_s: float = 0.0
    core: float = 0.0
    """Part of one processor's time."""


class CountingRelay:
    """Passes connections on to a server and counts what goes through, both ways."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.bytes = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                self.bytes += len(content)
                sink.sendall(content)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def processor(action: Callable[[], object], repeats: int = 5) -> float:
    """Return the processor seconds that a call takes on this thread, median."""
    found = []
    for _ in range(repeats):
        started = time.thread_time()
        action()
        found.append(time.thread_time() - started)
    return statistics.median(found)


def name_of(number: int) -> str:
    return f"compute-{number:05d}.example.org"


class Deployment:
    """Synthetic deployment of a number of hosts: their messages, and the rings decided for them."""

    def __init__(self, hosts: int, chance: random.Random) -> None:
        self.chance = chance
        self.names = [name_of(number) for number in range(hosts)]
        self.members = {name: self._member(number) for number, name in enumerate(self.names)}
        self.sketches = {name: self._sketch() for name in self.names}
        self.maker = DecisionMaker(
            PolicySettings(),
            similarity=lambda givers, receivers: similarity.most_similar(
                self.sketches, givers, receivers
            ),
        )
        self.decision = Decision(1, 1, "controller", 0, "headroom")
        self.ring = self.next_ring(None)
        self._sequence = 0
        self.loads = [chance.choice((0.1, 0.3, 0.5, 0.9)) for _ in self.names]

    def _member(self, number: int) -> Member:
        return Member(
            self.names[number] if number < len(self.names) else "",
            f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:7420",
            f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:9471",
            400 << 30,
            "1.0.0",
            f"pod-{number // 256}/rack-{number // 32}",
        )

    def _sketch(self) -> similarity.Sketch:
        # A part of the hashes is everybody's, as of one image.
        shared = random.Random(1).sample(range(1 << 58), 2 * HASHES)
        own = [self.chance.getrandbits(64) for _ in range(2 * HASHES)]
        return similarity.sketch_of(self.chance.sample(shared, HASHES) + own)

    def state(self, name: str, *, has_sketch: bool) -> HostState:
        image = "01234567-89ab-cdef-0123-{:012x}"
        images = tuple(image.format(number) for number in range(IMAGES))
        return HostState(
            name, int(time.time() * 1000), "1.0.0", True, False, 12_345_678.0, 23_456_789.0, LINK,
            dict.fromkeys(images, 0.123), images, 3_456_789.0, 4_567_890.0, 0.123,
            self.sketches[name] if has_sketch else None,
            {peer: PeerLatency(1.234, 12.345) for peer in self.names[:PEERS]},
            DiskHealth(True, 0.05),
        )  # fmt: skip

    def note(self, load_samples: LoadSamples) -> None:
        """Have all hosts tell how they are, once."""
        self._sequence += 1
        for name, share in zip(self.names, self.loads, strict=True):
            load_samples.note(
                Sample(name, DIRECT, 0.0, share * LINK, share * LINK, 1e6, 1e6, LINK, 0.1,
                       sequence=self._sequence)
            )  # fmt: skip

    def next_ring(self, previous: Ring | None) -> Ring:
        hosts = building.weighted(building.wanted_hosts(self.members, "equal"), self.decision)
        vnodes = 1 << max(10, (len(self.names) * VNODES_PER_HOST - 1).bit_length())
        return building.next_ring(hosts, previous, self.decision, vnode_count=vnodes, seed=1)


def message_bytes(deployment: Deployment, *, has_sketch: bool) -> int:
    """Return the bytes on the wire of one state, as oslo.messaging sends it."""
    warning_filters.use_threads()
    from oslo_messaging._drivers import common

    state = deployment.state(deployment.names[0], has_sketch=has_sketch)
    body = {
        "method": "host_state", "namespace": "acstor.host_state", "version": "1.0",
        "args": {"state": state.to_message()}, "_unique_id": "0" * 32, "_timeout": None,
    }  # fmt: skip
    return len(json.dumps(common.serialize_msg(body))) + AMQP_BYTES


def states(deployment: Deployment, conf: cfg.ConfigOpts) -> list[Cost]:
    plain, full = (message_bytes(deployment, has_sketch=each) for each in (False, True))
    mean = plain + (full - plain) / SKETCH_EVERY
    heard = mean * len(deployment.names) / conf.agent.state_interval / LINK
    print(f"a state: {plain} bytes, with sketch {full}, mean {mean:.0f}; all of them together "
          f"{heard:.2%} of the link of each policy service and scheduler")  # fmt: skip
    parse = processor(
        lambda: json.dumps(deployment.state(deployment.names[0], has_sketch=True).to_message())
    )
    return [Cost("its state", mean / conf.agent.state_interval, parse / conf.agent.state_interval)]


def collections(deployment: Deployment, conf: cfg.ConfigOpts) -> None:
    """Print what the policy service needs for one collection, and have its decision in force."""
    now = 0.0
    load_samples = LoadSamples(conf.policy.interval, lambda: now)
    settings = deployment.maker.settings
    load_samples.watch(lambda load: observation.is_overloaded(load, settings), settings.successive)
    noting, deciding = [], []
    outcome = None
    for _ in range(3):
        now += conf.policy.interval
        noting.append(processor(lambda: deployment.note(load_samples), 1))
        started = time.thread_time()
        outcome = deployment.maker.decide(load_samples.collect(now), deployment.decision)
        deciding.append(time.thread_time() - started)
        if outcome.decision is not None:
            deployment.decision = dataclasses.replace(outcome.decision, term=1, leader="controller")
    print(f"policy service: {statistics.median(noting) * 1e3:.0f} ms to note all states, "
          f"{max(deciding) * 1e3:.0f} ms for the collection that decides, of "
          f"{conf.policy.interval:.0f} s")  # fmt: skip


def looks(conf: cfg.ConfigOpts, origin: Origin, relay: CountingRelay) -> Cost:
    data_plane = MemoryDataPlane(conf)
    data_plane.start()
    agent = Agent(
        conf,
        open_origin=lambda: HttpOrigin(f"http://127.0.0.1:{relay.port}/"),
        metrics=AgentMetrics(),
        metrics_address="127.0.0.1:9471",
    )
    try:
        for _ in range(3):
            agent.reconcile()  # reads what there is
        before, started = relay.bytes, time.thread_time()
        for _ in range(LOOKS):
            agent.reconcile()
        core = (time.thread_time() - started) / LOOKS
        moved = (relay.bytes - before) / LOOKS
    finally:
        data_plane.stop()
    print(f"a look: {moved:.0f} bytes, {core * 1e3:.1f} ms of a processor")
    return Cost("looks", moved / conf.agent.interval, core / conf.agent.interval)


def membership(deployment: Deployment, conf: cfg.ConfigOpts) -> Cost:
    described = {name: each.to_capabilities() for name, each in deployment.members.items()}
    size = len(json.dumps(described))
    core = processor(
        lambda: [Member.from_capabilities(name, each) for name, each in described.items()]
    )
    seconds = 0.75 * MEMBERS_EVERY * conf.coordination.heartbeat_interval
    print(f"members: {size} bytes, {core * 1e3:.1f} ms; the host that publishes rings reads them "
          f"every {conf.coordination.heartbeat_interval:g} s, the others every {seconds:g} s "
          "on average")  # fmt: skip
    return Cost("members", size / seconds, core / seconds)


def generations(deployment: Deployment) -> Cost:
    former = deployment.ring
    building_seconds = processor(lambda: deployment.next_ring(former), 3)
    deployment.ring = deployment.next_ring(former)
    content, decision = deployment.ring.encode(), deployment.decision.encode()
    reading = processor(lambda: Ring.decode(content)) + processor(lambda: Decision.parse(decision))
    print(f"a generation: ring {len(content)} bytes, decision {len(decision)}; "
          f"{building_seconds * 1e3:.0f} ms to build, {reading * 1e3:.0f} ms to read")  # fmt: skip
    return Cost(
        "one generation a minute",
        (len(content) + len(decision)) * GENERATIONS_PER_SECOND,
        2 * reading * GENERATIONS_PER_SECOND,  # by the agent, and by the data plane
    )


@contextlib.contextmanager
def served(origin: Origin) -> Iterator[CountingRelay]:
    server = OriginServer(("127.0.0.1", 0), origin)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    relay = CountingRelay(("127.0.0.1", int(server.server_address[1])))
    try:
        yield relay
    finally:
        relay.close()
        server.shutdown()
        server.server_close()


def configuration(directory: pathlib.Path) -> cfg.ConfigOpts:
    path = directory / "acstor.conf"
    path.write_text(
        f"[DEFAULT]\nhost = {name_of(0)}\nstate_path = {directory}\n"
        f"[dataplane]\nadmin_socket = {directory}/admin.sock\n"
        f"[volumes]\ncontrol_socket = {directory}/volumes.sock\n"
        "[peer]\nlisten_address = 127.0.0.1\nlisten_port = 0\ntls_enabled = false\n"
    )
    return loading.load("bench", ["--config-file", str(path)], log.register_options)


def rows_of(costs: list[Cost]) -> list[Row]:
    costs = [
        *costs,
        Cost("together", sum(c.bytes_per_s for c in costs), sum(c.core for c in costs)),
    ]
    rows = []
    for cost in costs:
        is_sum = cost is costs[-1]
        for unit, value, bound in (
            ("% of 1 Gbit/s", cost.bytes_per_s / LINK, LINK_TARGET),
            ("% of a core", cost.core, CORE_TARGET),
        ):
            rows.append(
                Row(
                    cost.what,
                    Series("acstor", unit, [100 * value]),
                    target=f"< {100 * bound:g} %" if is_sum else "",
                    is_met=comparison.at_most(100 * bound) if is_sum else None,
                )
            )
    return rows


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--hosts", type=int, default=1000, help="(default: %(default)s)")
    options = parser.parse_args()
    deployment = Deployment(options.hosts, random.Random(1))
    with tempfile.TemporaryDirectory(prefix="acstor-control-") as directory:
        conf = configuration(pathlib.Path(directory))
        collections(deployment, conf)
        costs = [*states(deployment, conf), membership(deployment, conf), generations(deployment)]
        origin = MemoryOrigin()
        Repository.init(origin)
        replace_decision(origin, None, deployment.decision)
        RingReference(origin).replace(None, deployment.ring)
        with served(origin) as relay:
            costs.append(looks(conf, origin, relay))
    comparison.report(f"A host's part of the control plane, {options.hosts} hosts", rows_of(costs),
                      options.json)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
