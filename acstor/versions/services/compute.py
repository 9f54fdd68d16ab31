"""Nova, as flows need it: servers, by python-novaclient at a pinned microversion."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from acstor import exception

MICROVERSION = "2.96"
"""Microversion that is asked for: the last one that python-novaclient knows. 2.73 brought reasons
of locks, 2.47 the flavor in the server, 2.96 the pinned zone, which is not used."""
_HOST = "OS-EXT-SRV-ATTR:host"
_TASK_STATE = "OS-EXT-STS:task_state"


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A server as Nova has it."""

    id: str
    project: str
    name: str
    status: str
    """``ACTIVE``, ``SHUTOFF``, ``SHELVED_OFFLOADED`` and so on."""
    host: str | None
    """Host that it is on; None: on none."""
    image: str | None
    """Image that it was made of; None: it boots from a volume."""
    task_state: str | None
    """Operation of Nova that is under way."""
    metadata: Mapping[str, str]
    flavor_specs: Mapping[str, str]
    """Extra specs of its flavor."""


class Compute(Protocol):
    """Servers.

    Every method may raise :class:`~acstor.exception.UnavailableError` and
    :class:`~acstor.exception.OverloadedError`: it may be repeated then.
    """

    def find_server(self, server_id: str) -> Server | None:
        """Return a server, None where there is none."""


class NovaCompute:
    """Servers of Nova; see :class:`Compute`.

    :param client: of python-novaclient, at :data:`MICROVERSION`, with the rights of an admin.
    """

    def __init__(self, client: Any) -> None:
        """Keep the client."""
        self._client = client

    @classmethod
    def open(cls, session: Any, **adapter: Any) -> "NovaCompute":
        """Return Nova over a session of keystoneauth.

        :param adapter: region, interface and so on, as novaclient takes them.
        """
        from novaclient import client

        return cls(client.Client(MICROVERSION, session=session, **adapter))

    def find_server(self, server_id: str) -> Server | None:
        """Return a server; see :meth:`Compute.find_server`."""
        from keystoneauth1 import exceptions as ks_exceptions
        from novaclient import exceptions

        try:
            found = self._client.servers.get(server_id)
        except exceptions.NotFound:
            return None
        except exceptions.OverLimit as error:
            raise exception.OverloadedError("Nova refuses because of load") from error
        except (exceptions.ClientException, ks_exceptions.ClientException) as error:
            code = getattr(error, "code", None) or getattr(error, "http_status", 0)
            if isinstance(code, int) and 400 <= code < 500:
                raise exception.InvalidError(
                    f"Nova refuses to show server {server_id} (HTTP {code})",
                    hint="give the user of [keystone] the role admin",
                ) from error
            raise exception.UnavailableError(
                f"Nova cannot be asked: {type(error).__name__}"
            ) from error
        return server_of(found.to_dict())


def server_of(fields: Mapping[str, Any]) -> Server:
    """Return the server that Nova's answer describes."""
    image = fields.get("image")
    flavor = fields.get("flavor")
    host = fields.get(_HOST)
    return Server(
        id=str(fields["id"]),
        project=str(fields.get("tenant_id", "")),
        name=str(fields.get("name", "")),
        status=str(fields.get("status", "")),
        host=host.lower() if isinstance(host, str) and host else None,
        image=str(image["id"]) if isinstance(image, Mapping) and image.get("id") else None,
        task_state=fields.get(_TASK_STATE),
        metadata=_texts(fields.get("metadata")),
        flavor_specs=_texts(flavor.get("extra_specs") if isinstance(flavor, Mapping) else None),
    )


def _texts(found: object) -> dict[str, str]:
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(value) for name, value in found.items()}
