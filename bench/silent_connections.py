"""Readers beside 10,000 connections to the peer port that say nothing.

  peer       64 KiB chunks by ``peer_bench`` of ``crates/peer`` with TLS over the loopback
             interface, one at a time and as fast as four connections at depth 16 go; the reader's
             connections are made anew, among the silent ones.
  fuse       a boot's sort of reads, one 64 KiB chunk after the other in no order, O_DIRECT, each
             for the first time, of an image that a data plane mounts; a second data plane, to
             whose port the silent ones go, has the other half of the ring. Both with TLS.

Three cases take turns: *alone*; *beside*, the crowd at the port that is read from; *elsewhere*, the
same crowd at another server of the machine, which tells what of it is the processors being taken.
All the time 10,000 connections are there or being made, each from an address of its own; what the
server closes is made again after --reopen seconds. How many of them the kernel and the server had
is printed, and what went wrong for the reader.

Runs in a network namespace of its own. Needs root, cargo, and 11,000 descriptors for a process. One
command: ``python -m bench.silent_connections [--reopen S] [--json FILE]``.
"""

import argparse
import contextlib
import json
import mmap
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import comparison, peer_link, silent_crowd
from testbed import processes
from testbed.fixtures.hosts import Cloud, Host, Image, cloud_in
from testbed.measurement import machine

COUNT = 10_000
SECONDS = 5
CASES = ("alone", "beside", "elsewhere")
SHAPES = peer_link.SHAPES
FIRST_PORT = 7420
IMAGE_SIZE = 64 << 20
CHUNK_SIZE = 64 << 10
INSIDE = "ACSTOR_BENCH_NAMESPACE"

Result = dict[str, Any]


class Server:
    """``peer_bench server`` with TLS on a free port."""

    def __init__(self, program: str, certificates: pathlib.Path) -> None:
        self.options = ["--mode", "tls", "--certificates", str(certificates)]
        self._program = program
        self._process = subprocess.Popen(
            [program, "server", "--address", "127.0.0.1:0", *self.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    @property
    def target(self) -> tuple[int, int]:
        """Port and process."""
        return int(self.address.rpartition(":")[2]), self._process.pid

    def measure(self, shape: tuple[int, int]) -> Result:
        """Return what a client of so many connections and such a depth sees."""
        connections, depth = shape
        command = [self._program, "client", "--address", self.address, *self.options]
        command += ["--seconds", str(SECONDS), "--connections", str(connections)]
        command += ["--depth", str(depth), "--on-error", "count"]
        result: Result = json.loads(processes.run(command))
        return result

    def stop(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


@contextlib.contextmanager
def crowd(
    case: str, target: tuple[int, int], other: tuple[int, int], reopen_s: float
) -> Iterator[Result]:
    """Within the block the crowd of a case is there; afterwards the result has what it was."""
    found: Result = {}
    if case == "alone":
        yield found
        return
    port, pid = target if case == "beside" else other
    attack = silent_crowd.Attack("127.0.0.1", port, COUNT, reopen_s, pid)
    try:
        yield found
    finally:
        found |= attack.stop()


def read_chunks(path: pathlib.Path, rng: random.Random) -> Result:
    """Read a file chunk by chunk in no order, past the page cache."""
    offsets = list(range(0, IMAGE_SIZE, CHUNK_SIZE))
    rng.shuffle(offsets)
    latencies, errors = [], 0
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, CHUNK_SIZE) as buffer:
            for offset in offsets:
                began = time.perf_counter()
                try:
                    size = os.preadv(descriptor, [buffer], offset)
                except OSError:
                    size = -1
                errors += size != CHUNK_SIZE
                latencies.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(descriptor)
    latencies.sort()
    return {
        "p50_us": statistics.median(latencies),
        "p99_us": latencies[len(latencies) * 99 // 100],
        "max_us": latencies[-1],
        "throughput_mb_s": IMAGE_SIZE / sum(latencies),
        "requests": len(latencies),
        "errors": errors,
    }


class MountedImages:
    """Two data planes of one ring and images that nobody has read yet."""

    def __init__(self, cloud: Cloud, certificates: pathlib.Path) -> None:
        self._cloud = cloud
        tls = {
            "tls_enabled": True,
            "ca_file": certificates / "ca.pem",
            "cert_file": certificates / "host.pem",
            "key_file": certificates / "host.key",
        }
        self.hosts = [
            cloud.add_host(
                peer={**tls, "listen_port": FIRST_PORT + number}, store={"capacity": "1GiB"}
            )
            for number in range(2)
        ]

    @property
    def target(self) -> tuple[int, int]:
        """Port and process of the data plane that is asked by the one that is read from."""
        pid = self.hosts[0].dataplane_pid()
        assert pid is not None
        return FIRST_PORT, pid

    def fresh(self) -> Image:
        """Return an image that both offer."""
        image = self._cloud.register(IMAGE_SIZE)
        self._cloud.wait_ready(image)
        return image

    def measure(self, image: Image) -> Result:
        """Read an image on the second host."""
        reader = self.hosts[1]
        before = self._tiers(reader)
        found = read_chunks(reader.file(image), random.Random(image.id))
        after = self._tiers(reader)
        return found | {f"chunks_{tier}": after[tier] - before[tier] for tier in after}

    @staticmethod
    def _tiers(host: Host) -> dict[str, float]:
        tiers = ("peer", "origin")
        return {tier: host.metric("acstor_read_chunks", tier=tier) for tier in tiers}


def measure_peers(program: str, certificates: pathlib.Path, runs: int, reopen_s: float) -> Result:
    """Return by shape and case the runs of peer_bench."""
    found: Result = {}
    for name, shape in SHAPES.items():
        server, other = Server(program, certificates), Server(program, certificates)
        try:
            found[f"peer, {name}"] = in_turns(
                lambda case, server=server, other=other: (  # type: ignore[misc]
                    crowd(case, server.target, other.target, reopen_s)
                ),
                lambda server=server, shape=shape: server.measure(shape),  # type: ignore[misc]
                runs,
            )
        finally:
            server.stop()
            other.stop()
    return found


def measure_fuse(program: str, certificates: pathlib.Path, runs: int, reopen_s: float) -> Result:
    """Return by case the runs through the mount."""
    other = Server(program, certificates)
    try:
        with tempfile.TemporaryDirectory() as folder, cloud_in(pathlib.Path(folder)) as cloud:
            mounted = MountedImages(cloud, certificates)
            images = iter([mounted.fresh() for _ in range(runs * len(CASES))])
            return {
                "fuse": in_turns(
                    lambda case: crowd(case, mounted.target, other.target, reopen_s),
                    lambda: mounted.measure(next(images)),
                    runs,
                )
            }
    finally:
        other.stop()


def in_turns(
    attack: Callable[[str], contextlib.AbstractContextManager[Result]],
    read: Callable[[], Result],
    runs: int,
) -> dict[str, list[Result]]:
    """Return the runs of each case, which take turns."""
    found: dict[str, list[Result]] = {case: [] for case in CASES}
    for _ in range(runs):
        for case in CASES:
            with attack(case) as attackers:
                result = read()
            found[case].append({**result, "crowd": attackers})
            print(f"{case}: {json.dumps(found[case][-1])}", flush=True)
    return found


def table(results: Result) -> list[Result]:
    """Return a line of medians for each reader and case, p50 and p99 with their spread."""
    lines = []
    for reader, cases in results.items():
        for case, runs in cases.items():
            line: Result = {"reader": reader, "case": case}
            for field in ("p50_us", "p99_us"):
                values = [run[field] for run in runs]
                line[field] = statistics.median(values)
                line[f"{field}_of_runs"] = [min(values), max(values)]
            line["errors"] = sum(run["errors"] for run in runs)
            line["requests"] = sum(run["requests"] for run in runs)
            for field in (
                "established_p50",
                "server_sockets_p50",
                "crowd_sockets_p50",
                "opened_per_s",
            ):
                values = [run["crowd"][field] for run in runs if field in run["crowd"]]
                line[field] = statistics.median(values) if values else 0
            lines.append(line)
    return lines


def report(lines: list[Result]) -> None:
    """Print the table."""
    head = ("p50 us", "p99 us", "errors", "established", "server has", "crowd has", "opened/s")
    print(f"\n{'':44}" + "".join(f"{text:>13}" for text in head))
    for line in lines:
        fields = (
            f"{line['p50_us']:,.0f}",
            f"{line['p99_us']:,.0f}",
            f"{line['errors']}/{line['requests']}",
            f"{line['established_p50']:,.0f}",
            f"{line['server_sockets_p50']:,.0f}",
            f"{line['crowd_sockets_p50']:,.0f}",
            f"{line['opened_per_s']:,.0f}",
        )
        name = f"{line['reader']}: {line['case']}"
        print(f"{name:44}" + "".join(f"{text:>13}" for text in fields))


def enter_namespace() -> None:
    """Go on in a network namespace of its own, whose ports and connections are nobody else's."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        command = ["unshare", "--net", sys.executable, "-m", "bench.silent_connections"]
        os.execvp(command[0], [*command, *sys.argv[1:]])
    processes.run(["ip", "link", "set", "lo", "up"])


def arguments() -> argparse.Namespace:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--reopen", type=float, default=0.0, metavar="S", help="(default: at once)")
    parser.add_argument("--program", metavar="FILE", help="peer_bench, where it is built already")
    parser.add_argument("--readers", nargs="+", choices=("peer", "fuse"), default=("peer", "fuse"))
    return parser.parse_args()


def main() -> int:
    options = arguments()
    program = options.program or str(peer_link.build())
    enter_namespace()
    silent_crowd.raise_descriptors()
    about = machine()
    results: Result = {}
    with tempfile.TemporaryDirectory() as folder:
        certificates = pathlib.Path(folder)
        processes.run([program, "certificates", folder, "127.0.0.1", "h0", "h1", "bench"])
        if "peer" in options.readers:
            results |= measure_peers(program, certificates, options.runs, options.reopen)
        if "fuse" in options.readers:
            results |= measure_fuse(program, certificates, options.runs, options.reopen)
    lines = table(results)
    report(lines)
    if options.json is not None:
        found = {"machine": about, "reopen_s": options.reopen, "rows": lines, "runs": results}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
