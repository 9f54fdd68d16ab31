"""Nova, as flows need it: servers, by python-novaclient at a pinned microversion."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from acstor import exception, untrusted_json

MICROVERSION = "2.96"
"""Microversion that is asked for: the last one that python-novaclient knows. 2.3 brought the root
device, 2.47 the flavor in the server, 2.58 actions of servers by the page, 2.73 reasons of locks
and lists of what is locked, 2.96 the pinned zone, which is not used."""
PAGE = 500
"""Servers that are listed at once."""
WORDS_LENGTH_MAX = 200
"""Characters of Nova's own words that are passed on."""
REBUILD_ACTION = "rebuild"
"""Name of the action of a rebuild (nova/compute/instance_actions.py)."""
_HOST = "OS-EXT-SRV-ATTR:host"
_ROOT_DEVICE = "OS-EXT-SRV-ATTR:root_device_name"
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
    is_locked: bool = False
    """Only administrators may change it; its owner may, too, where the owner has locked it."""
    lock_reason: str | None = None
    root_device: str | None = None
    """Name of its root disk in the guest, for example ``vda``; None: not told."""
    disk_gib: int = 0
    """Room for the root disk, by the flavor; 0: as large as the image."""
    ephemeral_gib: int = 0
    """Ephemeral disks, by the flavor."""
    swap_mib: int = 0
    """Swap disk, by the flavor."""
    fault: str | None = None
    """Nova's own words about what put it into the status ``ERROR``."""


class Compute(Protocol):
    """Servers.

    Every method may raise :class:`~acstor.exception.UnavailableError` and
    :class:`~acstor.exception.OverloadedError`: it may be repeated then, and may have had its effect
    all the same. Changes are made with the rights of an administrator, whom no lock keeps out. They
    raise :class:`~acstor.exception.NotFoundError` where there is no such server,
    :class:`~acstor.exception.ConflictError` where its state does not allow it, and
    :class:`~acstor.exception.InvalidError` where Nova refuses it for good.
    """

    def find_server(self, server_id: str) -> Server | None:
        """Return a server, None where there is none."""

    def servers(self) -> Iterator[Server]:
        """Yield all servers of all projects; one that comes or goes meanwhile may be left out."""

    def locked_servers(self) -> Iterator[Server]:
        """Yield all that are locked; as :meth:`servers`."""

    def is_image_used(self, image_id: str) -> bool:
        """Return whether any server has been made, or is being made, of an image."""

    def last_rebuild(self, server_id: str) -> str | None:
        """Return a name for the latest rebuild of a server, accepted or under way; None: none."""

    def lock(self, server_id: str, reason: str) -> None:
        """Keep all but administrators from changing a server; in place of a lock before."""

    def unlock(self, server_id: str) -> None:
        """Take the lock off, whoever set it."""

    def rebuild(self, server_id: str, image_id: str) -> None:
        """Have the root disk be made anew of an image; id, name, addresses and volumes stay.

        A server that is shut off is started and shut off again.
        """

    def stop(self, server_id: str) -> None:
        """Have a running server be shut off."""

    def start(self, server_id: str) -> None:
        """Have a server that is shut off run."""


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
        try:
            with _mapped_errors(f"show server {server_id}"):
                return server_of(self._client.servers.get(server_id).to_dict())
        except _MissingError:
            return None

    def servers(self) -> Iterator[Server]:
        """Yield all servers; see :meth:`Compute.servers`."""
        return self._list({})

    def locked_servers(self) -> Iterator[Server]:
        """Yield those that are locked; see :meth:`Compute.locked_servers`."""
        return self._list({"locked": True})

    def is_image_used(self, image_id: str) -> bool:
        """Return whether a server is of an image; see :meth:`Compute.is_image_used`."""
        with _mapped_errors(f"list the servers of image {image_id}"):
            wanted = {"all_tenants": 1, "image": image_id}
            return bool(self._client.servers.list(detailed=False, search_opts=wanted, limit=1))

    def last_rebuild(self, server_id: str) -> str | None:
        """Return a name for the latest rebuild; see :meth:`Compute.last_rebuild`."""
        with _mapped_errors(f"list the actions of server {server_id}"):
            for action in self._client.instance_action.list(server_id):  # newest first
                fields = action.to_dict()
                if fields.get("action") == REBUILD_ACTION:
                    return str(fields.get("request_id"))
        return None

    def lock(self, server_id: str, reason: str) -> None:
        """Lock a server; see :meth:`Compute.lock`."""
        with _mapped_errors(f"lock server {server_id}"):
            self._client.servers.lock(server_id, reason=reason)

    def unlock(self, server_id: str) -> None:
        """Unlock a server; see :meth:`Compute.unlock`."""
        with _mapped_errors(f"unlock server {server_id}"):
            self._client.servers.unlock(server_id)

    def rebuild(self, server_id: str, image_id: str) -> None:
        """Rebuild a server; see :meth:`Compute.rebuild`."""
        with _mapped_errors(f"rebuild server {server_id} from image {image_id}"):
            self._client.servers.rebuild(server_id, image_id)

    def stop(self, server_id: str) -> None:
        """Shut a server off; see :meth:`Compute.stop`."""
        with _mapped_errors(f"stop server {server_id}"):
            self._client.servers.stop(server_id)

    def start(self, server_id: str) -> None:
        """Start a server; see :meth:`Compute.start`."""
        with _mapped_errors(f"start server {server_id}"):
            self._client.servers.start(server_id)

    def _list(self, wanted: Mapping[str, Any]) -> Iterator[Server]:
        """Yield all servers that a filter lets through."""
        marker = None
        while True:
            with _mapped_errors("list servers"):
                page = self._client.servers.list(
                    detailed=True,
                    search_opts={"all_tenants": 1, **wanted},
                    marker=marker,
                    limit=PAGE,
                )
            if not page:
                return  # of shorter pages Nova may have a limit of its own
            for found in page:
                yield server_of(found.to_dict())
            marker = page[-1].id


class _MissingError(exception.NotFoundError):
    """Something that Nova does not have."""


@contextlib.contextmanager
def _mapped_errors(what: str) -> Iterator[None]:
    """Turn errors of the client into those of their kinds.

    :param what: what is asked for; follows "Nova refuses to".
    """
    from keystoneauth1 import exceptions as ks_exceptions
    from novaclient import exceptions

    try:
        yield
    except exceptions.NotFound as error:
        raise _MissingError(f"Nova has nothing to {what}") from error
    except exceptions.OverLimit as error:
        raise exception.OverloadedError("Nova refuses because of load") from error
    except (exceptions.ClientException, ks_exceptions.ClientException) as error:
        code = getattr(error, "code", None) or getattr(error, "http_status", 0)
        if isinstance(code, int) and 400 <= code < 500:
            raise _refusal(what, code, error) from error
        raise exception.UnavailableError(f"Nova cannot be asked: {type(error).__name__}") from error


def _refusal(what: str, code: int, error: Exception) -> exception.AcstorError:
    """Return the error of what Nova does not want to do."""
    if code in (401, 403):
        return exception.InvalidError(
            f"Nova refuses to {what} (HTTP {code})",
            hint="give the user of [keystone] the role admin",
        )
    words = exception.one_line(getattr(error, "message", None) or error)[:WORDS_LENGTH_MAX]
    kind = exception.ConflictError if code == 409 else exception.InvalidError
    return kind(f"Nova refuses to {what} (HTTP {code}): {words}")


def server_of(fields: Mapping[str, Any]) -> Server:
    """Return the server that Nova's answer describes."""
    image = fields.get("image")
    flavor = fields.get("flavor")
    flavor = flavor if isinstance(flavor, Mapping) else {}
    host, fault = fields.get(_HOST), fields.get("fault")
    reason, device = fields.get("locked_reason"), fields.get(_ROOT_DEVICE)
    return Server(
        id=str(fields["id"]),
        project=str(fields.get("tenant_id", "")),
        name=str(fields.get("name", "")),
        status=str(fields.get("status", "")),
        host=host.lower() if isinstance(host, str) and host else None,
        image=str(image["id"]) if isinstance(image, Mapping) and image.get("id") else None,
        task_state=fields.get(_TASK_STATE),
        metadata=_texts(fields.get("metadata")),
        flavor_specs=_texts(flavor.get("extra_specs")),
        is_locked=fields.get("locked") is True,
        lock_reason=reason if isinstance(reason, str) else None,
        root_device=device.rpartition("/")[2] if isinstance(device, str) and device else None,
        disk_gib=_count(flavor.get("disk")),
        ephemeral_gib=_count(flavor.get("ephemeral")),
        swap_mib=_count(flavor.get("swap")),
        fault=_words_of(fault),
    )


def _count(found: object) -> int:
    """Return a size of a flavor; Nova has none as an empty text."""
    return found if untrusted_json.is_whole(found, 0, 1 << 53) and isinstance(found, int) else 0


def _words_of(fault: object) -> str | None:
    message = fault.get("message") if isinstance(fault, Mapping) else None
    return " ".join(message.split())[:WORDS_LENGTH_MAX] if isinstance(message, str) else None


def _texts(found: object) -> dict[str, str]:
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(value) for name, value in found.items()}
