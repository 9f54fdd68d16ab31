"""Nova's own objects around the weigher and the filter."""

from collections.abc import Callable, Iterator
from typing import Any

import nova.conf
import pytest
from nova import objects
from nova.scheduler.host_manager import HostState as NovaHost
from oslo_config import cfg

from acstor.scheduler.host_table import HostTable
from acstor.scheduler.listener import Listener
from acstor.scheduler.nova import options
from acstor.scheduler.nova.hosts import Hosts
from acstor.telemetry.host_states import HostState

IMAGE = "0b5f3c1e-7a52-4f7e-9d35-6f0d0c1c7a01"
OTHER_IMAGE = "c3a1f0de-0f43-4a40-8a0e-5a4c9b2d7e02"
TTL = 35.0


class Clock:
    """Monotonic seconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class DeafListener(Listener):
    """A listener of a broker that nobody sends to."""

    def __init__(self, table: HostTable) -> None:
        super().__init__(table, lambda: None, "test")
        self.starts = 0

    def start(self) -> None:
        self.starts += 1


class Deployment:
    """The hosts as the scheduler hears of them."""

    def __init__(self, hosts: Hosts, table: HostTable, clock: Clock) -> None:
        self.hosts = hosts
        self.table = table
        self.clock = clock
        self.sequence = 0

    def tell(self, host: str, **fields: Any) -> None:
        self.sequence += 1
        state = HostState(
            **{
                "host": host,
                "sequence": self.sequence,
                "release": "1",
                "is_up": True,
                "is_draining": False,
                "images": (IMAGE,),
                **fields,
            }
        )
        assert self.table.take(state.to_message()) == "taken"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def deployment(clock: Clock, nova_conf: cfg.ConfigOpts) -> Deployment:
    table = HostTable(TTL, clock)
    hosts = Hosts(nova_conf, DeafListener)
    hosts._table = table
    return Deployment(hosts, table, clock)


@pytest.fixture
def nova_conf() -> Iterator[cfg.ConfigOpts]:
    """Nova's configuration, as if from a file that the test writes by ``set_override``."""
    objects.register_all()
    conf = nova.conf.CONF
    options.register_opts(conf)
    yield conf
    conf.clear_override("data_plane_policy", group=options.GROUP)
    for option in options.OPTIONS:
        conf.clear_override(option.dest, group=options.GROUP)


def nova_host(name: str, node: str | None = None, **metadata: str) -> NovaHost:
    host = NovaHost(name, node or f"{name}.example.org", "00000000-0000-4000-8000-000000000000")
    if metadata:
        host.aggregates = [objects.Aggregate(id=1, name="rack", hosts=[name], metadata=metadata)]
    return host


MakeSpec = Callable[..., Any]


def request_spec(
    image: str | None = IMAGE,
    *,
    is_bfv: bool = False,
    extra_specs: dict[str, str] | None = None,
    properties: dict[str, str] | None = None,
    hints: dict[str, list[str]] | None = None,
) -> Any:
    description: dict[str, Any] = {"properties": properties or {}}
    if image is not None:
        description["id"] = image
    return objects.RequestSpec(
        image=objects.ImageMeta.from_dict(description),
        flavor=objects.Flavor(extra_specs=extra_specs or {}),
        is_bfv=is_bfv,
        scheduler_hints=hints or {},
        instance_uuid="11111111-1111-4111-8111-111111111111",
    )
