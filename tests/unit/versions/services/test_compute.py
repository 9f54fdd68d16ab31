"""Nova's servers through python-novaclient, whose answers and errors are put here."""

from typing import Any

import keystoneauth1.exceptions
import novaclient.exceptions
import pytest

from acstor import exception
from acstor.versions.services.compute import NovaCompute, server_of

SERVER: dict[str, Any] = {
    "id": "7d6b",
    "tenant_id": "p1",
    "name": "web",
    "status": "ACTIVE",
    "image": {"id": "1a2b"},
    "flavor": {
        "original_name": "m1",
        "disk": 20,
        "ephemeral": 5,
        "swap": 512,
        "extra_specs": {"acstor:version_on": "shutdown"},
    },
    "metadata": {"acstor:version_keep": "daily=3"},
    "OS-EXT-SRV-ATTR:host": "Compute-1",
    "OS-EXT-SRV-ATTR:root_device_name": "/dev/vda",
    "OS-EXT-STS:task_state": None,
    "locked": True,
    "locked_reason": "mine",
    "fault": {"code": 500, "message": "No valid\nhost was found."},
}


class Client:
    """python-novaclient: its servers."""

    def __init__(self, answer: Any) -> None:
        self.servers = self
        self._answer = answer

    def get(self, server_id: str) -> "Client":
        assert server_id == "7d6b"
        if isinstance(self._answer, Exception):
            raise self._answer
        return self

    def to_dict(self) -> Any:
        return self._answer


def test_server_is_as_nova_has_it() -> None:
    server = NovaCompute(Client(SERVER)).find_server("7d6b")
    assert server == server_of(SERVER)
    assert server is not None
    assert (server.project, server.host, server.image) == ("p1", "compute-1", "1a2b")
    assert server.flavor_specs == {"acstor:version_on": "shutdown"}
    assert server.metadata == {"acstor:version_keep": "daily=3"}
    assert (server.is_locked, server.lock_reason, server.root_device) == (True, "mine", "vda")
    assert (server.disk_gib, server.ephemeral_gib, server.swap_mib) == (20, 5, 512)
    assert server.fault == "No valid host was found."


def test_server_of_which_little_is_told() -> None:
    flavor = {"disk": "", "ephemeral": None, "swap": True}
    server = server_of({"id": "7d6b", "flavor": flavor, "fault": "broken", "locked": "yes"})
    assert (server.disk_gib, server.ephemeral_gib, server.swap_mib) == (0, 0, 0)
    assert (server.is_locked, server.lock_reason) == (False, None)
    assert (server.root_device, server.fault) == (None, None)


class Changed:
    """python-novaclient: servers that are changed."""

    def __init__(self, answer: Any = None) -> None:
        self.servers = self
        self.asked: list[tuple[Any, ...]] = []
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> None:
            self.asked.append((name, *arguments, named))
            if isinstance(self._answer, Exception):
                raise self._answer

        return call


def test_changes_are_asked_for_as_novaclient_has_them() -> None:
    client = Changed()
    compute = NovaCompute(client)
    compute.lock("7d6b", "mine")
    compute.rebuild("7d6b", "1a2b")
    compute.stop("7d6b")
    compute.start("7d6b")
    compute.unlock("7d6b")
    assert client.asked == [
        ("lock", "7d6b", {"reason": "mine"}),
        ("rebuild", "7d6b", "1a2b", {}),
        ("stop", "7d6b", {}),
        ("start", "7d6b", {}),
        ("unlock", "7d6b", {}),
    ]


@pytest.mark.parametrize("change", ["lock", "unlock", "rebuild", "stop", "start"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (novaclient.exceptions.NotFound(404), exception.NotFoundError),
        (novaclient.exceptions.Conflict(409, "while it is rebuilding"), exception.ConflictError),
        (novaclient.exceptions.BadRequest(400, "disk too small"), exception.InvalidError),
        (novaclient.exceptions.ClientException(500), exception.UnavailableError),
        (keystoneauth1.exceptions.ConnectTimeout(), exception.UnavailableError),
    ],
)
def test_changes_that_are_refused(
    change: str, error: Exception, expected: type[exception.AcstorError]
) -> None:
    compute = NovaCompute(Changed(error))
    more = {"lock": ("mine",), "rebuild": ("1a2b",)}.get(change, ())
    with pytest.raises(expected) as caught:
        getattr(compute, change)("7d6b", *more)
    words = getattr(error, "message", "")
    if expected in (exception.ConflictError, exception.InvalidError):
        assert words in caught.value.message


class Pages:
    """python-novaclient: pages of servers, no longer than Nova allows."""

    def __init__(self, ids: list[str], page: int) -> None:
        self.servers = self
        self._ids, self._page = ids, page
        self.asked: list[str | None] = []
        self.filters: dict[str, Any] = {}

    def list(self, **options: Any) -> list["Pages"]:
        assert options["detailed"]
        self.filters = options["search_opts"]
        self.asked.append(options["marker"])
        begin = self._ids.index(options["marker"]) + 1 if options["marker"] else 0
        return [_Listed(each) for each in self._ids[begin : begin + self._page]]  # type: ignore[misc]


class _Listed:
    def __init__(self, server_id: str) -> None:
        self.id = server_id

    def to_dict(self) -> Any:
        return {**SERVER, "id": self.id}


def test_all_servers_are_listed_whatever_nova_sends_at_once() -> None:
    client = Pages(["a", "b", "c", "d", "e"], page=2)
    assert [each.id for each in NovaCompute(client).servers()] == ["a", "b", "c", "d", "e"]
    assert client.asked == [None, "b", "d", "e"]
    assert client.filters == {"all_tenants": 1}
    assert [each.id for each in NovaCompute(client).locked_servers()] == ["a", "b", "c", "d", "e"]
    assert client.filters == {"all_tenants": 1, "locked": True}


class Actions:
    """python-novaclient: actions of a server, newest first; and servers of an image."""

    def __init__(self, *actions: tuple[str, str]) -> None:
        self.instance_action = self.servers = self
        self._actions = actions

    def list(self, *server: str, **options: Any) -> list[Any]:
        if not server:
            assert options["search_opts"] == {"all_tenants": 1, "image": "1a2b"}
            assert (options["detailed"], options["limit"]) == (False, 1)
            return list(self._actions)
        assert server == ("7d6b",)
        return [_Action(*each) for each in self._actions]


class _Action:
    def __init__(self, action: str, request_id: str) -> None:
        self._fields = {"action": action, "request_id": request_id}

    def to_dict(self) -> Any:
        return self._fields


def test_latest_rebuild_has_the_name_of_its_request() -> None:
    actions = Actions(("lock", "req-3"), ("rebuild", "req-2"), ("rebuild", "req-1"))
    assert NovaCompute(actions).last_rebuild("7d6b") == "req-2"
    assert NovaCompute(Actions(("create", "req-0"))).last_rebuild("7d6b") is None


def test_image_is_used_where_a_server_is_of_it() -> None:
    assert NovaCompute(Actions(("a", "server"))).is_image_used("1a2b")
    assert not NovaCompute(Actions()).is_image_used("1a2b")


def test_server_from_a_volume_has_no_image() -> None:
    server = server_of({**SERVER, "image": "", "OS-EXT-SRV-ATTR:host": None, "flavor": None})
    assert (server.image, server.host, server.flavor_specs) == (None, None, {})


def test_missing_server_is_none() -> None:
    assert NovaCompute(Client(novaclient.exceptions.NotFound(404))).find_server("7d6b") is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (novaclient.exceptions.Forbidden(403), exception.InvalidError),
        (novaclient.exceptions.OverLimit(413), exception.OverloadedError),
        (novaclient.exceptions.ClientException(503), exception.UnavailableError),
        (keystoneauth1.exceptions.ConnectFailure("refused"), exception.UnavailableError),
        (keystoneauth1.exceptions.Unauthorized("no"), exception.InvalidError),
    ],
)
def test_refusals_are_of_their_kind(
    error: Exception, expected: type[exception.AcstorError]
) -> None:
    with pytest.raises(expected):
        NovaCompute(Client(error)).find_server("7d6b")


def test_client_is_opened_at_a_microversion_that_it_knows() -> None:
    from keystoneauth1.session import Session

    assert isinstance(NovaCompute.open(Session()), NovaCompute)
