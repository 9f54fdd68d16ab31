"""Projects of images, volumes and snapshots, as Glance and Cinder say; and of versions."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from acstor import exception, identity
from acstor.conf import cinder
from acstor.repository.repository import Repository
from acstor.repository.subjects import UNREADABLE, Kind, Subject
from acstor.repository.versions import version_refs

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter

PAGE_SIZE = 1000
PAGES_MAX = 10_000
VOLUME_FIELDS = ("os-vol-mig-status-attr:name_id", "os-vol-tenant-attr:tenant_id")
"""Of a volume: the name that drivers know it by where that is not its id; its project."""
SNAPSHOT_PROJECT = "os-extended-snapshot-attributes:project_id"


def projects_of(conf: cfg.ConfigOpts) -> dict[Subject, str]:
    """Return the id of the project of every image, volume and snapshot.

    Asks Glance and Cinder with the credentials of ``[keystone]``, whose user needs to be admin.

    :raises ConfigurationError: when no credentials are configured.
    :raises InvalidError: when these are refused.
    :raises UnavailableError: when Keystone, Glance or Cinder does not answer.
    """
    from acstor.registrar.image_service.opening import open_image_service

    session = identity.open_session(conf)
    images = open_image_service(conf, session).list_images()
    found = {Subject(Kind.IMAGE, image.id): image.owner for image in images}
    adapter = identity.open_adapter(conf, cinder.GROUP, session, cinder.SERVICE_TYPE)
    block = BlockStorage(adapter)
    found.update(map(volume_of, block.list("volumes")))
    found.update(map(snapshot_of, block.list("snapshots")))
    return found


def projects_of_versions(repository: Repository) -> dict[Subject, str]:
    """Return the id of the project of every version whose record is readable.

    :raises UnavailableError: when the origin cannot be reached.
    """
    found = {}
    for version_id in version_refs.version_ids(repository.origin):
        with contextlib.suppress(*UNREADABLE):
            version = version_refs.find_version(repository.origin, version_id)
            if version is not None:
                found[Subject(Kind.VERSION, version_id)] = version.record.project
    return found


def volume_of(fields: Mapping[str, Any]) -> tuple[Subject, str]:
    """Return a volume that Cinder describes, as repositories name it, and its project."""
    name_id, project = map(fields.get, VOLUME_FIELDS)
    return Subject(Kind.VOLUME, str(name_id or fields["id"])), str(project or "")


def snapshot_of(fields: Mapping[str, Any]) -> tuple[Subject, str]:
    """Return a snapshot that Cinder describes, and its project."""
    return Subject(Kind.SNAPSHOT, str(fields["id"])), str(fields.get(SNAPSHOT_PROJECT) or "")


class BlockStorage:
    """Cinder, as far as it lists volumes and snapshots of all projects.

    :param adapter: keystoneauth's, for the block storage service.
    """

    def __init__(self, adapter: "Adapter") -> None:
        """Keep what to ask with; nothing is asked yet."""
        self._adapter = adapter

    def list(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """Yield every volume or snapshot that Cinder describes, page after page.

        :raises InvalidError: when Cinder refuses the credentials.
        :raises UnavailableError: when it does not answer, or answers nonsense.
        """
        marker = ""
        for _ in range(PAGES_MAX):
            path = f"/{kind}/detail?all_tenants=1&limit={PAGE_SIZE}{marker}"
            answer = identity.ask(self._adapter, path, "Cinder", f"{kind} of all projects")
            page = _page(answer, kind)
            if not page:  # not a short one: Cinder's osapi_max_limit may be below what is asked for
                return
            yield from page
            marker = f"&marker={page[-1]['id']}"
        raise exception.UnavailableError(f"Cinder lists more than {PAGES_MAX} pages of {kind}")


def _page(answer: object, kind: str) -> list[Mapping[str, Any]]:
    found = answer.get(kind) if isinstance(answer, Mapping) else None
    if not isinstance(found, list) or not all(_has_id(each) for each in found):
        raise exception.UnavailableError(f"Cinder answers nonsense about {kind}")
    return found


def _has_id(fields: object) -> bool:
    return isinstance(fields, Mapping) and isinstance(fields.get("id"), str)
