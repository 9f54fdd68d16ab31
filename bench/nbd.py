"""Our NBD server beside nbdkit and qemu-nbd: random and sequential requests over a unix socket.

The same raw file in memory (tmpfs) behind every server, fio's nbd engine as the client, all in
turns on this machine; the client and the server share its processors. Ours is the example
``nbd_serve`` of ``crates/nbd`` with its file device (pread, pwrite), so that what differs is the
server and not what is under it; ``memory`` is its device in memory beside nbdkit's. Targets: at
least 0.8 times the better one of the two peers with the file. The processor time that a server
takes for a request is given too: it also holds on a machine that does other things.

Needs cargo, fio, nbdkit and qemu-nbd. One command: ``python -m bench.nbd [--json FILE]``.
"""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from bench import comparison, served_disk
from bench.comparison import Row, Series
from testbed import processes

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE = 512 << 20
SECONDS = 2
BUILD_TIMEOUT_S = 1800.0
#: Name of the figure: kind of request, bytes, depth.
SHAPES = {
    "random read 4 KiB, depth 1": ("randread", "4k", 1),
    "random read 4 KiB, depth 32": ("randread", "4k", 32),
    "random write 4 KiB, depth 1": ("randwrite", "4k", 1),
    "random write 4 KiB, depth 32": ("randwrite", "4k", 32),
    "random read 64 KiB, depth 32": ("randread", "64k", 32),
    "random write 64 KiB, depth 32": ("randwrite", "64k", 32),
    "read 1 MiB, depth 4": ("read", "1M", 4),
    "write 1 MiB, depth 4": ("write", "1M", 4),
}
TARGET = 0.8


def build() -> pathlib.Path:
    """Build nbd_serve and return its path."""
    manifest = str(ROOT / "Cargo.toml")
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", manifest]
    command += ["-p", "acstor-nbd", "--example", "nbd_serve", "--message-format=json"]
    for line in processes.run(command, timeout_s=BUILD_TIMEOUT_S).splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("name") == "nbd_serve" and message.get("executable"):
            return pathlib.Path(message["executable"])
    raise SystemExit("cargo built no nbd_serve")


@dataclasses.dataclass(frozen=True)
class Server:
    """A running server."""

    uri: str
    pid: int


@dataclasses.dataclass(frozen=True)
class Figure:
    """Result of one run of fio."""

    per_second: float
    cpu_us: float  #: processor time of the server for a request


@contextlib.contextmanager
def served(name: str, command: Sequence[str], directory: pathlib.Path) -> Iterator[Server]:
    """Run a server on the socket ``<name>.sock``."""
    socket = directory / f"{name}.sock"
    process = subprocess.Popen(
        [processes.require(command[0]), *command[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        processes.wait_until(socket.exists, f"{name} listens", timeout_s=20)
        yield Server(f"nbd+unix:///disk?socket={socket}", process.pid)
    finally:
        assert process.stdin is not None
        process.stdin.close()  # ends ours
        if name.startswith("acstor"):
            process.wait(timeout=20)
        process.terminate()
        process.wait(timeout=20)


def servers(program: pathlib.Path, directory: pathlib.Path) -> dict[str, list[str]]:
    """Return the command of every server, by name; each has a file of its own."""

    def file(name: str) -> str:
        path = directory / f"{name}.raw"
        processes.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={SIZE >> 20}"])
        return str(path)

    def socket(name: str) -> str:
        return str(directory / f"{name}.sock")

    kit = ["nbdkit", "--foreground", "--exportname=disk", "--unix"]
    qemu = ["qemu-nbd", "--persistent", "--shared=16", "--format=raw", "--export-name=disk"]
    return {
        "acstor": [str(program), "--socket", socket("acstor"), "--file", file("acstor")],
        "nbdkit": [*kit, socket("nbdkit"), "file", file("nbdkit")],
        "qemu-nbd": [*qemu, "--socket", socket("qemu-nbd"), file("qemu-nbd")],
        "acstor-memory": [
            str(program), "--socket", socket("acstor-memory"), "--memory", str(SIZE),
        ],
        "nbdkit-memory": [*kit, socket("nbdkit-memory"), "memory", str(SIZE)],
    }  # fmt: skip


def measure(server: Server, shape: tuple[str, str, int]) -> Figure:
    """Let fio ask a server for some seconds."""
    kind, block, depth = shape
    command = ["fio", "--name=bench", "--ioengine=nbd", f"--uri={server.uri}", f"--rw={kind}"]
    command += [f"--bs={block}", f"--iodepth={depth}", f"--size={SIZE}", "--randrepeat=1"]
    command += ["--time_based", f"--runtime={SECONDS}", "--output-format=json"]
    before = served_disk.cpu_seconds(server.pid)
    output = processes.run(command, timeout_s=60.0)
    seconds = served_disk.cpu_seconds(server.pid) - before
    job = json.loads(output[output.index("{") :])["jobs"][0]
    figures = job["read" if "read" in kind else "write"]
    return Figure(float(figures["iops"]), seconds * 1e6 / max(1, figures["total_ios"]))


def rows_of(name: str, results: dict[str, list[Figure]]) -> list[Row]:
    """The figures of one shape: against either peer with the file, and in memory."""

    def rates(server: str) -> Series:
        return Series(server, "/s", [figure.per_second for figure in results[server]])

    def times(server: str) -> Series:
        # A clock tick is 10 ms: no run is without one.
        return Series(server, "us", [max(figure.cpu_us, 0.01) for figure in results[server]])

    pairs = [("acstor", "nbdkit"), ("acstor", "qemu-nbd"), ("acstor-memory", "nbdkit-memory")]
    rows = []
    for ours, peer in pairs:
        what = f"{'memory' if 'memory' in ours else 'file'}: {name}"
        met = comparison.at_least(TARGET)
        rows.append(Row(what, rates(ours), rates(peer), f">= {TARGET:g}x", met))
        rows.append(Row(f"{what}: server's time", times(ours), times(peer)))
    return rows


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--program", type=pathlib.Path, help="nbd_serve, built already")
    parser.add_argument("--only", help="figures whose name contains this")
    options = parser.parse_args()
    program = options.program or build()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        commands = servers(program, directory)
        running = {
            name: stack.enter_context(served(name, command, directory))
            for name, command in commands.items()
        }
        for server in running.values():  # no holes, every page is there
            measure(server, ("write", "1M", 4))
        for name, shape in SHAPES.items():
            if options.only and options.only not in name:
                continue
            results: dict[str, list[Figure]] = {server: [] for server in running}
            for _ in range(options.runs):
                for each, server in running.items():
                    results[each].append(measure(server, shape))
            rows += rows_of(name, results)
    comparison.report("NBD servers, one client over a unix socket", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
