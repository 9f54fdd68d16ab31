"""A chunk from a peer over a link between two namespaces: plain, TLS, bare request and answer.

Latency of 64 KiB at one connection and depth 1 (p50, p99), throughput of 4 connections at depth 16,
processor time of both ends per GiB, by ``peer_bench`` of ``crates/peer``. The link is a pair of
veth devices and a bridge, shaped to 40 Gbit/s, which this machine does not reach: what is measured
is the protocol and the kernel. Peer: the same bytes over TCP without any protocol.

Needs root and cargo. One command: ``python -m bench.peer_link [--json FILE]``.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench import comparison
from bench.comparison import Row, Series
from testbed import processes
from testbed.network import Namespace
from testbed.rates import RATE_MAX_BITS_PER_S, LinkRate
from testbed.testbed import Testbed, TestbedSettings

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = ("plain", "tls", "bare")
SECONDS = 2
BUILD_TIMEOUT_S = 900.0
SHAPES = {"1 connection, depth 1": (1, 1), "4 connections, depth 16": (4, 16)}


def build() -> pathlib.Path:
    """Build peer_bench and return its path."""
    manifest = str(ROOT / "Cargo.toml")
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", manifest]
    command += ["-p", "acstor-peer", "--example", "peer_bench", "--message-format=json"]
    for line in processes.run(command, timeout_s=BUILD_TIMEOUT_S).splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("name") == "peer_bench" and message.get("executable"):
            return pathlib.Path(message["executable"])
    raise SystemExit("cargo built no peer_bench")


def measure(
    program: pathlib.Path,
    server: Namespace,
    client: Namespace,
    certificates: pathlib.Path,
    mode: str,
    shape: tuple[int, int],
    *,
    server_options: Sequence[str] = (),
    client_options: Sequence[str] = (),
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """One run."""
    common = ["--mode", mode, "--certificates", str(certificates)]
    command = [str(program), "server", "--address", f"{server.address}:0", *common]
    command += server_options
    process = subprocess.Popen(
        processes.in_namespace(server, command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        connections, depth = shape
        command = [str(program), "client", "--address", address, *common, "--seconds", str(seconds)]
        command += ["--connections", str(connections), "--depth", str(depth), *client_options]
        result: dict[str, Any] = json.loads(processes.run(command, namespace=client))
    finally:
        rest, _ = process.communicate(timeout=20)
    server_seconds = json.loads(rest.splitlines()[0])["cpu_seconds"]
    result["cpu_s_per_gib"] = (
        result["client_cpu_seconds_per_gib"] + server_seconds * (1 << 30) / result["bytes"]
    )
    return result


def rows_of(name: str, results: dict[str, list[dict[str, Any]]]) -> list[Row]:
    rows = []
    fields = [("p50_us", "us"), ("p99_us", "us"), ("throughput_mb_s", "MB/s"),
              ("cpu_s_per_gib", "CPU s/GiB")]  # fmt: skip
    for mode in ("plain", "tls"):
        for field, unit in fields:
            rows.append(
                Row(
                    f"{mode}, {name}: {field.split('_')[0]}",
                    Series(mode, unit, [one[field] for one in results[mode]]),
                    Series("bare TCP", unit, [one[field] for one in results["bare"]]),
                )
            )
    return rows


def main() -> int:
    options = comparison.arguments(__doc__ or "").parse_args()
    program = build()
    rate = LinkRate(RATE_MAX_BITS_PER_S)
    settings = TestbedSettings(host_count=2, origin_rate=rate, host_rate=rate)
    rows = []
    with Testbed.create(settings) as testbed:
        server, client = testbed.hosts
        certificates = testbed.run.directory("certificates")
        processes.run([str(program), "certificates", str(certificates), server.address, "bench"])
        for name, shape in SHAPES.items():
            results: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
            for _ in range(options.runs):
                for mode in MODES:
                    results[mode].append(
                        measure(program, server, client, certificates, mode, shape)
                    )
            rows += rows_of(name, results)
    comparison.report("A 64 KiB chunk from a peer over a namespace link", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
