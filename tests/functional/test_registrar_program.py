"""The registrar as a program: images over HTTP, children that register, an origin on a disk."""

import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from acstor.image_service.memory import MemoryImageService
from acstor.origin.posix import PosixOrigin
from acstor.repository.catalogue import Catalogue, Entry
from acstor.repository.repository import Repository
from tests.fixtures.conditions import wait_for
from tests.unit.image_service.glance_server import GlanceServer
from tests.unit.registrar.cloud import CHUNK_SIZE, content_of, describe

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")

PROGRAM = "import sys; from acstor.cmd.registrar import main; sys.exit(main())"
MEMORY_MAX_KIB = 300 << 10
"""Of the registrar itself, whatever images describe; its start takes a third of it."""


class Deployment:
    """One registrar, Glance and an origin."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / "origin").mkdir()
        self.repository = Repository.init(PosixOrigin(str(folder / "origin")), CHUNK_SIZE)
        self.images = MemoryImageService()
        self.glance = GlanceServer(self.images)
        config = folder / "acstor.conf"
        config.write_text(
            f"[DEFAULT]\nstate_path = {folder}/state\n[origin]\nurl = posix://{folder}/origin\n"
            f"[keystone]\nauth_type = none\nendpoint = {self.glance.url}\n"
            f"[glance]\nendpoint_override = {self.glance.url}\n"
            "[registrar]\nspool_reserve = 0\nmetrics_port = 0\ninterval = 0.5\nworkers = 2\n"
        )
        self.program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "--config-file", str(config)],
            stderr=subprocess.DEVNULL,
        )

    def upload(self, number: int, content: bytes, disk_format: str) -> str:
        """Put an image into Glance; return its id."""
        image_id = f"00000000-0000-4000-8000-{number:012}"
        self.images.put(describe(image_id, content, disk_format=disk_format), content)
        return image_id

    def create(self, number: int, size: str) -> str:
        """Put an empty qcow2 image into Glance; return its id."""
        path = self.folder / "created"
        command = ["qemu-img", "create", "-q", "-f", "qcow2", str(path), size]
        subprocess.run(command, check=True, timeout=60)
        return self.upload(number, path.read_bytes(), "qcow2")

    def wait(self, image_id: str, *states: str) -> Entry:
        """Return an image's entry as soon as it is in one of these states."""
        found: list[Entry] = []

        def is_there() -> bool:
            assert self.program.poll() is None
            listed = Catalogue(self.repository.origin).find(image_id)
            found[:] = [listed.entry] if listed else []
            return bool(found) and found[0].state in states

        wait_for(f"image {image_id} is {' or '.join(states)}", is_there, 120)
        return found[0]

    def peak_kib(self) -> int:
        """Return the most memory that the registrar itself had."""
        status = pathlib.Path(f"/proc/{self.program.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])

    def close(self) -> None:
        self.program.send_signal(signal.SIGKILL)
        self.program.wait(60)
        self.glance.close()


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    made.close()


def test_size_of_disks_costs_the_registrar_nothing(deployment: Deployment) -> None:
    huge = {size: deployment.create(number, size) for number, size in enumerate(("1T", "1P"))}
    raw = deployment.upload(7, content_of(7), "raw")
    small = deployment.create(8, "64M")
    for image in (raw, small):
        entry = deployment.wait(image, "registered", "failed", "left")
        assert entry.state == "registered", entry.reason
    assert deployment.repository.get_image(small).record.size_bytes == 64 << 20
    for size, image in huge.items():
        entry = deployment.wait(image, "registered", "failed", "left")
        assert entry.state == "left", (size, entry.reason)
        assert "more than disk_size_max = 274877906944" in entry.reason
    assert deployment.peak_kib() < MEMORY_MAX_KIB
    deployment.program.terminate()
    assert deployment.program.wait(60) == 0
