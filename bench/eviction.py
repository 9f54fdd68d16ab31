"""Hit ratios of the eviction policies on a recorded boot, beside the best that is possible.

  two boots           the recorded boot, twice: what is left for the second one.
  boot, scan, boot    between them the whole disk is read once from its start to its end, as a
                      backup does (that part is made, not recorded).
  two images          the boot, the same reads on another disk, and the boot again.

``optimal`` knows the future (Belady). The cache holds a share of the chunks that one boot touches.

Needs cargo. One command: ``python -m bench.eviction [--trace FILE] [--json FILE]``.
"""

import argparse
import json
import pathlib
import sys
import tempfile
from typing import Any

from testbed import boot_trace, processes
from testbed.boot_trace import BootTrace
from testbed.measurement import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACE = ROOT / "bench" / "traces" / "debian-12-boot.jsonl"
BUILD_TIMEOUT_S = 900.0
SCAN_LENGTH = 1 << 20
CHUNK_SIZE = 64 << 10
SHARES = (10, 25, 50, 75, 100, 150)  # per cent


def build() -> pathlib.Path:
    """Build the comparison and return its path."""
    manifest = str(ROOT / "Cargo.toml")
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", manifest]
    command += ["-p", "acstor-store", "--example", "eviction_compare", "--message-format=json"]
    for line in processes.run(command, timeout_s=BUILD_TIMEOUT_S).splitlines():
        message = json.loads(line)
        is_it = message.get("target", {}).get("name") == "eviction_compare"
        if is_it and message.get("executable"):
            return pathlib.Path(message["executable"])
    raise SystemExit("cargo built no eviction_compare")


def scenario_lines(trace: BootTrace, name: str) -> list[str]:
    """The reads of a scenario, one JSON object per line."""

    def reads(disk: str) -> list[str]:
        return [
            json.dumps({"disk": disk, "offset": read.offset, "length": read.length})
            for read in trace.reads
        ]

    scan = [
        json.dumps({"disk": "a", "offset": offset, "length": SCAN_LENGTH})
        for offset in range(0, trace.disk_size_bytes, SCAN_LENGTH)
    ]
    parts = {
        "two boots": [reads("a"), reads("a")],
        "boot, scan, boot": [reads("a"), scan, reads("a")],
        "two images": [reads("a"), reads("b"), reads("a")],
    }
    return [line for part in parts[name] for line in part]


def compare(program: pathlib.Path, lines: list[str], slots: list[int]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".trace") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        command = [str(program), "--json", "--chunk-size", str(CHUNK_SIZE)]
        command += ["--slots", ",".join(map(str, slots)), file.name]
        result: dict[str, Any] = json.loads(processes.run(command, timeout_s=300))
    return result


def show(name: str, result: dict[str, Any]) -> None:
    policies = sorted(result["sizes"][0]["hit_ratio"])
    distinct = result["distinct_chunks"]
    print(f"\n{name}: {result['chunk_reads']} reads of chunks, {distinct} distinct; hits, per cent")
    print(f"{'capacity':>9}" + "".join(f"{policy:>9}" for policy in policies))
    for share, size in zip(SHARES, result["sizes"], strict=True):
        ratios = "".join(f"{100 * size['hit_ratio'][policy]:9.1f}" for policy in policies)
        print(f"{share:8}%{ratios}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=pathlib.Path, default=TRACE, metavar="FILE")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    trace = boot_trace.load(options.trace)
    program = build()
    chunk_count = len(trace.chunks(CHUNK_SIZE))
    slots = [max(8, chunk_count * share // 100) for share in SHARES]
    results = {}
    for name in ("two boots", "boot, scan, boot", "two images"):
        results[name] = compare(program, scenario_lines(trace, name), slots)
        show(name, results[name])
    if options.json is not None:
        document = {"trace": trace.source, "machine": machine(), "scenarios": results}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
