"""Other services, asked with the caller's own token: what a user may name in a request.

A server or volume that the caller cannot see there is none for the caller.
"""

import uuid
from typing import Any, Protocol

from oslo_config import cfg

from acstor import exception, untrusted_json
from acstor.api.caller import Caller
from acstor.api.errors import ApiError


class UserServices(Protocol):
    """Servers and volumes as a caller sees them."""

    def require_server(self, caller: Caller, server_id: str) -> None:
        """Refuse a server that the caller's project does not have.

        :raises ApiError: 400; it is part of a body.
        :raises UnavailableError: when Nova does not answer.
        """

    def require_volume(self, caller: Caller, volume_id: str) -> None:
        """Refuse a volume; as :meth:`require_server`, with Cinder."""


class KeystoneServices:
    """Nova and Cinder of the catalogue.

    :param adapters: of keystoneauth by kind: ``server``, ``volume``.
    """

    def __init__(self, nova: Any, cinder: Any) -> None:
        """Keep how to reach them."""
        self._nova = nova
        self._cinder = cinder

    @classmethod
    def open(cls, conf: cfg.ConfigOpts) -> "KeystoneServices":
        """Return the services that ``[nova]`` and ``[cinder]`` describe."""
        from acstor import identity
        from acstor.conf import cinder, nova

        session = identity.open_session(conf)
        return cls(
            identity.open_adapter(conf, nova.GROUP, session, nova.SERVICE_TYPE),
            identity.open_adapter(conf, cinder.GROUP, session, cinder.SERVICE_TYPE),
        )

    def require_server(self, caller: Caller, server_id: str) -> None:
        """Refuse a server that the caller does not see."""
        found = self._get(self._nova, caller, f"/servers/{server_id}", "server", server_id)
        _require_same(caller, found.get("tenant_id"), "server", server_id)

    def require_volume(self, caller: Caller, volume_id: str) -> None:
        """Refuse a volume that the caller does not see."""
        found = self._get(self._cinder, caller, f"/volumes/{volume_id}", "volume", volume_id)
        owner = found.get("os-vol-tenant-attr:tenant_id")
        _require_same(caller, owner or caller.project, "volume", volume_id)

    def _get(self, adapter: Any, caller: Caller, path: str, kind: str, name: str) -> dict[str, Any]:
        from keystoneauth1 import exceptions

        try:
            answer = adapter.get(path, auth=caller.token_auth, connect_retries=2)
            found = untrusted_json.load(answer.content, "the answer")[kind]
        except (exceptions.NotFound, exceptions.Forbidden, exceptions.Unauthorized) as error:
            raise unknown(kind, name) from error
        except (exceptions.ClientException, ValueError, KeyError, TypeError) as error:
            raise exception.UnavailableError(
                f"it cannot be asked whose {kind} {name} is: {type(error).__name__}",
                hint="try again; the operator checks [nova], [cinder] and the catalogue",
            ) from error
        if not isinstance(found, dict):
            raise exception.UnavailableError(f"the answer about {kind} {name} makes no sense")
        return found


def unknown(kind: str, name: str) -> ApiError:
    """Return the error of a server or volume in a body that the caller does not have."""
    return ApiError(
        f"there is no {kind} {name} in your project",
        hint=f"list what there is: openstack {kind} list",
        code=f"acstor.{kind}.unknown",
    )


def _require_same(caller: Caller, owner: object, kind: str, name: str) -> None:
    """Refuse what an administrator sees of another project: a task works in the caller's own."""
    if not isinstance(owner, str) or not _is_same(owner, caller.project):
        raise unknown(kind, name)


def _is_same(one: str, other: str) -> bool:
    """Return whether two ids of projects are the same; Keystone has them without hyphens."""
    try:
        return uuid.UUID(one) == uuid.UUID(other)
    except ValueError:
        return one == other
