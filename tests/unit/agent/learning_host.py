"""A host whose data plane is in memory, and whose looks at what boots read a test makes."""

import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from oslo_config import cfg

from acstor import exception
from acstor.agent.reconciler import HostSnapshot
from acstor.cluster.membership import View
from acstor.control.client import AdminClient
from acstor.origin.faulty import FaultyOrigin
from acstor.origin.memory import MemoryOrigin
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_runtime import MemoryRuntime, make_manifest
from tests.unit.agent.conftest import Clock

IMAGE = str(uuid.UUID(int=1))
INTERVAL = 60.0


class Learner(Protocol):
    """Reconciler that works on a thread of its own."""

    def act(self, snapshot: HostSnapshot) -> None:
        """Act on one pass."""


Learning = TypeVar("Learning", bound=Learner)


class LearningHost(Generic[Learning]):
    """One host.

    :param make: returns its reconciler, of a directory, an interval and a clock.
    :param chunks: of the image.
    :param content: number of them that are not zero.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        origin: FaultyOrigin,
        clock: Clock,
        make: Callable[[str, float, Clock], Learning],
        *,
        name: str,
        **image: int,
    ) -> None:
        self.name = name
        self.origin = origin
        self.clock = clock
        self.path = pathlib.Path(conf.state_path)
        self.data_plane = MemoryDataPlane(conf)
        self.client = AdminClient(conf.dataplane.admin_socket)
        self._make = make
        self._image = image
        self.reconciler = self.new_reconciler()

    def new_reconciler(self) -> Learning:
        return self._make(str(self.path), INTERVAL, self.clock)

    def start(self) -> MemoryRuntime:
        runtime = self.data_plane.start()
        if IMAGE not in runtime.images:
            manifest = self.path / "manifest"
            manifest.write_bytes(make_manifest(IMAGE, **self._image).to_bytes())
            self.client.call("image.attach", path=str(manifest))
        return runtime

    def snapshot(self, registered: frozenset[str] = frozenset({IMAGE})) -> HostSnapshot:
        try:
            status = self.client.call("status")
        except exception.UnavailableError:
            status = None
        return HostSnapshot(
            host=self.name,
            data_plane=self.client,
            status=status,
            origin=self.origin,
            generation=1,
            is_draining=False,
            view=View(),
            registered=registered,
            offered=dict.fromkeys(registered, "manifest"),
        )

    def round(self) -> None:
        self.clock.now += 2 * INTERVAL
        self.reconciler.act(self.snapshot())


Host = TypeVar("Host", bound=LearningHost[Any])


def hosts(make: Callable[[FaultyOrigin, str], Host]) -> Iterator[Callable[..., Host]]:
    """Give a function that makes hosts of one origin; they end with the test."""
    MemoryRuntime.locked_stores.clear()
    origin = FaultyOrigin(MemoryOrigin())
    made: list[Host] = []

    def make_one(name: str = "h1") -> Host:
        made.append(make(origin, name))
        return made[-1]

    yield make_one
    for host in made:
        host.data_plane.stop()
