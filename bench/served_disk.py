"""A disk served by real data planes in a testbed, for the benchmarks."""

import contextlib
import dataclasses
import os
import pathlib
import random
import subprocess
from collections.abc import Iterator, Sequence

from acstor import native
from testbed import host_processes, processes
from testbed.host_processes import Configuration, HostProcesses
from testbed.origin_repository import OriginRepository
from testbed.rates import RATE_MAX_BITS_PER_S, LinkRate
from testbed.testbed import Testbed, TestbedSettings

MIB = 1 << 20
VNODES = 1024
STORE_SPARE = 64 * MIB  # the store holds the whole disk, evicting nothing


@dataclasses.dataclass(frozen=True)
class ServedDisk:
    """A registered disk of unique chunks and the hosts that serve it."""

    testbed: Testbed
    disk: pathlib.Path  #: the raw file that was registered
    repository: OriginRepository
    hosts: list[HostProcesses]

    def path(self, index: int = 0) -> pathlib.Path:
        """The disk as a host serves it."""
        return self.hosts[index].disk(self.repository.image_id)

    def metric(self, name: str, index: int = 0, **labels: str) -> float:
        """Sum of a host's metric over the samples that have the labels."""
        return sum(
            sample.value
            for sample in self.hosts[index].metrics()
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def dataplane_pid(self, index: int = 0) -> int:
        return int((self.hosts[index].status() or {})["pid"])

    def restart(self, index: int = 0, *, empty: bool) -> None:
        """Stop a data plane and start it anew, with its chunk store or with an empty one."""
        host = self.hosts[index]
        host.stop()
        store = host.directory / "state" / "store"
        for path in store.iterdir() if empty and store.exists() else ():
            path.unlink()
        host.start_dataplane()
        host.wait_serving()
        host.wait_ready(self.repository.image_id, 1)


@contextlib.contextmanager
def serve(
    size_bytes: int,
    *,
    host_count: int = 1,
    overrides: Configuration | None = None,
    owners: tuple[int, ...] | None = None,
    chunk_size: int | None = None,
) -> Iterator[ServedDisk]:
    """Serve a disk of random bytes, read from the origin's directory itself, without a link.

    :param owners: indexes of the hosts that own chunks; None: all. A host that owns none reads
        everything from the others.
    :param chunk_size: of the repository, bytes; None: the default.
    """
    rate = LinkRate(RATE_MAX_BITS_PER_S)
    settings = TestbedSettings(host_count=host_count, origin_rate=rate, host_rate=rate)
    with Testbed.create(settings) as testbed:
        disk = testbed.run.directory("disk") / "disk.raw"
        write_random(disk, size_bytes)
        repository = OriginRepository(testbed, disk, "benchmark", chunk_size)
        repository.register()
        options = {"store": {"capacity": str(size_bytes + size_bytes // 8 + STORE_SPARE)}}
        options.update(overrides or {})
        hosts = [
            HostProcesses(testbed, host, "bench", repository.directory_url, options)
            for host in testbed.hosts
        ]
        ring = testbed.run.directory("bench") / "ring.bin"
        ring.write_bytes(make_ring(testbed, owners or tuple(range(host_count))))
        try:
            for host in hosts:
                host.start_dataplane()
            for host in hosts:
                host.wait_serving()
                host.admin.call("ring.set", path=str(ring))
                host.admin.call("image.attach", path=str(repository.manifest_file()))
            yield ServedDisk(testbed, disk, repository, hosts)
        finally:
            for host in hosts:
                host.stop()


def make_ring(testbed: Testbed, owners: tuple[int, ...]) -> bytes:
    """A ring in which only some hosts own chunks."""
    members = [
        native.RingHost(
            host.name, f"{host.address}:{host_processes.PEER_PORT}", int(index in owners)
        )
        for index, host in enumerate(testbed.hosts)
    ]
    return native.build_ring(members, VNODES).encode()


def write_random(path: pathlib.Path, size_bytes: int) -> None:
    """Write a file of bytes that nothing compresses or deduplicates."""
    source = random.Random(20261121)
    with path.open("wb") as file:
        for _ in range(size_bytes // MIB):
            file.write(source.randbytes(MIB))


def read_all(path: pathlib.Path, *, direct: bool = True, block: str = "1M") -> None:
    """Read a file from its start to its end."""
    command = ["dd", f"if={path}", "of=/dev/null", f"bs={block}", "status=none"]
    processes.run([*command, *(["iflag=direct"] if direct else [])], timeout_s=300)


def drop_pages(path: pathlib.Path) -> None:
    """Take a file out of the page cache."""
    processes.run(["dd", f"if={path}", "iflag=nocache", "of=/dev/null", "count=0", "status=none"])


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Anonymous memory of a process: its own, without mapped files."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} has no RssAnon")


def start_nbdkit(
    disk: pathlib.Path,
    directory: pathlib.Path,
    filters: Sequence[str] = (),
    parameters: Sequence[str] = (),
) -> tuple[subprocess.Popen[bytes], str]:
    """Serve a file by nbdkit's file plugin on a unix socket; return the process and the URI."""
    socket_path = directory / "nbdkit.sock"
    command = [processes.require("nbdkit"), "--foreground", "--readonly"]
    command += [f"--unix={socket_path}", *(f"--filter={name}" for name in filters)]
    command += ["file", str(disk), *parameters]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    processes.wait_until(socket_path.exists, "nbdkit listens", timeout_s=20)
    return server, f"nbd+unix:///?socket={socket_path}"
