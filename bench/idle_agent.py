"""Processor time of an agent that has nothing to do, and of its start.

Two hosts of the test bed: real data planes, an origin in a directory, three etcd servers, a
RabbitMQ, five small images that are attached and pinned. All intervals are the defaults, but for
the delay before the first ring. One of the agents publishes rings, as one of a deployment does.
Members that are drained and that this program keeps alive make the deployment one of --members
hosts: of few hosts each tries more often for the lock of whoever publishes.

  start      processor time from the fork until the agent says that it is active, which is after
             its first reconcile pass with coordination there; the ring exists before. Of the agent
             that does not publish.
  idle       user and system time of both over --seconds, after --settle seconds of rest, as part
             of one core; and how often a thread waited, per second.

Needs root, FUSE, etcd and RabbitMQ. One command: ``python -m bench.idle_agent [--seconds S]
[--starts N] [--members N] [--json FILE]``.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from acstor.cluster.member import Member
from acstor.cluster.membership import CoordinationSettings, Membership
from testbed.fixtures.broker import broker_in
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.etcd import EtcdCluster
from testbed.fixtures.hosts import MIB, Host, cloud_in
from testbed.measurement import machine

IMAGES = 5
IDLE_TARGET, START_TARGET = 0.003, 1.5
"""Part of a core; seconds."""
ACTIVE = "agent is active"
DEFAULTS: dict[str, object] = {"interval": 5, "ring_settle_delay": 1, "metrics_port": 0}

Result = dict[str, Any]


def processor_seconds(pid: int) -> float:
    """Return the user and system time that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waits(pid: int) -> dict[int, int]:
    """Return by thread how often it has waited."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    found[int(task.name)] = int(line.split()[1])
    return found


def start(host: Host) -> float:
    """Start the host's agent and return the processor seconds until it is active."""
    told = host.log_path.stat().st_size
    host.start_agent()
    pid = host.pid("agent")

    def spent() -> float | None:
        text = host.log_path.read_bytes()[told:].decode(errors="replace")
        return processor_seconds(pid) if ACTIVE in text else None

    return wait_for("an active agent", spent)


def idle(hosts: dict[str, Host], seconds: float) -> dict[str, Result]:
    """Return what the agents use while nothing happens."""
    pids = {role: host.pid("agent") for role, host in hosts.items()}
    before = {role: (waits(pid), processor_seconds(pid)) for role, pid in pids.items()}
    began = time.monotonic()
    time.sleep(seconds)
    length = time.monotonic() - began
    found = {}
    for role, pid in pids.items():
        (waited, used), later = before[role], waits(pid)
        counts = [count - waited.get(task, 0) for task, count in later.items()]
        found[role] = {
            "core": (processor_seconds(pid) - used) / length,
            "seconds": length,
            "threads": len(later),
            "waits_per_s": sum(counts) / length,
        }
    return found


def member(number: int) -> Member:
    """Return a host that owns nothing."""
    return Member(
        f"m{number}", f"127.1.0.{number}:7420", f"127.1.0.{number}:9471", 1 << 30, "0", "", True
    )


@contextlib.contextmanager
def members(settings: CoordinationSettings, count: int) -> Iterator[None]:
    """Within the block so many other hosts are members, and publish nothing."""
    crowd = [Membership(settings, f"m{number}", lambda: None) for number in range(count)]
    for number, one in enumerate(crowd):
        one.set_eligible(False)
        one.join_as(member(number))
        one.start()
    try:
        yield
    finally:
        for one in crowd:
            one.stop(10.0, leave=True)


def measure(path: pathlib.Path, arguments: argparse.Namespace) -> Result:
    """Run everything in a directory and return the figures."""
    with contextlib.ExitStack() as stack:
        (path / "etcd").mkdir()
        etcd = EtcdCluster(path / "etcd")
        stack.callback(etcd.stop)
        etcd.start()
        broker = stack.enter_context(broker_in(path / "broker"))
        cloud = stack.enter_context(cloud_in(path))
        images = [cloud.register(4 * MIB) for _ in range(IMAGES)]
        options: dict[str, dict[str, object]] = {
            "DEFAULT": {"transport_url": broker.url},
            "agent": DEFAULTS,
            "coordination": {"backend_url": etcd.backend_url},
        }
        settings = CoordinationSettings(etcd.backend_url, "acstor", 2.0, 10)
        stack.enter_context(members(settings, max(0, arguments.members - 2)))
        publisher, other = (Host(cloud, name, options) for name in ("h0", "h1"))
        for host in (publisher, other):
            cloud.hosts.append(host)
            host.start_dataplane()
            start(host)
        files = [host.file(image) for host in cloud.hosts for image in images]
        wait_for("images everywhere", lambda: all(file.exists() for file in files))
        starts = []
        for _ in range(arguments.starts):
            other.kill("agent")
            starts.append(start(other))
        time.sleep(arguments.settle)
        found = idle({"publisher": publisher, "other": other}, arguments.seconds)
        return {"starts_s": starts, "idle": found}


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and tell by the status whether the targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle_agent")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--settle", type=float, default=60)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="acstor-idle-") as directory:
        found = measure(pathlib.Path(directory), arguments)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")
    started = statistics.median(found["starts_s"])
    print(f"start: {started:.2f} s of processor, target {START_TARGET} s; {found['starts_s']}")
    for role, rest in found["idle"].items():
        print(
            f"idle, {role}: {100 * rest['core']:.2f} % of a core, target {100 * IDLE_TARGET} %; "
            f"{rest['threads']} threads, {rest['waits_per_s']:.1f} waits/s"
        )
    cores = [rest["core"] for rest in found["idle"].values()]
    return 0 if started <= START_TARGET and max(cores) <= IDLE_TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
