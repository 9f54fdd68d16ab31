"""Other services, asked with the caller's own token: the things that a user has there.

A server, volume or image that the caller cannot see there is none for the caller.
"""

import dataclasses
import enum
import urllib.parse
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from oslo_config import cfg

from acstor import exception, untrusted_json
from acstor.api.caller import Caller
from acstor.api.errors import ApiError
from acstor.versions.services.compute import MICROVERSION, Server, server_of


class Kind(enum.StrEnum):
    """Kind of a thing that callers list."""

    IMAGE = "image"
    VOLUME = "volume"


@dataclasses.dataclass(frozen=True, slots=True)
class SeenThing:
    """Image or volume as a caller sees it."""

    id: str
    name: str
    size_bytes: int | None
    """Of the file of an image, of the disk of a volume; None: not known."""


class UserServices(Protocol):
    """Servers, volumes and images as a caller sees them.

    Every method may raise :class:`~acstor.exception.UnavailableError`: the service does not answer.
    """

    def require_server(self, caller: Caller, server_id: str) -> None:
        """Refuse a server that the caller's project does not have.

        :raises ApiError: 400; it is part of a body.
        """

    def require_volume(self, caller: Caller, volume_id: str) -> None:
        """Refuse a volume; as :meth:`require_server`."""

    def server(self, caller: Caller, server_id: str) -> Server:
        """Return a server; of what Nova shows to administrators only, nothing.

        :raises ApiError: 400, as of :meth:`require_server`.
        """

    def image_properties(self, caller: Caller, image_id: str) -> Mapping[str, str]:
        """Return what an image says that is text; nothing where the caller sees no such image."""

    def find(self, caller: Caller, kind: Kind, thing_id: str) -> SeenThing | None:
        """Return an image or volume, None where the caller sees none."""

    def page(
        self, caller: Caller, kind: Kind, limit: int, marker: str | None, name: str | None
    ) -> list[SeenThing]:
        """Return a page of images or volumes, in the order of their service.

        :param marker: id behind which it begins.
        :raises ApiError: when the service takes no such marker.
        """


class KeystoneServices:
    """Nova, Cinder and Glance of the catalogue, by adapters of keystoneauth."""

    def __init__(self, nova: Any, cinder: Any, glance: Any) -> None:
        """Keep how to reach them."""
        self._nova = nova
        self._cinder = cinder
        self._glance = glance

    @classmethod
    def open(cls, conf: cfg.ConfigOpts) -> "KeystoneServices":
        """Return the services that ``[nova]``, ``[cinder]`` and ``[glance]`` describe."""
        from acstor import identity
        from acstor.conf import cinder, glance, nova

        session = identity.open_session(conf)
        return cls(
            identity.open_adapter(conf, nova.GROUP, session, nova.SERVICE_TYPE),
            identity.open_adapter(conf, cinder.GROUP, session, cinder.SERVICE_TYPE),
            identity.open_adapter(conf, glance.GROUP, session, glance.SERVICE_TYPE),
        )

    def require_server(self, caller: Caller, server_id: str) -> None:
        """Refuse a server that the caller does not see."""
        found = self._own(self._nova, caller, f"/servers/{server_id}", "server", server_id)
        _require_same(caller, found.get("tenant_id"), "server", server_id)

    def require_volume(self, caller: Caller, volume_id: str) -> None:
        """Refuse a volume that the caller does not see."""
        found = self._own(self._cinder, caller, f"/volumes/{volume_id}", "volume", volume_id)
        owner = found.get("os-vol-tenant-attr:tenant_id")
        _require_same(caller, owner or caller.project, "volume", volume_id)

    def server(self, caller: Caller, server_id: str) -> Server:
        """Return a server; see :meth:`UserServices.server`."""
        found = self._own(
            self._nova,
            caller,
            f"/servers/{server_id}",
            "server",
            server_id,
            microversion=MICROVERSION,
        )
        _require_same(caller, found.get("tenant_id"), "server", server_id)
        return server_of({**found, "id": server_id})

    def image_properties(self, caller: Caller, image_id: str) -> Mapping[str, str]:
        """Return what an image says; see :meth:`UserServices.image_properties`."""
        try:
            found = _answer(self._glance, caller, f"/v2/images/{image_id}", f"image {image_id}")
        except _RefusedError:
            return {}
        if not isinstance(found, Mapping):
            raise _nonsense(f"image {image_id}")
        return {str(name): value for name, value in found.items() if isinstance(value, str)}

    def find(self, caller: Caller, kind: Kind, thing_id: str) -> SeenThing | None:
        """Return an image or volume; see :meth:`UserServices.find`."""
        adapter, root = self._of(kind)
        what = f"{kind} {thing_id}"
        try:
            found = _answer(adapter, caller, f"{root}/{thing_id}", what)
            return _seen(found[kind] if kind is Kind.VOLUME else found, kind)
        except _RefusedError:
            return None
        except (KeyError, TypeError) as error:
            raise _nonsense(what) from error

    def page(
        self, caller: Caller, kind: Kind, limit: int, marker: str | None, name: str | None
    ) -> list[SeenThing]:
        """Return a page; see :meth:`UserServices.page`."""
        adapter, root = self._of(kind)
        query = {"limit": limit, "marker": marker, "name": name}
        text = urllib.parse.urlencode({key: one for key, one in query.items() if one is not None})
        where = f"{root}/detail?{text}" if kind is Kind.VOLUME else f"{root}?{text}"
        try:
            found = _answer(adapter, caller, where, f"the {kind}s")
            return [_seen(each, kind) for each in found[f"{kind}s"]]
        except _RefusedError as error:
            raise ApiError(
                f"the {kind}s cannot be listed from there",
                hint="begin the list anew",
                code="acstor.marker.invalid",
            ) from error
        except (KeyError, TypeError) as error:
            raise _nonsense(f"the {kind}s") from error

    def _of(self, kind: Kind) -> tuple[Any, str]:
        """Return adapter and path of things of a kind."""
        return (self._cinder, "/volumes") if kind is Kind.VOLUME else (self._glance, "/v2/images")

    def _own(
        self, adapter: Any, caller: Caller, path: str, kind: str, name: str, **options: str
    ) -> Mapping[str, Any]:
        try:
            found = _answer(adapter, caller, path, f"{kind} {name}", **options)[kind]
        except _RefusedError as error:
            raise unknown(kind, name) from error
        except (KeyError, TypeError) as error:
            raise _nonsense(f"{kind} {name}") from error
        if not isinstance(found, Mapping):
            raise _nonsense(f"{kind} {name}")
        return found


class _RefusedError(Exception):
    """A service has no such thing for the caller."""


def _answer(adapter: Any, caller: Caller, path: str, what: str, **options: str) -> Any:
    """Return what a service answers.

    :param options: of keystoneauth, as ``microversion``.
    :raises _RefusedError: when the caller sees no such thing.
    :raises UnavailableError: when it does not answer.
    """
    from keystoneauth1 import exceptions

    try:
        answer = adapter.get(path, auth=caller.token_auth, connect_retries=2, **options)
        return untrusted_json.load(answer.content, "the answer")
    except (
        exceptions.BadRequest,
        exceptions.NotFound,
        exceptions.Forbidden,
        exceptions.Unauthorized,
    ) as error:
        raise _RefusedError(what) from error
    except (exceptions.ClientException, ValueError) as error:
        raise exception.UnavailableError(
            f"{what} cannot be asked for: {type(error).__name__}",
            hint="try again; the operator checks [nova], [cinder], [glance] and the catalogue",
        ) from error


def _nonsense(what: str) -> exception.UnavailableError:
    return exception.UnavailableError(f"the answer about {what} makes no sense")


def _seen(fields: Mapping[str, Any], kind: Kind) -> SeenThing:
    """Return the image or volume that a service describes."""
    size: int | None = None
    if untrusted_json.is_whole(fields.get("size"), 0, 1 << 62):
        unit = 1 << 30 if kind is Kind.VOLUME else 1  # Cinder counts in GiB
        size = int(fields["size"]) * unit
    return SeenThing(str(fields["id"]), str(fields.get("name") or ""), size)


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
