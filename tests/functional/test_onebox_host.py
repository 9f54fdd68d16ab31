"""Hosts of the one-box: namespaces of their own that end with their first process."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from testbed import exception, processes
from testbed.fixtures.conditions import wait_for
from testbed.onebox import network, teardown
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.status import outer_pids

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]

_LISTEN = """
import socket, sys
listener = socket.create_server((sys.argv[1], 7000))
while True:
    connection, _ = listener.accept()
    connection.sendall(socket.gethostname().encode())
    connection.close()
"""


class Box:
    """A one-box without services: a controller and compute hosts."""

    def __init__(self, names: tuple[str, ...] = ("compute1",)) -> None:
        # Not pytest's: paths of unix sockets are short.
        root = pathlib.Path(tempfile.mkdtemp(prefix="acsbox", dir="/var/tmp"))
        self.root = root
        self.directory = OneBoxDirectory(root / "b")
        self.directory.create()
        self.hosts = {
            name: Host(self.directory, name, network.address_of(name))
            for name in (network.CONTROLLER, *names)
        }

    def up(self) -> None:
        for host in self.hosts.values():
            private = self.directory.host(host.name)
            (private / "etc").mkdir(parents=True, exist_ok=True)
            (private / "hosts").write_text(f"{host.address} {host.name}\n")
            host.start(
                [(private / "etc", "/etc/nova"), (private / "hosts", "/etc/hosts")], ["/run/x"]
            )
        controller, *computes = self.hosts.values()
        network.connect(controller, computes)

    def remove(self) -> None:
        teardown.take_down(self.directory, purge=True)
        shutil.rmtree(self.root)


@contextlib.contextmanager
def box_up() -> Iterator[Box]:
    box = Box()
    try:
        box.up()
        yield box
    finally:
        box.remove()


@pytest.fixture
def box() -> Iterator[Box]:
    with box_up() as running:
        yield running


def members(host: Host) -> set[int]:
    return set(outer_pids(host).values())


def test_a_host_has_its_own_name_files_and_processes(box: Box) -> None:
    host = box.hosts["compute1"]
    assert host.run(["/bin/hostname"], environment={}) == "compute1\n"
    assert host.run(["/bin/cat", "/etc/hosts"], environment={}) == "10.78.0.11 compute1\n"
    (box.directory.host("compute1") / "etc" / "nova.conf").write_text("[DEFAULT]\n")
    assert host.run(["/bin/cat", "/etc/nova/nova.conf"], environment={}) == "[DEFAULT]\n"
    assert host.path("/etc/nova/nova.conf").read_text() == "[DEFAULT]\n"
    in_run = host.run(["/bin/ls", "/run"], environment={}).split()
    assert "x" in in_run
    assert set(in_run) <= {"no-kvm", "overlay", "x"}
    seen = host.run(["/bin/ls", "/proc"], environment={}).split()
    assert len([name for name in seen if name.isdigit()]) <= 3
    # The machine has not noticed.
    assert os.uname().nodename != "compute1"
    assert "10.78.0.11 compute1" not in pathlib.Path("/etc/hosts").read_text()


def test_what_a_host_writes_below_etc_is_gone_with_it(box: Box) -> None:
    host = box.hosts["compute1"]
    host.run(["/usr/bin/touch", "/etc/acstor-onebox-test"], environment={})
    assert not pathlib.Path("/etc/acstor-onebox-test").exists()
    host.stop()
    box.up()
    assert not host.path("/etc/acstor-onebox-test").exists()


def test_hosts_reach_each_other_and_nothing_else(box: Box) -> None:
    controller, host = box.hosts["controller"], box.hosts["compute1"]
    controller.spawn("listen", [sys.executable, "-c", _LISTEN, controller.address], {})
    wait_for("it listens", lambda: controller.is_listening(7000))
    assert not host.is_listening(7000)
    ask = (
        "import socket; c = socket.create_connection(('10.78.0.1', 7000), 10);"
        "print(c.recv(99).decode())"
    )
    assert host.run([sys.executable, "-c", ask], environment={}) == "controller\n"
    with pytest.raises(exception.ToolFailedError, match="Network is unreachable"):
        host.run([sys.executable, "-c", ask.replace("10.78.0.1", "192.0.2.1")], environment={})


def test_a_thread_enters_the_network_and_leaves_it(box: Box) -> None:
    def interfaces() -> set[str]:
        lines = pathlib.Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
        return {line.partition(":")[0].strip() for line in lines}

    before = interfaces()
    with box.hosts["controller"].network():
        assert {"lo", "br0", "compute1"} <= interfaces()
    assert interfaces() == before


def test_two_boxes_have_the_same_addresses_at_the_same_time(box: Box) -> None:
    with box_up() as other:
        for each in (box, other):
            controller = each.hosts["controller"]
            controller.spawn("listen", [sys.executable, "-c", _LISTEN, controller.address], {})
            wait_for("it listens", lambda host=controller: host.is_listening(7000))  # type: ignore[misc]
            assert not [line for line in _machine_links() if "compute1" in line]


def test_starting_again_changes_nothing(box: Box) -> None:
    before = {name: host.pid for name, host in box.hosts.items()}
    box.up()
    assert {name: host.pid for name, host in box.hosts.items()} == before


def test_everything_ends_with_the_first_process(box: Box) -> None:
    host = box.hosts["compute1"]
    # One that forks and forgets its parent, as QEMU does.
    script = "import os, time; os.fork() or os.setsid(); os.fork(); time.sleep(600)"
    host.spawn("forks", [sys.executable, "-c", script], {})
    wait_for("all of it runs", lambda: len(members(host)) >= 5)
    found = members(host)
    os.kill(host.pid, signal.SIGKILL)
    wait_for("all of it ends", lambda: not [p for p in found if processes.start_time(p)])
    assert not host.is_up
    assert host.programs() == {}
    with pytest.raises(exception.NotReadyError, match="compute1 is not up"):
        host.enter(["/bin/true"])
    box.up()
    assert host.is_up


def test_the_controller_s_end_is_repaired_for_every_host(box: Box) -> None:
    """The links end with the bridge; the next up makes the hosts anew."""
    os.kill(box.hosts["controller"].pid, signal.SIGKILL)
    wait_for("the controller is down", lambda: not box.hosts["controller"].is_up)
    for host in box.hosts.values():
        host.stop()
    box.up()
    ping = "import socket; socket.create_connection(('10.78.0.1', 1), 10)"
    with pytest.raises(exception.ToolFailedError, match="Connection refused"):
        box.hosts["compute1"].run([sys.executable, "-c", ping], environment={})


def test_down_ends_what_an_up_that_was_killed_has_begun() -> None:
    box = Box()
    try:
        controller = box.hosts["controller"]
        controller.start([])
        found = members(controller)
        assert found
        # The process that runs unshare is gone, and so is whoever ran up.
        recorded = json.loads((box.directory.run / "controller.json").read_text())["pid"]
        os.kill(recorded, signal.SIGKILL)
        teardown.take_down(box.directory)
        assert not [pid for pid in found if processes.start_time(pid)]
        assert not box.directory.is_up
    finally:
        box.remove()


def test_a_first_process_that_is_not_recorded_ends_by_itself() -> None:
    """The process that starts it records it before it sends the specification."""
    command = [sys.executable, "-m", "testbed.onebox.host_init"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=30, check=False)
    assert result.returncode == 0


def test_down_leaves_no_mount_link_or_file() -> None:
    before = _machine_links() | _machine_mounts()
    with box_up() as box:
        path = box.root
        box.hosts["compute1"].run(["/bin/mount", "-t", "tmpfs", "none", "/var/lib"], environment={})
    assert not path.exists()
    # Tests beside this one make links of their own, and remove them.
    made = (_machine_links() | _machine_mounts()) - before
    wait_for("it is gone", lambda: not made & (_machine_links() | _machine_mounts()), timeout=300)


def _machine_links() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def _machine_mounts() -> set[str]:
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return {line for line in lines if "acsbox" in line}
