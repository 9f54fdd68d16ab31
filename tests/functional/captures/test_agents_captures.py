"""Captures of a host as a whole: the reconciler, its processes, a real libvirt, an origin."""

import os
import pathlib
import tempfile
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from acstor.agent.captures import assembly
from acstor.agent.captures.reconciler import CaptureReconciler
from acstor.conf import loading
from acstor.origin.opening import open_origin
from acstor.repository.images.usage import base_name
from acstor.repository.repository import Repository
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.versions.host_capture.progress import CaptureProgress
from acstor.versions.host_capture.states import ENDED, CaptureState
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.descendants import kill_descendants
from testbed.fixtures.stored_chunks import read_chunk
from tests.functional.captures.test_libvirt import CLUSTER, SIZE, Host
from tests.unit.agent.captures.guests import SERVER, TASK, TASK_2, request_of
from tests.unit.repository.images import image_id, register

pytest.importorskip("libvirt")
SETTLE = 300.0
CONF = """
[DEFAULT]
state_path = {folder}
[origin]
url = file://{folder}/origin
[captures]
enabled = true
libvirt_uri = qemu:///session?socket={socket}
scratch_path = {scratch}
qemu_user = nobody
pins = false
read_rate = {rate}
"""


class Agent:
    """The captures of an agent, beside a libvirt with one guest of a registered image."""

    def __init__(self, folder: pathlib.Path, host: Host) -> None:
        self.folder = folder
        self.host = host
        (folder / "origin").mkdir()
        self.repository = Repository.init(open_origin(f"file://{folder}/origin", 60.0), CLUSTER)
        register(self.repository, 0, (host.folder / base_name(image_id(0))).read_bytes())
        self.store = VersionStore(self.repository)
        self.reconciler: CaptureReconciler | None = None

    def conf(self, rate: str) -> cfg.ConfigOpts:
        socket = self.host.libvirt.run / "libvirt" / "libvirt-sock"
        path = self.folder / "acstor.conf"
        path.write_text(
            CONF.format(folder=self.folder, socket=socket, scratch=self.host.scratch, rate=rate)
        )
        return loading.load("test", ["--config-file", str(path)])

    def start(self, rate: str = "0") -> CaptureReconciler:
        found = assembly.build(self.conf(rate), lambda records: None, lambda outcome: None)
        assert found is not None
        found.start()
        wait_for("stock", lambda: found._is_ready, SETTLE)
        self.reconciler = found
        return found

    def ended(self, task: str = TASK) -> CaptureProgress:
        """Wait for the end of a capture."""
        reconciler = self.reconciler
        assert reconciler is not None
        wait_for("an end", lambda: reconciler.progress_of(task, 1).state in ENDED, SETTLE)
        return reconciler.progress_of(task, 1)

    def content(self, task: str = TASK, device: str = "vda") -> bytes:
        record = self.store.get(request_of(task=task).version_id(device)).record
        assert record.state is VersionState.COMMITTED
        assert record.manifest is not None
        manifest = self.repository.load_manifest(record.manifest)
        entries = map(manifest.entry, range(manifest.chunk_count))
        return b"".join(
            bytes(CLUSTER) if entry is None else read_chunk(self.repository.origin, entry, CLUSTER)
            for entry in entries
        )[: record.size_bytes]


@pytest.fixture
def host() -> Iterator[Host]:
    with (
        tempfile.TemporaryDirectory(prefix="acl-") as name,
        tempfile.TemporaryDirectory(prefix="acs-", dir="/dev/shm") as scratch,
    ):
        for path in (name, scratch):
            os.chmod(path, 0o777)
        found = Host(pathlib.Path(name), pathlib.Path(scratch), base_name(image_id(0)))
        try:
            yield found
        finally:
            found.stop()


@pytest.fixture
def agent(tmp_path: pathlib.Path, host: Host) -> Iterator[Agent]:
    found = Agent(tmp_path, host)
    yield found
    if found.reconciler is not None:
        found.reconciler.stop(60.0)


def test_versions_of_a_running_guest_are_in_the_origin(agent: Agent) -> None:
    agent.host.start()
    reconciler = agent.start()
    reconciler.start_capture(request_of(), 1)
    found = agent.ended()
    assert (found.state, found.failure) == (CaptureState.COMMITTED, None)
    assert agent.content() == agent.host.content
    record = agent.store.get(request_of().version_id("vda")).record
    assert (record.group_size, record.base_image) == (2, image_id(0))
    assert record.delta is not None
    assert record.delta.changed_chunks == 1
    agent.host.io(f"write -P 9 {3 * CLUSTER} {CLUSTER}")
    parents = {device: request_of().version_id(device) for device in ("vda", "vdb")}
    reconciler.start_capture(request_of(task=TASK_2, parents=parents), 1)
    assert agent.ended(TASK_2).state is CaptureState.COMMITTED
    wanted = bytearray(agent.host.content)
    wanted[3 * CLUSTER : 4 * CLUSTER] = b"\x09" * CLUSTER
    assert agent.content(TASK_2) == bytes(wanted)
    assert agent.content(TASK_2, "vdb") == agent.content(TASK, "vdb")
    assert len(wanted) == SIZE


def test_killed_process_leaves_nothing_in_the_hypervisor(agent: Agent) -> None:
    agent.host.start()
    reconciler = agent.start(rate="64KiB")
    reconciler.start_capture(request_of(), 1)
    hypervisor = agent.host.hypervisor
    wait_for("a backup", lambda: hypervisor.backup_status(SERVER) is not None, SETTLE)
    assert kill_descendants("acstor.agent.captures.child")
    found = agent.ended()
    assert found.state is CaptureState.FAILED
    assert found.failure is not None
    wait_for("its end", lambda: hypervisor.backup_status(SERVER) is None, SETTLE)
    wait_for("nothing is left", lambda: list(agent.host.scratch.iterdir()) == [])
    assert agent.store.find(request_of().version_id("vda")) is None
    agent.host.libvirt.virsh("destroy", SERVER)
    agent.host.libvirt.virsh("undefine", SERVER)
