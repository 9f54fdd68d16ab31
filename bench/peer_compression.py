"""Chunks from a peer over a narrow link: as they are, and compressed.

Throughput of 64 KiB chunks over one connection at depth 8, without TLS, between two namespaces
whose links carry 10 Mbit/s: what a host gets whose own link, or whose peer's, other traffic fills.
Content: with ``--disk`` the chunks that a recorded boot reads of a guest's disk, else the programs,
libraries and texts of this machine; how far it compresses is told with the result.

Needs root and cargo. One command: ``python -m bench.peer_compression [--disk FILE] [--json FILE]``.
"""

import argparse
import pathlib
import sys
from typing import Any

from bench import comparison, peer_link
from bench.comparison import Row, Series, at_least
from testbed import boot_trace, processes
from testbed.rates import LinkRate
from testbed.testbed import Testbed, TestbedSettings

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACE = ROOT / "bench" / "traces" / "debian-12-boot.jsonl"
CHUNK = 65_536
RATE_BITS_PER_S = 10_000_000
SECONDS = 8.0
SHAPE = (1, 8)
WISHES = ("welcome", "no")
FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu", "/usr/share/doc", "/etc")
"""Folders of a root file system that a boot reads from."""
BYTES_PER_FOLDER = 16 << 20


def of_boot(disk: pathlib.Path) -> bytes:
    """The distinct chunks with content that the trace touches."""
    found: dict[bytes, None] = {}
    with disk.open("rb") as file:
        for number in sorted(boot_trace.load(TRACE).chunks(CHUNK)):
            file.seek(number * CHUNK)
            content = file.read(CHUNK)
            if len(content) == CHUNK and content.strip(b"\0"):
                found[content] = None
    # In no order of theirs, so that any part of them is like the whole.
    shuffled: list[bytes] = sorted(found, key=boot_trace.content_digest)
    return b"".join(shuffled)


def of_this_machine() -> bytes:
    """The beginnings of typical files, one after the other."""
    content = bytearray()
    for folder in FOLDERS:
        end = len(content) + BYTES_PER_FOLDER
        for file in sorted(pathlib.Path(folder).rglob("*")):
            if len(content) >= end:
                break
            if file.is_file() and not file.is_symlink():
                content += file.read_bytes()[: end - len(content)]
    return bytes(content[: len(content) // CHUNK * CHUNK])


def rows_of(results: dict[str, list[dict[str, Any]]]) -> list[Row]:
    def series(wish: str, field: str, unit: str, factor: float = 1.0) -> Series:
        name = {"welcome": "compressed", "no": "as they are"}[wish]
        return Series(name, unit, [one[field] * factor for one in results[wish]])

    return [
        Row("chunks", series("welcome", "throughput_mb_s", "MB/s"),
            series("no", "throughput_mb_s", "MB/s"), "1.7x", at_least(1.7)),
        Row("one chunk, p50", series("welcome", "p50_us", "ms", 1e-3),
            series("no", "p50_us", "ms", 1e-3)),
        Row("CPU of both ends", series("welcome", "cpu_s_per_gib", "s/GiB"),
            series("no", "cpu_s_per_gib", "s/GiB")),
        Row("saved on the wire", series("welcome", "saved_share", "%", 100)),
    ]  # fmt: skip


def main() -> int:
    parser: argparse.ArgumentParser = comparison.arguments(__doc__ or "")
    parser.add_argument("--disk", type=pathlib.Path, metavar="FILE", help="of the trace, raw")
    options = parser.parse_args()
    program = peer_link.build()
    rate = LinkRate(RATE_BITS_PER_S)
    settings = TestbedSettings(host_count=2, origin_rate=rate, host_rate=rate)
    results: dict[str, list[dict[str, Any]]] = {wish: [] for wish in WISHES}
    with Testbed.create(settings) as testbed:
        server, client = testbed.hosts
        certificates = testbed.run.directory("certificates")
        processes.run([str(program), "certificates", str(certificates), server.address, "bench"])
        content = testbed.run.directory("content") / "chunks"
        content.write_bytes(of_boot(options.disk) if options.disk else of_this_machine())
        for _ in range(options.runs):
            for wish in WISHES:
                results[wish].append(
                    peer_link.measure(
                        program, server, client, certificates, "plain", SHAPE,
                        server_options=["--content", str(content)],
                        client_options=["--compressed", wish],
                        seconds=SECONDS,
                    )
                )  # fmt: skip
    comparison.report("64 KiB chunks from a peer over 10 Mbit/s", rows_of(results), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
