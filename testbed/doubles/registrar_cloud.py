"""A cloud in memory for the registrar: images of Glance, an origin, usage of hosts, a clock."""

import dataclasses
import hashlib
import pathlib
import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from oslo_config import cfg

from acstor.conf import loading
from acstor.origin.base import Origin
from acstor.origin.faulty import FaultyOrigin
from acstor.origin.memory import MemoryOrigin
from acstor.registrar.image_service.base import ServiceImage
from acstor.registrar.image_service.faulty import FaultyImageService
from acstor.registrar.image_service.memory import MemoryImageService
from acstor.registrar.metrics import RegistrarMetrics
from acstor.registrar.registration.file_registration import FileRegistrar, InProcess
from acstor.registrar.service import RegistrarService
from acstor.repository import layout
from acstor.repository.images import usage
from acstor.repository.images.image_registry import Entry, ImageRegistry
from acstor.repository.images.withdrawal_rounds import read_rounds
from acstor.repository.repository import Repository
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.stored_chunks import read_chunk
from testbed.fixtures.usage_records import write_usage

CHUNK_SIZE = 4096


class Space(NamedTuple):
    """Free space of a file system, in the fields of ``statvfs``."""

    f_bavail: int
    f_frsize: int


class Clock:
    """Seconds since the epoch, moved by the test."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def content_of(number: int, size: int = 5 * CHUNK_SIZE) -> bytes:
    """Return the same random content for the same number."""
    return random.Random(number).randbytes(size)


def describe(image_id: str, content: bytes, **fields: object) -> ServiceImage:
    """Return what Glance would say of an image of that content."""
    image = ServiceImage(
        id=image_id,
        name=f"image of {len(content)}",
        disk_format="raw",
        container_format="bare",
        size_bytes=len(content),
        md5=hashlib.md5(content).hexdigest(),
        hash_algorithm="sha512",
        hash_value=hashlib.sha512(content).hexdigest(),
        updated_at="2026-11-21T14:00:00Z",
    )
    return dataclasses.replace(image, **fields)  # type: ignore[arg-type]


class Cloud:
    """Environment of registrars in memory, and the registrars."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        origin: Origin | None = None,
        file_registrar: FileRegistrar | None = None,
        **options: str,
    ) -> None:
        self.folder = folder
        self._file_registrar = file_registrar or InProcess()
        self.glance = MemoryImageService()
        self.service = FaultyImageService(self.glance)
        self.origin = FaultyOrigin(origin or MemoryOrigin())
        self.repository = Repository.init(self.origin, CHUNK_SIZE)
        self.image_registry = ImageRegistry(self.origin)
        self.clock = Clock()
        self.conf = self._configure(options)
        self._running: list[tuple[RegistrarService, threading.Thread]] = []

    def _configure(self, options: dict[str, str]) -> cfg.ConfigOpts:
        path = self.folder / "acstor.conf"
        written = {"interval": "3600", "gc_interval": "0", "spool_reserve": "0", **options}
        lines = "\n".join(f"{name} = {value}" for name, value in written.items())
        path.write_text(
            f"[DEFAULT]\nstate_path = {self.folder}/state\n"
            f"[coordination]\nheartbeat_interval = 0.1\nmember_timeout = 2\n"
            f"[glance]\nattempts = 2\nfilesystem_store_datadir = {self.folder}/store\n"
            f"[registrar]\n{lines}\n"
        )
        return loading.load("test", ["--config-file", str(path)])

    @property
    def spool(self) -> pathlib.Path:
        """Directory of the downloads."""
        return self.folder / "state" / "spool"

    def upload(self, number: int, content: bytes | None = None, **fields: object) -> str:
        """Put an image into Glance; return its id."""
        image_id = f"00000000-0000-4000-8000-{number:012}"
        content = content_of(number) if content is None else content
        self.glance.put(describe(image_id, content, **fields), content)
        return image_id

    def use(self, host: str, *image_ids: str) -> None:
        """Have instances of a host use these images and no others, and its agent say so."""
        newest = read_rounds(self.origin)
        write_usage(self.origin, host, image_ids, round=newest.round, epoch=newest.epoch)

    def answer(self) -> None:
        """Have every host look at its disk after the newest withdrawal round."""
        for host, found in usage.read_all(self.origin).items():
            self.use(host, *found.images)

    def withdraw(self, registrar: RegistrarService, image_id: str, state: str | None) -> None:
        """Let hosts answer and time pass until an image is off the hosts and in a state."""

        def is_done() -> bool:
            entry = self.entry(image_id)
            if (entry and entry.state.value) == state and not self.is_published(image_id):
                return True
            self.answer()
            self.clock.now += 30
            registrar.reconcile_soon()
            return False

        wait_for(f"image {image_id} is {state}", is_done)

    # Registrars

    def start(self) -> RegistrarService:
        """Run a registrar; return it as soon as it stands by or leads."""
        service = RegistrarService(
            self.conf,
            open_service=lambda sleep: self.service,
            open_origin=lambda: self.origin,
            metrics=RegistrarMetrics(),
            file_registrar=self._file_registrar,
            clock=self.clock,
            monotonic=self.clock,
        )
        thread = threading.Thread(target=service.run, daemon=True)
        thread.start()
        self._running.append((service, thread))
        return service

    def stop(self) -> None:
        """Stop all registrars."""
        for service, _ in self._running:
            service.stop()
        for _, thread in self._running:
            thread.join(20)
            assert not thread.is_alive()
        self._running.clear()

    # What came of it

    def entry(self, image_id: str) -> Entry | None:
        """Return an image's entry."""
        listed = self.image_registry.find(image_id)
        return listed.entry if listed else None

    def wait_for_state(self, image_id: str, state: str | None) -> Entry | None:
        """Return the entry as soon as it is in a state; None: as soon as there is none."""
        return self.wait_for(image_id, lambda entry: (entry and entry.state.value) == state)

    def wait_for(self, image_id: str, is_so: Callable[[Entry | None], bool]) -> Entry | None:
        """Return the entry as soon as it is as wanted."""
        found: list[Entry | None] = []

        def probe() -> bool:
            found[:] = [self.entry(image_id)]
            return is_so(found[0])

        wait_for(f"the entry of {image_id}; it is {self.entry(image_id)}", probe)
        return found[0]

    def is_published(self, image_id: str) -> bool:
        """Return whether hosts have an image."""
        return self.origin.get_ref(layout.image_ref(image_id)) is not None

    def read(self, image_id: str) -> bytes:
        """Return the content that hosts have."""
        manifest = self.repository.load_manifest(
            self.repository.get_image(image_id).record.manifest
        )
        parts = []
        for index in range(manifest.chunk_count):
            entry = manifest.entry(index)
            parts.append(
                bytes(CHUNK_SIZE) if entry is None else read_chunk(self.origin, entry, CHUNK_SIZE)
            )
        return b"".join(parts)[: manifest.size_bytes]
