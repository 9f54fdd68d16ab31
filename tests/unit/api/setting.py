"""The API over a database in memory and an origin in memory, for tests."""

import datetime
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from acstor import exception
from acstor.api import application, assembly, policies
from acstor.api.authorization import Authorizer
from acstor.api.backends import Backends
from acstor.api.caller import Caller
from acstor.api.cluster.deployment import OriginDeployment
from acstor.api.cluster.host_watch import HostWatch
from acstor.api.errors import ApiError
from acstor.api.operations import Gate
from acstor.api.quotas import Quotas, Unlimited
from acstor.api.user_services import Kind, SeenThing, unknown
from acstor.api.version_files import VersionFiles
from acstor.cluster.member import Member
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from acstor.repository.versions.store import VersionStore
from acstor.repository.volumes.durability import Durability
from acstor.versions.database import index_refresh
from acstor.versions.database.opening import stores_of
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.tables import METADATA
from acstor.versions.database.tasks import TaskKind
from acstor.versions.services.compute import Server, server_of
from testbed.doubles.faulty_database import FaultyDatabase, SetClock
from testbed.fixtures.api_callers import TestCaller, project_id
from tests.unit.repository.images import CHUNK_SIZE
from tests.unit.repository.versions.records import NOON, captured, committed

SERVER = "2f9c4a70-1b7e-4f0e-9a52-6b1c0d3e8f41"
IMAGE = "6d0f8b3a-2c7e-4519-b8a4-e5f1c9d7036b"
VOLUME = "7c1d9e52-83f4-4a6b-b0c9-51d2e7a8c630"


class MemoryUserServices:
    """Servers and volumes of projects.

    :ivar error: raised in place of an answer.
    """

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.seen: dict[Kind, list[SeenThing]] = {kind: [] for kind in Kind}
        self.servers: dict[str, Server] = {}
        self.properties: dict[str, Mapping[str, str]] = {}
        self.error: exception.AcstorError | None = None

    def require_server(self, caller: Caller, server_id: str) -> None:
        """Refuse a server of another project."""
        self._require(caller, "server", server_id)

    def require_volume(self, caller: Caller, volume_id: str) -> None:
        """Refuse a volume of another project."""
        self._require(caller, "volume", volume_id)

    def server(self, caller: Caller, server_id: str) -> Server:
        """Return a server of the caller's project."""
        self._require(caller, "server", server_id)
        return self.servers[server_id]

    def image_properties(self, caller: Caller, image_id: str) -> Mapping[str, str]:
        """Return what an image says."""
        del caller
        return self.properties.get(image_id, {})

    def find(self, caller: Caller, kind: Kind, thing_id: str) -> SeenThing | None:
        """Return a thing of the caller's project."""
        found = [each for each in self.seen[kind] if each.id == thing_id]
        is_own = self.owners.get(thing_id) == caller.project
        return found[0] if found and is_own else None

    def page(
        self, caller: Caller, kind: Kind, limit: int, marker: str | None, name: str | None
    ) -> list[SeenThing]:
        """Return things of the caller's project."""
        if self.error is not None:
            raise self.error
        mine = [each for each in self.seen[kind] if self.owners.get(each.id) == caller.project]
        named = [each for each in mine if name in (None, each.name)]
        ids = [each.id for each in named]
        if marker is not None and marker not in ids:
            raise ApiError("there is no such marker", code="acstor.marker.invalid")
        begin = 0 if marker is None else ids.index(marker) + 1
        return named[begin : begin + limit]

    def _require(self, caller: Caller, kind: str, name: str) -> None:
        if self.error is not None:
            raise self.error
        if self.owners.get(name) != caller.project:
            raise unknown(kind, name)


class Setting:
    """An API with one project that has a server and a volume."""

    def __init__(self) -> None:
        self.conf = cfg.ConfigOpts()
        self.conf([], project="acstor")
        enforcer = policy.Enforcer(self.conf)
        enforcer.register_defaults(policies.list_rules())
        self.clock = SetClock(NOON)
        self.database = FaultyDatabase("sqlite://", clock=self.clock)
        self.database.write(METADATA.create_all)
        self.stores = stores_of(self.database)
        self.origin = MemoryOrigin()
        repository = Repository.init(self.origin, CHUNK_SIZE)
        self.versions = VersionStore(
            repository, wait=lambda seconds: None, now=lambda: self.clock.now
        )
        self.user_services = MemoryUserServices()
        self.members: dict[str, Member] = {}
        self.told: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.orders: list[tuple[str, str, Durability]] = []
        self.tell_error: exception.AcstorError | None = None
        self.watch = HostWatch(lambda: self.clock.now)
        self.deployment = OriginDeployment(
            lambda: self.origin, lambda: dict(self.members), self.watch, max_age=0.0
        )
        self.gate = Gate(Authorizer(enforcer), checks_answers=True)
        self.project = project_id()
        self.user_services.owners = {SERVER: self.project, VOLUME: self.project}
        self.user_services.servers[SERVER] = server_of(
            {"id": SERVER, "status": "ACTIVE", "image": {"id": IMAGE}}
        )
        self.backends = self.with_quotas(Unlimited())
        self.routes = assembly.routes_of(self.backends)
        self.app = application.resources_application(self.routes)
        self.member = TestCaller(self.app, self.project)
        self.stranger = TestCaller(self.app, project_id(), "manager")

    def with_quotas(
        self,
        quotas: Quotas,
        kinds: frozenset[TaskKind] | None = None,
        restorable: Iterable[TargetKind] = TargetKind,
    ) -> Backends:
        """Return backends with other limits."""
        return Backends(
            gate=self.gate,
            stores=self.stores,
            open_versions=lambda: self.versions,
            user_services=self.user_services,
            quotas=quotas,
            deployment=self.deployment,
            kinds=frozenset(TaskKind) if kinds is None else kinds,
            restorable=frozenset(restorable),
            files=VersionFiles(lambda: self.versions.repository, downloads_max=2, looks_max=2),
            ask_owner=self._ask_owner,
            tell_owner=self._tell_owner,
            now=lambda: self.clock.now,
        )

    def _ask_owner(self, host: str, volume_id: str) -> Mapping[str, Any]:
        if (host, volume_id) not in self.told:
            raise exception.DeadlineError(f"host {host} does not answer")
        return self.told[host, volume_id]

    def _tell_owner(self, host: str, volume_id: str, durability: Durability) -> None:
        if self.tell_error is not None:
            raise self.tell_error
        self.orders.append((host, volume_id, durability))

    def caller_of(self, backends: Backends) -> TestCaller:
        """Return a member who calls an API with other backends."""
        app = application.resources_application(assembly.routes_of(backends))
        return TestCaller(app, self.project)

    def add_version(self, *, is_captured: bool = False, **fields: Any) -> str:
        """Make a version of the project, and return its id."""
        version_id = str(uuid.uuid4())
        known = {"project": self.project, **fields}
        if is_captured:
            self.versions.begin(version_id, captured(**known))
        else:
            self.versions.publish(version_id, committed(**known))
        self.refresh(version_id)
        return version_id

    def refresh(self, version_id: str) -> None:
        """Have the index be as the origin is."""
        index_refresh.refresh(self.stores.versions, self.origin, version_id)

    def add_schedule(self, **fields: Any) -> str:
        """Make a schedule of the project, and return its id."""
        schedule = {"name": "nightly", "every": "day", **fields}
        answer = self.member.ask("POST", "/v1/schedules", {"schedule": schedule})
        assert answer.status_code == 201, answer.text
        return str(answer.json["schedule"]["id"])

    def add_task(self) -> str:
        """Queue a task of the project, and return its id."""
        body = {"version": {"server_id": SERVER}}
        answer = self.member.ask("POST", "/v1/versions", body)
        assert answer.status_code == 202, answer.text
        return str(answer.json["task"]["id"])

    def later(self, **parts: float) -> datetime.datetime:
        """Return a moment after the present one."""
        return self.clock.now + datetime.timedelta(**parts)
