"""Preview of the restore of a server: the methods, what they move, and what they destroy.

It is made of what the caller sees and of what is recorded. Users do not see the host of a server,
so that is asked by the task alone.
"""

import functools
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import restores as schemas
from acstor.repository.versions.record import VersionRecord
from acstor.repository.versions.version_refs import Version
from acstor.versions import moved_bytes, rebuilding, restore_choice, writing_in_place
from acstor.versions.database.version_index import IndexedVersion
from acstor.versions.moved_bytes import Estimate, Moved
from acstor.versions.restore_choice import Options, RestoreMethod
from acstor.versions.services.compute import Server

KEEP_HINT = "its disk cannot become a version first: restore it with keep_current false"
VTPM_HINT = (
    "the virtual TPM stays as it is now: have the recovery keys of what is encrypted in the guest"
)
OF_REBUILD = "the whole version into the image store; its host takes of that what is read, or all"
OF_IMAGE = (
    "nothing into the image store, which has the version; its host takes what is read, or all"
)
OF_VERSION = "what the disk's image and the compared version have otherwise, out of the origin"
OF_BASE = "what the disk's image has otherwise, out of the origin: no version tells of the disk now"


class RestorePreview(BackedResource):
    """Preview: ``/v1/versions/<id>/restore-preview``."""

    @operation(
        "restores:preview",
        "Show how a version would be put back into a server, what is moved, what is destroyed",
        {200: schemas.PREVIEW},
        query=schemas.PREVIEW_QUERY,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer the method, or why there is none; the restore itself looks once more."""
        services = self._backends.user_services
        version = versions.restorable_of_caller(self._backends, call, call.path["version_id"])
        server = services.server(call.caller, call.query["server_id"])
        properties_of = functools.partial(services.image_properties, call.caller)
        found = {} if server.image is None else properties_of(server.image)
        losses = [each.value for each in rebuilding.losses(server, found, version.record)]
        options = self._options(call, version, server, properties_of)
        choice = restore_choice.choose(options)
        is_rebuilt = choice.method is RestoreMethod.REBUILD
        preview = {
            "version_id": version.id,
            "server_id": server.id,
            "method": None if choice.method is None else choice.method.value,
            "reason": choice.reason,
            "hint": _keep_hint(server) if is_rebuilt else choice.hint or _vtpm_hint(losses),
            "losses": losses,
            "methods": _methods(options, version.record, losses),
            "compared_with": _compared_with(options.estimate),
        }
        return Answer({"restore_preview": preview})

    def _options(
        self,
        call: Call,
        version: Version,
        server: Server,
        properties_of: rebuilding.PropertiesOf,
    ) -> Options:
        """Return the facts about both methods.

        :raises UnavailableError: when Glance cannot be asked, or the database.
        """
        newest = moved_bytes.newest_version(
            self._backends.stores.versions,
            call.caller.project,
            server,
            version.record.disk.device,
        )
        asked = (server, version.id, version.record, properties_of, self._finder(call))

        def require_writable() -> None:
            writing_in_place.require_restorable(*asked)
            size = None if newest is None else newest.size_bytes
            writing_in_place.require_same_size(server, version.record, size)

        return Options(
            _refusal(lambda: rebuilding.require_restorable(*asked)),
            _refusal(require_writable),
            self._estimate(call, version.record, server, newest),
        )

    def _estimate(
        self, call: Call, record: VersionRecord, server: Server, newest: IndexedVersion | None
    ) -> Estimate | exception.AcstorError:
        """Return what would be moved, or why nobody knows."""
        try:
            repository = self._backends.open_versions().repository
            found = None if newest is None else self._finder(call)(newest.id)
            named = None if newest is None or found is None else (newest.id, found)
            return moved_bytes.estimate(repository, record, server.image, named)
        except exception.AcstorError as error:
            return error

    def _finder(self, call: Call) -> rebuilding.FindRecord:
        """Return what finds records of versions of the caller's project, in whatever state."""

        def find(version_id: str) -> VersionRecord | None:
            found = self._backends.open_versions().find(version_id)
            if found is None or found.record.project != call.caller.project:
                return None
            return found.record

        return find


def _refusal(require: Callable[[], None]) -> exception.AcstorError | None:
    """Return why a method is refused; None: it is not.

    :raises AcstorError: when that cannot be said now.
    """
    try:
        require()
    except exception.AcstorError as error:
        if error.is_transient:
            raise
        return error
    return None


def _methods(options: Options, record: VersionRecord, losses: list[str]) -> list[dict[str, Any]]:
    """Return both methods as the API shows them."""
    found = options.estimate if isinstance(options.estimate, Estimate) else None
    has_image = any(use.startswith(moved_bytes.IMAGE_USE) for use in record.uses)
    is_compared = _compared_with(options.estimate) is not None
    return [
        _fields(
            RestoreMethod.REBUILD,
            options.rebuild,
            None if found is None else found.rebuild,
            OF_IMAGE if has_image else OF_REBUILD,
            losses,
        ),
        _fields(
            RestoreMethod.IN_PLACE,
            options.in_place,
            None if found is None else found.in_place,
            OF_VERSION if is_compared else OF_BASE,
            [],
        ),
    ]


def _fields(
    method: RestoreMethod,
    refusal: exception.AcstorError | None,
    moved: Moved | None,
    of: str,
    losses: list[str],
) -> dict[str, Any]:
    return {
        "method": method.value,
        "is_possible": refusal is None,
        "reason": None if refusal is None else refusal.message,
        "bytes": None if moved is None else moved.bytes,
        "bytes_at_most": None if moved is None else moved.at_most,
        "bytes_of": of,
        "losses": losses,
    }


def _compared_with(found: Estimate | exception.AcstorError) -> str | None:
    return found.compared_with if isinstance(found, Estimate) else None


def _keep_hint(server: Server) -> str | None:
    """Return the hint of a server whose present disk nobody can read; None: of any other."""
    return KEEP_HINT if server.status == "ERROR" else None


def _vtpm_hint(losses: list[str]) -> str | None:
    """Return the hint of a server with a virtual TPM, whose state is not written back."""
    return VTPM_HINT if rebuilding.Loss.VTPM.value in losses else None
