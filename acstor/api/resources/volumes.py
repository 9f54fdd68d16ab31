"""Volumes of Cinder that ACStor serves: durability, and what the loss of their host would leave."""

import contextlib
import datetime
from typing import Any

from acstor import exception, untrusted_json
from acstor.api import paging, times
from acstor.api.errors import not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import volumes as schemas
from acstor.api.user_services import Kind, SeenThing
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.durability import DurabilityClass
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import VolumeStore

PAGE_MAX = 100
"""Most volumes of one page: for each a record is read."""
_AGE_MAX = 1e9
"""Oldest recovery point that is believed, seconds."""


def fields_of(volume: SeenThing, record: VolumeRecord, *, is_admin: bool) -> dict[str, Any]:
    """Return a volume without what only its host knows."""
    found: dict[str, Any] = {
        "id": volume.id,
        "name": volume.name,
        "durability": record.durability.default.value,
        "interval_seconds": record.durability.period_s,
        "recovery_point": None,
        "dirty_bytes": None if record.owner is not None else 0,
        "size_bytes": record.size_bytes,
    }
    if is_admin:
        found["host"] = record.owner
    return found


class _OfVolumes(BackedResource):
    """Resource of volumes."""

    def _record(self, volume: SeenThing) -> VolumeRecord | None:
        """Return the record of a volume, None where it is not ACStor's."""
        refs = self._backends.open_versions().repository.origin
        found = record_refs.find_volume(refs, volume.id)
        return None if found is None else found.record


class Volumes(_OfVolumes):
    """Volumes: ``/v1/volumes``. No host is asked: recovery points are in single volumes."""

    @operation("volumes:list", "List volumes", {200: schemas.LISTED}, query=schemas.QUERY)
    def on_get(self, call: Call) -> Answer:
        """Answer a page, in the order of Cinder; volumes of other back-ends are left out."""
        limit = min(call.query.get("limit", PAGE_MAX), PAGE_MAX)
        seen = self._backends.user_services.page(
            call.caller, Kind.VOLUME, limit, call.query.get("marker"), call.query.get("name")
        )
        records = [(each, self._record(each)) for each in seen]
        volumes = [
            fields_of(each, record, is_admin=call.is_admin)
            for each, record in records
            if record is not None
        ]
        links = paging.links_after(call, seen[-1].id) if len(seen) == limit else []
        return Answer({"volumes": volumes, "links": links})


class OneVolume(_OfVolumes):
    """One volume: ``/v1/volumes/<id>``."""

    @operation("volumes:show", "Show a volume", {200: schemas.SHOWN})
    def on_get(self, call: Call) -> Answer:
        """Answer the volume; its host is asked what it has not pushed yet."""
        seen, record = self._found(call)
        return self._shown(call, seen, record)

    @operation(
        "volumes:update",
        "Change the durability of a volume",
        {200: schemas.SHOWN},
        body=schemas.UPDATE,
    )
    def on_patch(self, call: Call) -> Answer:
        """Change the record, then have the owner do as it says, in the order of Cinder's retype.

        Nothing is changed while the owner does not answer. Repeating it is safe: the owner is told
        whatever the record said before, as an earlier attempt may have got no further.
        """
        seen, record = self._found(call)
        if record.owner is not None:
            self._require_answer(record.owner, seen.id)
        wanted = call.body["volume"]
        default = wanted.get("durability")
        changed = VolumeStore(self._backends.open_versions().repository).adjust_durability(
            seen.id,
            None if default is None else DurabilityClass(default),
            wanted.get("interval_seconds"),
        )
        new = changed.after
        if new.owner is not None:
            with contextlib.suppress(exception.NotFoundError):  # it finds it in the record
                self._backends.tell_owner(new.owner, seen.id, new.durability)
        return self._shown(call, seen, new)

    def _found(self, call: Call) -> tuple[SeenThing, VolumeRecord]:
        """Return a volume that the caller sees, with its record.

        :raises NotFoundError: when there is none.
        """
        volume_id = call.path["volume_id"]
        seen = self._backends.user_services.find(call.caller, Kind.VOLUME, volume_id)
        record = None if seen is None else self._record(seen)
        if seen is None or record is None:
            raise not_found("volume", volume_id, hint="list what there is: openstack volume list")
        return seen, record

    def _shown(self, call: Call, seen: SeenThing, record: VolumeRecord) -> Answer:
        fields = fields_of(seen, record, is_admin=call.is_admin)
        if record.owner is not None:
            fields.update(self._told(record.owner, seen.id))
        return Answer({"volume": fields})

    def _require_answer(self, host: str, volume_id: str) -> None:
        """Refuse to change what the owner would not hear of.

        :raises UnavailableError: when the owner does not answer.
        """
        with contextlib.suppress(exception.NotFoundError):
            self._backends.ask_owner(host, volume_id)

    def _told(self, host: str, volume_id: str) -> dict[str, Any]:
        """Return what the owner tells; nothing where it does not answer."""
        try:
            found = self._backends.ask_owner(host, volume_id)
        except exception.AcstorError:
            return {}
        age, dirty = found.get("recovery_point_age_s"), found.get("dirty_bytes")
        told: dict[str, Any] = {}
        if untrusted_json.is_number(age, 0, _AGE_MAX):
            at = self._backends.now() - datetime.timedelta(seconds=float(str(age)))
            told["recovery_point"] = {"at": times.text(at), "age_seconds": age}
        if untrusted_json.is_whole(dirty, 0, 1 << 62):
            told["dirty_bytes"] = dirty
        return told
