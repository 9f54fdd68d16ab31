"""The control loop of a storm: 32 agents and the policy service, in one process.

Runs as a process of its own (``python -m bench.acstor.control FILE``). What is in it is what the
programs are made of: each host's :class:`acstor.agent.agent.Agent` with its reconcilers on threads
inside of the host's network namespace, so that its monitor reads the counters of its own
interface and its origin is behind its own link; and the policy's
:class:`~acstor.policy.service.PolicyService` with its feed's endpoint, its journal and its office.
What is not: 32 interpreters (2 GB, and a second of a processor each to start), a message broker,
and the agents' endpoints for other hosts.
A state is composed as for the broker, encoded as JSON, and handed to the feed's endpoint at once:
it does not cross the shaped links; announcements of decisions and rings are calls, too. Decisions
and rings themselves are read from the origin over the links.

Prints one line when everything runs, and at its end what it did, as JSON.
"""

import argparse
import contextlib
import dataclasses
import json
import logging
import pathlib
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from oslo_config import cfg
from pyroute2 import netns

from acstor.agent import assembly
from acstor.agent.agent import ORIGIN_DEADLINE, Agent
from acstor.agent.metrics import AgentMetrics
from acstor.agent.reconciler import Reconciler
from acstor.agent.reconcilers.host_state import HostStateReconciler
from acstor.conf import loading
from acstor.control.client import AdminClient
from acstor.origin import mounts
from acstor.origin.opening import open_origin
from acstor.policy.load_samples import LoadSamples
from acstor.policy.metrics import PolicyMetrics
from acstor.policy.service import PolicyService
from acstor.policy.state_listener import StateEndpoint
from acstor.telemetry import traffic
from acstor.telemetry.host_states import HostState

LOG = logging.getLogger("bench.acstor.control")

STOP_TIMEOUT = 15.0


@dataclasses.dataclass(frozen=True)
class ControlPlan:
    """Hosts and policy configuration of one control plane process."""

    hosts: dict[str, tuple[str, str]]
    """By name the network namespace and the configuration file of each host."""
    policy_config: str

    def save(self, path: pathlib.Path) -> None:
        """Write it."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: pathlib.Path) -> "ControlPlan":
        """Read what :meth:`save` wrote."""
        fields = json.loads(path.read_text())
        hosts = {name: (str(one[0]), str(one[1])) for name, one in fields["hosts"].items()}
        return cls(hosts, str(fields["policy_config"]))


class DirectPublisher:
    """Takes an agent's states to the policy's endpoint, through the message's own encoding."""

    def __init__(self, endpoint: StateEndpoint) -> None:
        self._endpoint = endpoint
        self.messages = 0
        self.bytes = 0

    def start(self) -> None:
        """Nothing is to be started."""

    def send(self, state: HostState) -> None:
        """Encode, decode, deliver."""
        encoded = json.dumps(state.to_message()).encode()
        self.messages += 1
        self.bytes += len(encoded)
        self._endpoint.host_state({}, json.loads(encoded))

    def stop(self, timeout: float) -> None:
        """Nothing is to be stopped."""


class HostControl:
    """One host's agent on threads of its own, in its network namespace."""

    def __init__(
        self,
        name: str,
        namespace: str,
        config: str,
        endpoint: StateEndpoint,
        announce_ring: Callable[[int], None],
    ) -> None:
        self._namespace = namespace
        self.publisher = DirectPublisher(endpoint)
        conf = loading.load("acstor-agent", ["--config-file", config])
        metrics = AgentMetrics()
        built = assembly.build(conf, metrics)
        self.agent = Agent(
            conf,
            open_origin=lambda: open_origin(
                conf.origin.url, min(ORIGIN_DEADLINE, conf.origin.timeout)
            ),
            metrics=metrics,
            metrics_address=f"{conf.agent.metrics_address}:{conf.agent.metrics_port}",
            announce_ring=announce_ring,
            reconcilers=[self._told(conf, reconciler) for reconciler in built],
        )
        self._thread = threading.Thread(target=self._run, name=f"agent-{name}", daemon=True)

    def start(self) -> None:
        """Start the agent."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the agent's end."""
        self._thread.join(timeout)

    def _run(self) -> None:
        # This thread, and those that the agent starts from it.
        netns.setns(self._namespace)
        self.agent.run()

    def _told(self, conf: cfg.ConfigOpts, reconciler: Reconciler) -> Reconciler:
        """Return the reconciler; the one of host states with a publisher in place of a broker."""
        if not isinstance(reconciler, HostStateReconciler):
            return reconciler
        return HostStateReconciler(
            conf.host,
            conf.agent.state_interval,
            data_plane=AdminClient(conf.dataplane.admin_socket),
            interfaces=traffic.NetlinkInterfaces(conf.agent.interfaces, conf.agent.link_speed),
            is_origin_remote=mounts.is_remote(conf.origin.url),
            publisher=self.publisher,
            requests_max=conf.peer.requests_inflight_max,
        )


def policy_service(
    conf: cfg.ConfigOpts, load_samples: LoadSamples, announce: Callable[[bool], None]
) -> PolicyService:
    """Return the service as ``acstor-policy`` makes it, with the feed left to the publishers."""
    return PolicyService(
        conf,
        open_origin=lambda: open_origin(conf.origin.url, ORIGIN_DEADLINE),
        load_samples=load_samples,
        metrics=PolicyMetrics(),
        announce=announce,
    )


def run(plan: ControlPlan, stop: threading.Event) -> dict[str, Any]:
    """Run everything until ``stop`` is set; return what it did."""
    conf = loading.load("acstor-policy", ["--config-file", plan.policy_config])
    load_samples = LoadSamples(conf.policy.interval)
    endpoint = StateEndpoint(load_samples)
    controls: dict[str, HostControl] = {}

    # What the broker's announcements do: agents look now, not at their next look.

    def announce_decision(concerns_all: bool) -> None:
        for control in controls.values():
            control.agent.hear_decision(concerns_all)

    def announce_ring(generation: int) -> None:
        for control in controls.values():
            control.agent.hear_ring(generation)

    for name, (namespace, config) in plan.hosts.items():
        controls[name] = HostControl(name, namespace, config, endpoint, announce_ring)
    policy = policy_service(conf, load_samples, announce_decision)
    office = threading.Thread(target=policy.run, name="policy", daemon=True)
    for control in controls.values():
        control.start()
    office.start()
    sys.stdout.write("running\n")
    sys.stdout.flush()
    started, before = time.monotonic(), time.process_time()
    stop.wait()
    elapsed, spent = time.monotonic() - started, time.process_time() - before
    policy.stop()
    for control in controls.values():
        control.agent.stop()
    deadline = time.monotonic() + STOP_TIMEOUT
    office.join(STOP_TIMEOUT)
    for control in controls.values():
        control.join(max(0.0, deadline - time.monotonic()))
    publishers = [control.publisher for control in controls.values()]
    return {
        "seconds": elapsed,
        "cpu_s": spent,
        "memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "states": sum(publisher.messages for publisher in publishers),
        "state_bytes": sum(publisher.bytes for publisher in publishers),
        "samples": {" ".join(key): count for key, count in load_samples.counts.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a plan until SIGTERM."""
    parser = argparse.ArgumentParser(prog="bench.acstor.control", description=__doc__)
    parser.add_argument("plan", type=pathlib.Path)
    parsed = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s %(message)s"
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    found = run(ControlPlan.load(parsed.plan), stop)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
