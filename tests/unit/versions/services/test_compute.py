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
    "flavor": {"original_name": "m1", "extra_specs": {"acstor:version_on": "shutdown"}},
    "metadata": {"acstor:version_keep": "daily=3"},
    "OS-EXT-SRV-ATTR:host": "Compute-1",
    "OS-EXT-STS:task_state": None,
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
