"""Stored bytes and speed of the codecs of packs, over the contents of real disks.

Contents: each disk of ``--disk`` (default: the guests that the testbed has made), and folders of
this machine, their files laid out at blocks of 4 KiB as a file system does. Each distinct chunk of
64 KiB that is not zero is compressed by every policy, on one thread, by ``stored_bytes`` of
``crates/pack``. Peer: ``zstd -3`` of the same content as a whole, which deduplicates nothing and
cannot be read at random. Decompressing includes CRC and digest; libzstd's does not.

Needs cargo and zstd. One command: ``python -m bench.pack_codecs [--disk FILE] [--json FILE]``.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from bench import comparison
from bench.comparison import Row, Series, at_most
from testbed import processes
from testbed.run_directory import DEFAULT_ROOT

ROOT = pathlib.Path(__file__).resolve().parent.parent
POLICIES = ("lz4", "zstd:-3", "zstd:-1", "zstd:1", "zstd:3", "zstd:6", "zstd:9", "zstd:9:lz4")
REGISTERED = ("lz4", "zstd:-3", "zstd:-1", "zstd:1")
"""Policies that are quick enough for a registration; the others are for a compaction."""
REGISTERED_RATIO_MAX = 1.45
COMPACTED_RATIO_MAX = 1.1
FOLDERS = {
    "programs": ("/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu"),
    "Python": (str(pathlib.Path(json.__file__).parent.parent),),
    "texts": ("/usr/share/doc", "/usr/share/man", "/etc"),
}
"""Contents of this machine, by name."""
FOLDERS_BYTES_MAX = 256 << 20
"""Bytes taken of each of them."""
BLOCK = 4096
BUILD_TIMEOUT_S = 1800.0
RUN_TIMEOUT_S = 1800.0


def build() -> pathlib.Path:
    """Build stored_bytes and return its path."""
    command = [
        "cargo",
        "build",
        "--release",
        "--locked",
        "--manifest-path",
        str(ROOT / "Cargo.toml"),
    ]
    command += ["-p", "acstor-pack", "--example", "stored_bytes", "--message-format=json"]
    for line in processes.run(command, timeout_s=BUILD_TIMEOUT_S).splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("name") == "stored_bytes" and message.get("executable"):
            return pathlib.Path(message["executable"])
    raise SystemExit("cargo built no stored_bytes")


def guests() -> list[pathlib.Path]:
    """The disks of the testbed's guests."""
    return sorted(DEFAULT_ROOT.glob("guests/*/disk.raw"))


def files_of(folders: Sequence[str]) -> Iterator[pathlib.Path]:
    for folder in folders:
        for file in sorted(pathlib.Path(folder).rglob("*")):
            if file.is_file() and not file.is_symlink():
                yield file


def lay_out(folders: Sequence[str], path: pathlib.Path) -> None:
    """Write the files of some folders to one file, each at a whole block."""
    with path.open("wb") as disk:
        for file in files_of(folders):
            content = file.read_bytes()[: FOLDERS_BYTES_MAX - disk.tell()]
            disk.write(content + bytes(-len(content) % BLOCK))
            if disk.tell() >= FOLDERS_BYTES_MAX:
                break


def zstd_bytes(disk: pathlib.Path) -> int:
    """Bytes that ``zstd -3`` makes of a disk; its runs of zeros take next to none."""
    with subprocess.Popen(["zstd", "-q", "-3", "-c", str(disk)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        size = 0
        while block := process.stdout.read(1 << 20):
            size += len(block)
    if process.returncode:
        raise SystemExit(f"zstd failed on {disk}")
    return size


def measure(program: pathlib.Path, disk: pathlib.Path) -> dict[str, Any]:
    """One run of all policies."""
    output = processes.run([str(program), str(disk), *POLICIES], timeout_s=RUN_TIMEOUT_S)
    result: dict[str, Any] = json.loads(output)
    return result


def rows_of(name: str, results: Sequence[dict[str, Any]], zstd: int) -> Iterator[Row]:
    plain = results[0]["plain_bytes"]
    peer = Series("zstd -3", "MB", [zstd / 1e6] * len(results))

    def speed(policy: str, field: str) -> Series:
        times = [one["policies"][policy][field] for one in results]
        return Series(policy, "MB/s", [plain / 1e6 / time if time else 0.0 for time in times])

    for policy in POLICIES:
        stored = [one["policies"][policy]["stored_bytes"] / 1e6 for one in results]
        bound = REGISTERED_RATIO_MAX if policy in REGISTERED else COMPACTED_RATIO_MAX
        yield Row(
            f"{name}, {policy}, stored",
            Series(policy, "MB", stored),
            peer,
            f"{bound:g}x",
            at_most(bound),
        )
    for policy in POLICIES:
        yield Row(
            f"{name}, {policy}, compress", speed(policy, "compress_s"), speed("lz4", "compress_s")
        )
    for policy in POLICIES:
        yield Row(
            f"{name}, {policy}, decompress",
            speed(policy, "decompress_s"),
            speed("lz4", "decompress_s"),
        )


def main() -> int:
    parser: argparse.ArgumentParser = comparison.arguments(__doc__ or "")
    parser.add_argument("--disk", type=pathlib.Path, action="append", metavar="FILE", help="raw")
    options = parser.parse_args()
    program = build()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="pack-codecs-") as folder:
        disks = {f"disk {number}": disk for number, disk in enumerate(options.disk or guests(), 1)}
        for name, folders in FOLDERS.items():
            disks[name] = pathlib.Path(folder) / name
            lay_out(folders, disks[name])
        for name, disk in disks.items():
            results = [measure(program, disk) for _ in range(options.runs)]
            rows.extend(rows_of(name, results, zstd_bytes(disk)))
    comparison.report("codecs of packs, chunks of 64 KiB, one thread", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
