import pathlib
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.agent.reconciler import HostSnapshot
from acstor.agent.reconcilers.local_files import known_files
from acstor.agent.reconcilers.local_files.content import ImageContent
from acstor.agent.reconcilers.local_files.known_files import KnownFiles
from acstor.agent.reconcilers.local_files.making import FileMaker
from acstor.agent.reconcilers.local_files.reconciler import LocalFiles
from acstor.agent.reconcilers.local_files.room import Budget
from acstor.agent.reconcilers.local_files.table import LocalFileTable
from acstor.agent.reconcilers.local_files.work import Job, LocalFileWork, WorkSettings
from acstor.cluster.membership import View
from acstor.conf.types import GIB
from acstor.control.client import AdminClient
from acstor.drivers.nova.image_links.local_directory import file_name
from acstor.origin.base import Origin
from acstor.origin.memory import MemoryOrigin
from testbed.doubles.local_files.local_image import LocalImage, make_local_image
from testbed.doubles.local_files.memory_file_maker import MemoryFileMaker
from tests.unit.agent.conftest import Clock

IMAGE = make_local_image(str(uuid.UUID(int=1)))
OTHER = make_local_image(str(uuid.UUID(int=2)))
BASE = "/nova/_base"
VERIFY_INTERVAL = 1000.0


class Links:
    """Image links that follow what they are told at each pass, as those of the agent do."""

    def __init__(self) -> None:
        self.leading: frozenset[str] = frozenset()
        self.is_busy = False
        """True if Nova holds its locks."""

    def base_directory(self) -> str | None:
        return BASE

    def local_links(self) -> frozenset[str] | None:
        return self.leading

    def follow(self, files: LocalFiles, maker: MemoryFileMaker) -> None:
        if not self.is_busy:
            self.leading = frozenset(
                each for each in files.linkable() if file_name(each) in maker.files
            )


class LocalFilesHost:
    """A host whose passes and jobs the test makes."""

    def __init__(self, path: pathlib.Path, clock: Clock) -> None:
        self.path = known_files.path_in(str(path))
        self.clock = clock
        self.images = {IMAGE.id: IMAGE, OTHER.id: OTHER}
        self.maker = MemoryFileMaker({each.id: each.disk for each in self.images.values()})
        self.links = Links()
        self.origin: Origin | None = MemoryOrigin()
        self.preloaded: frozenset[str] = frozenset()
        self.budget = Budget(GIB, 0.1)
        self.is_enabled = True
        self.outcomes: list[str] = []
        self.files = self.start()

    def start(self, maker: FileMaker | None = None) -> LocalFiles:
        """Have a process that was just started."""
        settings = WorkSettings(self.budget, 1 << 40, VERIFY_INTERVAL, 1 << 40)
        known = known_files.load(self.path) or KnownFiles()
        self.table = LocalFileTable(self.path, known)
        work = LocalFileWork(
            self.table,
            lambda _: maker or self.maker,
            self._load,
            settings,
            on_done=self.outcomes.append,
            clock=self.clock,
            now=self.clock,
        )
        self.files = LocalFiles(
            self.table,
            work,
            self.links,
            settings,
            is_enabled=self.is_enabled,
            preloaded=lambda: self.preloaded,
            clock=self.clock,
            now=self.clock,
        )
        return self.files

    def _load(self, origin: Origin, manifest: str) -> ImageContent:
        for image in self.images.values():
            if image.content.manifest == manifest:
                return image.content
        raise exception.NotFoundError(f"there is no manifest {manifest}")

    def snapshot(self, **changes: Any) -> HostSnapshot:
        fields: dict[str, Any] = {
            "host": "h1",
            "data_plane": AdminClient("/absent"),
            "status": {},
            "origin": self.origin,
            "generation": 1,
            "is_draining": False,
            "view": View(),
            "registered": frozenset(self.images),
            "offered": {each.id: each.content.manifest for each in self.images.values()},
        }
        return HostSnapshot(**{**fields, **changes})

    def reconcile(self, **changes: Any) -> dict[str, str]:
        """Make one pass: links first, as the agent does."""
        self.links.follow(self.files, self.maker)
        return dict(self.files.reconcile(self.snapshot(**changes)))

    def work(self) -> list[Job]:
        """Do everything that is due."""
        done = []
        while (job := self.files.work_once()) is not None:
            done.append(job)
            assert len(done) < 100, "it never ends"
        return done

    def settle(self, **changes: Any) -> dict[str, str]:
        """Make passes and do jobs until everything is done; return the last problems."""
        for _ in range(6):
            problems = self.reconcile(**changes)
            self.work()
        return problems

    def state(self, image: LocalImage = IMAGE) -> str | None:
        state = self.table.state(image.id)
        return None if state is None else str(state)

    def content(self, image: LocalImage = IMAGE) -> bytes | None:
        return self.maker.files.get(file_name(image.id))


@pytest.fixture
def host(tmp_path: pathlib.Path) -> LocalFilesHost:
    return LocalFilesHost(tmp_path, Clock())
