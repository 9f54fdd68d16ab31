"""The NBD server and other people's clients: libnbd's, QEMU's and fio's."""

import json
import pathlib
import random
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from testbed import processes

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
SIZE = 64 * MIB
BUILD_TIMEOUT_S = 1800.0
STOP_TIMEOUT_S = 60.0

pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S + 300)


@pytest.fixture(scope="module")
def program() -> pathlib.Path:
    """The example server, built."""
    manifest = str(ROOT / "Cargo.toml")
    # The whole workspace has the features that its tests are built with: nothing is built twice.
    command = ["cargo", "build", "--locked", "--manifest-path", manifest, "--workspace"]
    command += ["--example", "nbd_serve", "--message-format=json"]
    for line in processes.run(command, timeout_s=BUILD_TIMEOUT_S).splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("name") == "nbd_serve" and message.get("executable"):
            return pathlib.Path(message["executable"])
    pytest.fail("cargo built no nbd_serve")


class Server:
    """A running server of one device."""

    def __init__(self, program: pathlib.Path, directory: pathlib.Path, *options: str) -> None:
        self.socket = directory / "disk.sock"
        self.process = subprocess.Popen(
            [str(program), "--socket", str(self.socket), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    @property
    def uri(self) -> str:
        return f"nbd+unix:///disk?socket={self.socket}"

    def order(self, text: str) -> str:
        """Give an order and return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self._line()

    def stop(self) -> None:
        """Stop it; it must not have had to cut anybody off."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=STOP_TIMEOUT_S) == 0

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def memory(program: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Server]:
    """A server of an empty device in memory."""
    server = Server(program, tmp_path, "--memory", str(SIZE))
    yield server
    server.stop()


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    """A raw file of data and holes."""
    path = tmp_path / "disk.raw"
    source = random.Random(4)
    with path.open("wb") as file:
        file.truncate(SIZE)
        for offset in (0, 5 * MIB + 4096, 40 * MIB, SIZE - MIB):
            file.seek(offset)
            file.write(source.randbytes(MIB))
    return path


def run(*command: str) -> str:
    return processes.run(command, timeout_s=120.0)


def qemu_io(uri: str, orders: Sequence[str], *options: str) -> str:
    """Carry out orders; a pattern that does not match is an error."""
    steps = [argument for order in orders for argument in ("-c", order)]
    output = run("qemu-io", "-f", "raw", *options, *steps, uri)
    assert "verification failed" not in output, output
    return output


def test_nbdinfo_shows_what_is_offered(memory: Server) -> None:
    export = json.loads(run("nbdinfo", "--json", memory.uri))["exports"][0]
    assert export["export-name"] == "disk"
    assert export["export-size"] == SIZE
    assert export["contexts"] == ["base:allocation", "acstor:dirty"]
    for ability in ("cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"):
        assert export[f"can_{ability}"], ability
    assert not export["is_read_only"]
    sizes = [export[f"block_size_{name}"] for name in ("minimum", "preferred", "maximum")]
    assert sizes == [512, 4096, 32 * MIB]
    assert "disk" in run("nbdinfo", "--list", memory.uri)


def test_nbdcopy_there_and_back_is_the_same(
    memory: Server, disk: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run("nbdcopy", "--connections=4", "--requests=32", "--flush", str(disk), memory.uri)
    back = tmp_path / "back.raw"
    run("nbdcopy", "--connections=4", "--destination-is-zero", memory.uri, str(back))
    assert back.read_bytes() == disk.read_bytes()
    assert "Images are identical" in run(
        "qemu-img", "compare", "-f", "raw", "-F", "raw", str(disk), memory.uri
    )


def test_qemu_img_converts_and_maps(memory: Server, disk: pathlib.Path) -> None:
    run(
        "qemu-img",
        "convert",
        "-n",
        "-f",
        "raw",
        "-O",
        "raw",
        "-m",
        "16",
        "-W",
        str(disk),
        memory.uri,
    )
    info = json.loads(run("qemu-img", "info", "--output=json", memory.uri))
    assert info["virtual-size"] == SIZE

    def data(source: str) -> list[tuple[int, int]]:
        extents = json.loads(run("qemu-img", "map", "-f", "raw", "--output=json", source))
        return [(extent["start"], extent["length"]) for extent in extents if extent["data"]]

    assert data(memory.uri) == data(str(disk))
    assert "identical" in run(
        "qemu-img", "compare", "-f", "raw", "-F", "raw", str(disk), memory.uri
    )


def test_qemu_io_patterns_are_what_was_written(memory: Server) -> None:
    orders = [
        "write -P 0x11 0 4M",
        "write -P 0x22 512 512",
        "write -f -P 0x33 1M 64k",
        "aio_write -P 0x44 2M 1M",
        "aio_write -P 0x55 5M 9M",
        "aio_flush",
        "write -z -u 1572864 65536",
        "write -z 3M 4096",
        "discard 3145728 65536",
        "flush",
        "read -P 0x11 0 512",
        "read -P 0x22 512 512",
        "read -P 0x33 1M 64k",
        "read -P 0 1572864 65536",
        "read -P 0x44 2M 1M",
        "read -P 0 3M 65536",
        "read -P 0x11 3211264 983040",
        "read -P 0x55 5M 9M",
        "read -P 0 14M 50M",
    ]
    qemu_io(memory.uri, orders, "-t", "none")
    qemu_io(memory.uri, orders[10:])
    counts = memory.order("stats")
    for command in ("read", "write", "flush", "trim", "write_zeroes"):
        count = next(word for word in counts.split() if word.startswith(f"{command}="))
        requests, errors = count.partition("=")[2].split("/")
        assert int(requests) > 0, counts
        assert int(errors) == 0, counts


def test_qemu_io_beyond_the_end_is_refused(memory: Server) -> None:
    command = ["qemu-io", "-f", "raw", "-c", f"write {SIZE - 512} 1024", memory.uri]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
    assert result.returncode != 0
    qemu_io(memory.uri, [f"write -P 7 {SIZE - 512} 512", f"read -P 7 {SIZE - 512} 512"])


def test_dirty_extents_are_those_written_since_the_push(memory: Server) -> None:
    qemu_io(memory.uri, ["write -P 1 1M 64k"])
    memory.order("pushed")
    qemu_io(memory.uri, ["write -P 2 2M 8k"])
    extents = json.loads(run("nbdinfo", "--json", "--map=acstor:dirty", memory.uri))
    dirty = [(extent["offset"], extent["length"]) for extent in extents if extent["type"] & 1]
    assert dirty == [(2 * MIB, 8192)]


def test_a_grown_device_is_seen_by_clients_that_connect_anew(memory: Server) -> None:
    assert run("nbdinfo", "--size", memory.uri).strip() == str(SIZE)
    assert memory.order(f"grow {2 * SIZE}").startswith("done clients=0")
    assert run("nbdinfo", "--size", memory.uri).strip() == str(2 * SIZE)
    qemu_io(memory.uri, [f"write -P 9 {2 * SIZE - 4096} 4096"])


def test_qemu_reconnects_when_it_is_disconnected(memory: Server) -> None:
    image = "driver=raw,file.driver=nbd,file.export=disk,file.reconnect-delay=300"
    image += f",file.server.type=unix,file.server.path={memory.socket}"
    command = ["qemu-io", "--image-opts", "-t", "none", image]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdin is not None
    client.stdin.write("write -P 1 0 1M\n")
    client.stdin.flush()
    processes.wait_until(lambda: "write=0/" not in memory.order("stats"), "it wrote", timeout_s=120)
    assert memory.order("disconnect").startswith("done clients=0")
    output, _ = client.communicate("read -P 1 0 1M\nwrite -P 2 0 4k\nread -P 2 0 4k\nquit\n", 240)
    assert client.returncode == 0
    assert "failed" not in output, output
    assert output.count("read ") == 2, output


def test_fio_reads_what_it_wrote(memory: Server, tmp_path: pathlib.Path) -> None:
    command = ["fio", "--name=verify", "--ioengine=nbd", f"--uri={memory.uri}", "--rw=randrw"]
    command += ["--bsrange=512-64k", "--iodepth=32", f"--size={SIZE}", "--io_size=64M"]
    command += ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fsync=64"]
    command += ["--randseed=4", f"--aux-path={tmp_path}", "--output-format=json"]
    output = run(*command)
    job = json.loads(output[output.index("{") :])["jobs"][0]
    assert job["error"] == 0
    assert job["write"]["total_ios"] > 0


def test_a_file_is_served_with_its_holes(
    program: pathlib.Path, disk: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    server = Server(program, tmp_path, "--file", str(disk), "--read-only")
    extents = json.loads(run("nbdinfo", "--json", "--map", server.uri))
    data = [extent for extent in extents if extent["type"] == 0]
    assert sum(extent["length"] for extent in data) == 4 * MIB
    assert sum(extent["length"] for extent in extents) == SIZE
    assert "identical" in run(
        "qemu-img", "compare", "-f", "raw", "-F", "raw", str(disk), server.uri
    )
    result = subprocess.run(
        ["qemu-io", "-f", "raw", "-c", "write 0 4096", server.uri],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert result.returncode != 0
    server.stop()
