"""A cloud of doubles in which flows run, and are killed."""

import contextlib
import dataclasses
import datetime
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

from taskflow.persistence.backends.impl_memory import MemoryBackend
from taskflow.persistence.backends.impl_sqlalchemy import SQLAlchemyBackend
from taskflow.persistence.base import Backend

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from acstor.repository.versions import version_refs
from acstor.repository.versions.store import VersionStore
from acstor.versions.database.opening import Stores, stores_of
from acstor.versions.database.tasks import NewTask, Task, TaskKind
from acstor.versions.flows.work import Interrupted, Work
from acstor.versions.services.services import Services
from acstor.versions.worker.flow_books import FlowBooks, database_engine
from acstor.versions.worker.flow_runner import FlowRunner
from acstor.versions.worker.left_images import LeftImages
from acstor.versions.worker.sweep import Sweep
from testbed.doubles.memory_captures import MemoryCaptures
from testbed.doubles.memory_compute import MemoryCompute
from testbed.doubles.memory_host_preloads import MemoryHostPreloads
from testbed.doubles.memory_image_store import MemoryImages, MemoryImageStore
from testbed.doubles.memory_restores import MemoryRestores
from tests.compliance.databases import DATABASES, new_clock
from tests.unit.repository.images import CHUNK_SIZE
from tests.unit.repository.versions.captures import store_of

PROJECT = "p1"
SERVER = str(uuid.UUID(int=70))
VOLUME = str(uuid.UUID(int=71))
TASK = str(uuid.UUID(int=99))
LEASE_SECONDS = 30.0
IMAGE_GRACE = datetime.timedelta(hours=2)


class Killed(BaseException):
    """The worker's process has ended."""


class KillSwitch:
    """Ends the process at the n-th call that goes through it, before or after its effect.

    :ivar calls: calls so far.
    :ivar observe: returns what there is besides what calls change.
    :ivar observed: what it returned before and after each call that had an answer.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.at: int | None = None
        self.is_after = False
        self.names: list[str] = []
        self.on_call: dict[str, Callable[[], None]] = {}
        self.on_answer: dict[str, Callable[[], None]] = {}
        self.observe: Callable[[], object] = lambda: None
        self.observed: dict[int, tuple[object, object]] = {}

    def arm(self, at: int | None, *, is_after: bool = False) -> None:
        self.calls, self.at, self.is_after = 0, at, is_after

    def wrap(self, inner: Any, *, only: tuple[str, ...] = ()) -> Any:
        return _Killable(inner, self, only)

    def call(self, name: str, method: Callable[[], Any]) -> Any:
        self.calls += 1
        self.names.append(name)
        self.on_call.get(name, lambda: None)()
        is_hit = self.calls == self.at
        if is_hit and not self.is_after:
            raise Killed(name)
        number, before = self.calls, self.observe()
        result = method()
        self.on_answer.get(name, lambda: None)()
        self.observed[number] = before, self.observe()
        if is_hit:
            raise Killed(name)
        return result


class _Killable:
    def __init__(self, inner: Any, switch: KillSwitch, only: tuple[str, ...]) -> None:
        self._inner, self._switch, self._only = inner, switch, only

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or (self._only and name not in self._only):
            return found
        label = f"{type(self._inner).__name__}.{name}"
        return lambda *arguments, **named: self._switch.call(
            label, lambda: found(*arguments, **named)
        )


class KillableBooks(FlowBooks):
    """Rows of flows, each write of which may be the last thing that a process does."""

    def __init__(self, backend: Backend, switch: KillSwitch) -> None:
        super().__init__(backend)
        self._switch = switch

    def get_connection(self) -> Any:
        return self._switch.wrap(
            super().get_connection(), only=("update_flow_details", "update_atom_details")
        )

    def open(self, *arguments: Any) -> Any:
        return self._switch.call("books.open", lambda: super(KillableBooks, self).open(*arguments))

    def forget(self, *arguments: Any) -> None:
        self._switch.call("books.forget", lambda: super(KillableBooks, self).forget(*arguments))


class TestControl:
    """Control of a worker that does what it is told; waiting passes time."""

    __test__ = False

    def __init__(self, cloud: "Cloud") -> None:
        self._cloud = cloud
        self.is_over = False
        self.is_cancelled = False
        self.on_pause: Callable[[], None] = lambda: None

    def pause(self, seconds: float) -> None:
        self._cloud.seconds += seconds
        self.on_pause()


def database_backend() -> Backend:
    """Return rows of flows in a database, as workers have them."""
    return SQLAlchemyBackend({}, engine=database_engine("sqlite://"))


class Cloud:
    """Database, origin, hosts and Nova.

    :param flows: has the rows of flows; None: this process's memory, which is a third of the work.
    """

    def __init__(self, folder: pathlib.Path, flows: Backend | None = None) -> None:
        self.clock = new_clock()
        self.seconds = 0.0
        self.switch = KillSwitch()
        self.database = DATABASES["memory"](folder, self.clock)
        self.stores = stores_of(self.database)
        self.versions = store_of(Repository.init(MemoryOrigin(), CHUNK_SIZE))
        self.compute = MemoryCompute()
        self.images = MemoryImages()
        self.image_store = MemoryImageStore()
        self.captures = MemoryCaptures(self.versions)
        self.preloads = MemoryHostPreloads()
        self.restores = MemoryRestores()
        self.services = Services(
            self.captures,
            self.compute,
            self.images,
            self.image_store,
            self.preloads,
            self.restores,
        )
        self.books = KillableBooks(flows or MemoryBackend({}), self.switch)
        self.books.upgrade()
        self.compute.add(SERVER, PROJECT)
        self.control = TestControl(self)
        self.takes = 0

    def use(self, stores: Stores, versions: VersionStore) -> None:
        """Work at the tasks and versions of another place."""
        self.stores, self.versions = stores, versions
        self.captures = MemoryCaptures(versions)
        self.services = dataclasses.replace(self.services, captures=self.captures)

    def ask(self, kind: TaskKind, resource: str, /, **parameters: Any) -> Task:
        return self.stores.tasks.create(NewTask(TASK, PROJECT, kind, resource, parameters))

    def work(self) -> Task:
        """Take the task as a worker of its own, and work until its end or its death."""
        self.takes += 1
        found = self.stores.tasks.take(f"w{self.takes}", LEASE_SECONDS)
        assert found is not None, "nobody can take the task"
        task, lease = found
        self.control.is_cancelled = task.is_cancelled
        wrapped = self.switch.wrap
        work = Work(
            task,
            lease,
            stores=self.stores,
            versions=wrapped(
                self.versions, only=("abandon", "delete", "begin_use", "end_use", "publish")
            ),
            services=Services(
                wrapped(self.captures),
                wrapped(self.compute),
                self.images,
                wrapped(self.image_store),
                wrapped(self.preloads),
                wrapped(self.restores),
            ),
            control=self.control,
            lease_seconds=LEASE_SECONDS,
            clock=lambda: self.seconds,
            now=lambda: self.clock.now,
        )
        return FlowRunner(self.books).run(work)

    def work_on(self, kills: int = 100) -> Task:
        """Have one worker after the other work until the task has ended."""
        for _ in range(kills):
            try:
                return self.work()
            except (Killed, Interrupted):
                self.switch.arm(None)
                self.clock.advance(seconds=LEASE_SECONDS + 1)
                if self.task().is_finished:
                    return self.task()
        raise AssertionError("the task does not end")

    def sweep(self) -> None:
        """Sweep as the leading worker does."""
        left_images = LeftImages(
            self.stores, self.versions, self.services, IMAGE_GRACE, now=lambda: self.clock.now
        )
        sweep = Sweep(
            self.stores, self.versions, self.books, self.services, left_images=left_images
        )
        sweep.purge()

    def task(self, task_id: str = TASK) -> Task:
        return self.stores.tasks.get(task_id)

    def version_ids(self) -> set[str]:
        return set(version_refs.version_ids(self.versions.repository.origin))

    def indexed_ids(self) -> set[str]:
        return {one for one, _ in self.stores.versions.nonces(None, 1000)}

    def books_left(self) -> int:
        """Return the number of rows of flows that are there, whoever they are of."""
        with contextlib.closing(self.books._backend.get_connection()) as connection:
            if isinstance(self.books._backend, MemoryBackend):
                books = list(connection.get_logbooks())
                flows = [flow for book in books for flow in book]
                return len(books) + len(flows) + sum(len(flow) for flow in flows)
            with connection._engine.connect() as database:
                return sum(
                    database.exec_driver_sql(f"SELECT COUNT(*) FROM {table}").scalar_one()
                    for table in ("logbooks", "flowdetails", "atomdetails")
                )


def lost(*_: object) -> exception.AcstorError:
    return exception.UnavailableError("away")
