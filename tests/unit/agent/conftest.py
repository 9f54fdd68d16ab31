import pathlib
from collections.abc import Callable, Iterator

import pytest
from oslo_config import cfg
from oslo_log import log

from acstor.agent.agent import Agent
from acstor.agent.metrics import AgentMetrics
from acstor.agent.reconciler import HostSnapshot
from acstor.conf import loading
from acstor.origin.faulty import FaultyOrigin
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from testbed.doubles.memory_data_plane import MemoryDataPlane
from testbed.doubles.memory_runtime import MemoryRuntime
from tests.unit.repository import images


class Clock:
    """Monotonic seconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class RecordingReconciler:
    """Keeps what it was shown; says or raises what the test wants."""

    name = "recording"

    def __init__(self) -> None:
        self.sights: list[HostSnapshot] = []
        self.problems: dict[str, str] = {}
        self.error: Exception | None = None

    def start(self) -> None:
        pass

    def reconcile(self, snapshot: HostSnapshot) -> dict[str, str]:
        self.sights.append(snapshot)
        if self.error is not None:
            raise self.error
        return self.problems

    def stop(self, timeout: float) -> None:
        pass


class HostUnderTest:
    """A host: configuration, data plane in memory, an agent whose looks the test makes."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        origin: FaultyOrigin,
        clock: Callable[[], float],
        announced: list[int],
    ) -> None:
        self.conf = conf
        self.origin = origin
        self.data_plane = MemoryDataPlane(conf)
        self.metrics = AgentMetrics()
        self.reconciler = RecordingReconciler()
        self.agent = Agent(
            conf,
            open_origin=lambda: origin,
            metrics=self.metrics,
            metrics_address="127.0.0.1:9471",
            announce_ring=announced.append,
            reconcilers=[self.reconciler],
            clock=clock,
        )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def origin() -> FaultyOrigin:
    """An origin with a repository and nothing else; whatever a test counts begins after that."""
    inner = MemoryOrigin()
    Repository.init(inner, images.CHUNK_SIZE)
    return FaultyOrigin(inner)


@pytest.fixture
def announced() -> list[int]:
    return []


@pytest.fixture
def make_conf(tmp_path: pathlib.Path) -> Callable[..., cfg.ConfigOpts]:
    def make(name: str = "h1", **agent: object) -> cfg.ConfigOpts:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        options = {"ring_settle_delay": 2, "ring_vnodes": 64, "metrics_port": 0, **agent}
        lines = "\n".join(f"{key} = {value}" for key, value in options.items())
        path = directory / "acstor.conf"
        path.write_text(
            f"""
[DEFAULT]
host = {name}
state_path = {directory}
[store]
capacity = 64MiB
[dataplane]
admin_socket = {directory}/admin.sock
[volumes]
control_socket = {directory}/volumes.sock
[peer]
listen_address = 127.0.0.1
listen_port = 0
tls_enabled = false
[coordination]
backend_url = file://{tmp_path}/coordination
heartbeat_interval = 0.1
member_timeout = 30
[agent]
{lines}
"""
        )
        return loading.load("test", ["--config-file", str(path)], log.register_options)

    return make


@pytest.fixture
def host(
    make_conf: Callable[..., cfg.ConfigOpts],
    origin: FaultyOrigin,
    clock: Clock,
    announced: list[int],
) -> Iterator[HostUnderTest]:
    MemoryRuntime.locked_stores.clear()
    host = HostUnderTest(make_conf(), origin, clock, announced)
    yield host
    host.data_plane.stop()
