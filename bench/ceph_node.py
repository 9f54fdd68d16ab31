"""A real one-node Ceph of Debian's packages, for comparisons: a monitor, an OSD, a manager.

Everything lies under one directory, on the disk that is measured: BlueStore on a file, one copy of
each object, no authentication. Every call has a deadline, because a client that does not reach the
cluster waits for ever by default; the daemons end with the block that asked for them.

Needs root and the packages ceph-mon, ceph-osd, ceph-mgr and ceph-common: profile ``bench`` of
``bindep.txt``, which ``tools/`` installs on request only
(``. tools/environment && install_packages bench``).
"""

import contextlib
import dataclasses
import pathlib
import re
import socket
import subprocess
import uuid
from collections.abc import Iterator

from testbed import processes

POOL = "bench"
PLACEMENT_GROUPS = 8
CALL_TIMEOUT_S = 60.0
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
DAEMONS = ("mon", "osd", "mgr")
CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = {monitors}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
osd crush chooseleaf type = 0
mon data = {directory}/mon
osd data = {directory}/osd
mgr data = {directory}/mgr
run dir = {directory}
admin socket = {directory}/$name.asok
log file = {directory}/$name.log
osd objectstore = bluestore
bluestore block size = {size_bytes}
osd memory target = 939524096
mon data avail crit = 1
"""


@dataclasses.dataclass(frozen=True)
class CephNode:
    """A cluster that is up, with one pool for RBD."""

    directory: pathlib.Path
    osd_pid: int

    @property
    def configuration(self) -> pathlib.Path:
        """Return the file that clients are given, also as ``CEPH_CONF``."""
        return self.directory / "ceph.conf"

    def run(self, *command: str, timeout_s: float = CALL_TIMEOUT_S) -> str:
        """Run one of Ceph's programs on this cluster.

        :raises ToolFailedError: when it fails or takes longer.
        """
        program, *arguments = command
        return processes.run(
            [program, "--conf", str(self.configuration), *arguments], timeout_s=timeout_s
        )

    def version(self) -> str:
        """Return Ceph's version, like ``16.2.15``."""
        found = re.search(r"version (\S+)", self.run("ceph", "--version"))
        return found[1] if found else "unknown"


@contextlib.contextmanager
def ceph_node(directory: pathlib.Path, size_bytes: int) -> Iterator[CephNode]:
    """Run a cluster within the block.

    :param directory: is made; its path is short, for unix sockets lie in it.
    :param size_bytes: of the OSD's file, which is sparse.
    :raises ToolMissingError: when a package is missing.
    :raises NotReadyError: when the cluster does not come up in time.
    """
    directory.mkdir(mode=0o700)
    for name in DAEMONS:
        (directory / name).mkdir()
    fsid = str(uuid.uuid4())
    monitors = f"[v2:127.0.0.1:{_free_port()},v1:127.0.0.1:{_free_port()}]"
    (directory / "ceph.conf").write_text(
        CONFIGURATION.format(
            fsid=fsid, monitors=monitors, directory=directory, size_bytes=size_bytes
        )
    )
    with contextlib.ExitStack() as stack:
        node = CephNode(directory, 0)
        _make_monitor(node, fsid, monitors)
        stack.enter_context(_daemon(node, "mon", "a"))
        # With another uuid than that of its disk the monitor never takes the OSD for up.
        osd_uuid = str(uuid.uuid4())
        node.run("ceph", "--connect-timeout", "30", "osd", "create", osd_uuid)
        node.run("ceph-osd", "--id=0", "--mkfs", f"--osd-uuid={osd_uuid}")
        osd = stack.enter_context(_daemon(node, "osd", "0"))
        stack.enter_context(_daemon(node, "mgr", "x"))
        node = dataclasses.replace(node, osd_pid=osd.pid)
        processes.wait_until(
            lambda: " 1 up" in node.run("ceph", "osd", "stat"),
            "the OSD is up",
            timeout_s=START_TIMEOUT_S,
        )
        node.run("ceph", "osd", "pool", "create", POOL, str(PLACEMENT_GROUPS))
        node.run("rbd", "pool", "init", POOL)
        yield node


def _make_monitor(node: CephNode, fsid: str, monitors: str) -> None:
    monitor_map = node.directory / "monmap"
    # With the older protocol's address alone clients hang.
    command = ["monmaptool", "--create", "--addv", "a", monitors, "--fsid", fsid, str(monitor_map)]
    processes.run(command, timeout_s=CALL_TIMEOUT_S)
    node.run("ceph-mon", "--mkfs", "--id=a", f"--monmap={monitor_map}")


@contextlib.contextmanager
def _daemon(node: CephNode, kind: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [processes.require(f"ceph-{kind}"), "--foreground", f"--id={name}"]
    with (node.directory / f"{kind}.out").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--conf", str(node.configuration)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
