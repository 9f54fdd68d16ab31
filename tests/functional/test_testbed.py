"""The testbed on the real machine: links, cleaning up after whatever ends a run, a real guest."""

import dataclasses
import functools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest
from pyroute2 import netns

from testbed import accelerator, boot_trace, cleanup, processes, replay_storm
from testbed.approaches.collaborative import Acstor
from testbed.fixtures.conditions import PATIENCE, wait_for
from testbed.guest import build
from testbed.guest.machine import BackingDisk, GuestMachine, GuestRequest, GuestState
from testbed.guest.recipe import GuestRecipe
from testbed.network import Namespace
from testbed.rates import LinkRate
from testbed.run_directory import DEFAULT_ROOT, ResourceKind, RunDirectory
from testbed.testbed import Testbed, TestbedSettings

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root"),
]

RATE = LinkRate(80_000_000)
PORT = 5000
BUILD_TIMEOUT = 900
"""Seconds: the first test that wants the guest's image may have to wait until it is built."""
PATIENT = {
    "load_aware": "false", "hedge_enabled": "false", "read_deadline": "120",
    "origin_deadline": "60", "peer_deadline": "60",
}  # fmt: skip
RECORDED = pathlib.Path(__file__).parents[2] / "bench" / "traces" / "debian-12-boot.jsonl"


@pytest.fixture
def testbed(tmp_path: pathlib.Path) -> Iterator[Testbed]:
    settings = TestbedSettings(host_count=2, origin_rate=RATE, host_rate=RATE)
    with Testbed.create(settings, tmp_path) as created:
        yield created


def namespaces_of(run_id: str) -> list[str]:
    return [name for name in netns.listnetns() if name.startswith(run_id)]


def receive_all(namespace: Namespace, received: list[int], ready: threading.Event) -> None:
    """Receive from one connection inside of a namespace until its end."""
    netns.setns(namespace.namespace)  # this thread only
    with socket.create_server((namespace.address, PORT)) as server:
        ready.set()
        connection, _ = server.accept()
        with connection:
            while content := connection.recv(1 << 20):
                received.append(len(content))


def send(namespace: Namespace, target: str, count: int, ended: list[float]) -> None:
    netns.setns(namespace.namespace)
    started = time.monotonic()
    with socket.create_connection((target, PORT)) as connection:
        connection.sendall(bytes(count))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    ended.append(time.monotonic() - started)


def test_link_carries_its_rate_and_counts_its_bytes(
    testbed: Testbed, pytestconfig: pytest.Config
) -> None:
    """That it carries as much as that is for an idle machine: ``--extended``."""
    count = 10_000_000
    one, two = testbed.hosts
    before = testbed.network.counters()
    received: list[int] = []
    ended: list[float] = []
    ready = threading.Event()
    receiver = threading.Thread(target=receive_all, args=(two, received, ready))
    receiver.start()
    assert ready.wait(60)
    sender = threading.Thread(target=send, args=(one, two.address, count, ended))
    sender.start()
    receiver.join(60 * PATIENCE)
    sender.join(60 * PATIENCE)
    after = testbed.network.counters()
    assert sum(received) == count
    rate = count * 8 / ended[0]
    assert rate < 1.15 * RATE
    if pytestconfig.getoption("extended"):
        assert rate > 0.80 * RATE
    sent = (after[one.name] - before[one.name]).sent
    assert count < sent < 1.06 * count
    assert count < (after[two.name] - before[two.name]).received < 1.06 * count
    assert (after["origin"] - before["origin"]).sent < 10_000


def test_close_removes_namespaces_processes_and_directory(tmp_path: pathlib.Path) -> None:
    with Testbed.create(TestbedSettings(host_count=1), tmp_path) as testbed:
        run_id = testbed.run.id
        assert len(namespaces_of(run_id)) == 3
        sleeper = testbed.table.spawn("sleeper", ["sleep", "1000"], namespace=testbed.hosts[0])
        pid = sleeper.popen.pid
        assert processes.start_time(pid) is not None
    assert processes.start_time(pid) is None
    assert namespaces_of(run_id) == []
    assert list(tmp_path.iterdir()) == []


OWNER = """
import pathlib, sys, time
from testbed import interruption
from testbed.testbed import Testbed, TestbedSettings
with interruption.raised():
    with Testbed.create(TestbedSettings(host_count=1), pathlib.Path(sys.argv[1])) as testbed:
        process = testbed.table.spawn("sleeper", ["sleep", "1000"], namespace=testbed.hosts[0])
        print(testbed.run.id, process.popen.pid, flush=True)
        while True:  # a signal that comes just before pause() would leave it waiting
            time.sleep(0.1)
"""


def start_owner(root: pathlib.Path) -> tuple[subprocess.Popen[str], str, int]:
    """Start a process that owns a run; return it, the run's id and a process of the run."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(root)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    run_id, pid = owner.stdout.readline().split()
    return owner, run_id, int(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_removes_everything(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    owner, run_id, pid = start_owner(tmp_path)
    owner.send_signal(number)
    owner.wait(60)
    assert processes.start_time(pid) is None
    assert namespaces_of(run_id) == []
    assert list(tmp_path.iterdir()) == []


def test_next_run_removes_what_a_killed_one_left(tmp_path: pathlib.Path) -> None:
    owner, run_id, pid = start_owner(tmp_path)
    owner.kill()
    owner.wait(60)
    assert processes.start_time(pid) is not None
    assert len(namespaces_of(run_id)) == 3
    with Testbed.create(TestbedSettings(host_count=1), tmp_path):
        assert processes.start_time(pid) is None
        assert namespaces_of(run_id) == []
    assert list(tmp_path.iterdir()) == []


def test_remove_finds_a_process_that_was_not_recorded(tmp_path: pathlib.Path) -> None:
    testbed = Testbed.create(TestbedSettings(host_count=1), tmp_path)
    command = processes.in_namespace(testbed.hosts[0], ["sleep", "1000"])
    unrecorded = subprocess.Popen(command, start_new_session=True)
    inode = testbed.hosts[0].path.stat().st_ino
    namespace_file = pathlib.Path(f"/proc/{unrecorded.pid}/ns/net")
    wait_for("the process is inside", lambda: namespace_file.stat().st_ino == inode)
    testbed.close()
    assert unrecorded.wait(60) == -signal.SIGTERM


def test_remove_detaches_a_mount_and_is_idempotent(tmp_path: pathlib.Path) -> None:
    run = RunDirectory.create(tmp_path)
    mount_point = run.directory("mount")
    run.record(ResourceKind.MOUNT, str(mount_point))
    run.record(ResourceKind.NAMESPACE, f"{run.id}-never-made")
    subprocess.run(["mount", "-t", "tmpfs", "none", str(mount_point)], check=True)
    assert len(cleanup.mounts_on(mount_point)) == 1
    cleanup.remove(run, keep_directory=True)
    assert cleanup.mounts_on(mount_point) == []
    (run.path / "journal.done").rename(run.path / "journal.jsonl")
    cleanup.remove(run)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """A directory in which a run's sockets have paths that a socket can have."""
    with tempfile.TemporaryDirectory(prefix="acs") as directory:
        yield pathlib.Path(directory)


@pytest.fixture(scope="module")
def guest_image() -> build.GuestImage:
    for tool in ("qemu-system-x86_64", "qemu-img", "mmdebstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    return build.build_guest(GuestRecipe(), DEFAULT_ROOT / "guests")


@pytest.mark.timeout(BUILD_TIMEOUT)
def test_guest_whose_disk_is_missing_fails(
    tmp_path: pathlib.Path, guest_image: build.GuestImage
) -> None:
    run = RunDirectory.create(tmp_path)
    disk = BackingDisk(str(tmp_path / "nowhere.raw"))
    directory = run.directory("guest")
    request = GuestRequest("guest", guest_image, disk, accelerator.TCG, None, directory)
    guest = GuestMachine(request, processes.ProcessTable(run))
    wait_for("the guest is settled", lambda: guest.poll() and guest.is_settled)
    guest.stop()
    cleanup.remove(run)
    assert guest.state is GuestState.FAILED
    assert guest.failure is not None
    assert "nowhere.raw" in guest.failure


@pytest.mark.slow
@pytest.mark.fuse
@pytest.mark.timeout(BUILD_TIMEOUT)
def test_replay_on_three_hosts_reads_the_origin_about_once(
    tmp_path: pathlib.Path,
    short_path: pathlib.Path,
    guest_image: build.GuestImage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Peers that are late because the machine is busy are not passed over for the origin.
    patient = functools.partial(Acstor, options={"readpath": PATIENT})
    monkeypatch.setitem(replay_storm._APPROACHES, Acstor.name, patient)
    recorded = boot_trace.load(RECORDED)
    with guest_image.disk.open("rb") as disk:
        # The recorded guest may have had other packages: the same reads, this disk's content.
        reads = [
            dataclasses.replace(
                read,
                think_us=0,
                digest=boot_trace.content_digest(os.pread(disk.fileno(), read.length, read.offset)),
            )
            for read in recorded.reads
        ]
    trace = boot_trace.BootTrace(guest_image.disk_size_bytes, "test", reads)
    boot_trace.save(trace, tmp_path / "trace")
    (short_path / "guests").symlink_to(DEFAULT_ROOT / "guests")
    result = replay_storm.run_replays(
        replay_storm.ReplayStormSettings(
            testbed=TestbedSettings(host_count=3, origin_rate=LinkRate(10**9)),
            trace=tmp_path / "trace",
            root=short_path,
        )
    )
    assert len(result.hosts) == 3
    for name, host in result.hosts.items():
        assert host.bytes_read == trace.bytes_read
        assert result.tiers[name].peer, "no host owns everything"
    # Chunks of heads and tails are pinned when the image arrives, before the ring may be known.
    assert 0.9 < result.origin_ratio < 1.2
    assert result.links["origin"].sent < 1.3 * result.union_bytes
    assert list(short_path.glob("acs*")) == []
