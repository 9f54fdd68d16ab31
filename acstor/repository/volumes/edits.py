"""Changes of a volume by the control plane, whoever owns it: hosts, durability, size and name."""

import dataclasses
from collections.abc import Mapping

from acstor import exception
from acstor.repository.volumes.durability import Durability, DurabilityClass
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.record_refs import Change
from acstor.repository.volumes.sizes import RecordSizes
from acstor.repository.volumes.states import VolumeRecordEvent

HOSTS_OF_A_MIGRATION = 2


class RecordEdits(RecordSizes):
    """Edits of volumes' records."""

    def describe(
        self,
        volume_id: str,
        *,
        name: str | None = None,
        metadata: Mapping[str, str | None] | None = None,
    ) -> Change:
        """Change what is for people.

        :param name: None: as it is.
        :param metadata: what to change; a value of None removes the entry.
        """

        def described(record: VolumeRecord) -> VolumeRecord:
            merged = {**record.metadata, **(metadata or {})}
            kept = {key: value for key, value in merged.items() if value is not None}
            new_name = record.name if name is None else name
            return dataclasses.replace(record, name=new_name, metadata=kept)

        return self._change(volume_id, VolumeRecordEvent.EDIT, described)

    def set_dedup_scope(self, volume_id: str, scope: str | None) -> Change:
        """Change in which scope new chunks are named, from the next fold on.

        :param scope: None: they have plain names. What the manifest has keeps its names.
        :raises UnsupportedError: when the repository is of a version without scopes.
        """
        self._repository.check_scope_allowed(scope)
        return self._change(
            volume_id,
            VolumeRecordEvent.EDIT,
            lambda record: dataclasses.replace(record, dedup_scope=scope),
        )

    def resize(self, volume_id: str, size_bytes: int) -> Change:
        """Make a volume larger; what is added reads as zeros. The owner has to be told.

        :raises InvalidError: when it would shrink, or be larger than its manifests describe.
        """

        def resized(record: VolumeRecord) -> VolumeRecord:
            self.check_size(size_bytes, record.manifest)
            if size_bytes < record.size_bytes:
                raise exception.InvalidError(
                    f"volume {volume_id} has {record.size_bytes} bytes and cannot shrink to "
                    f"{size_bytes}"
                )
            return dataclasses.replace(record, size_bytes=size_bytes)

        return self._change(volume_id, VolumeRecordEvent.EDIT, resized)

    def set_durability(self, volume_id: str, durability: Durability) -> Change:
        """Change the durability. The owner has to be told.

        :raises ConflictError: when something would stay on the host during a live migration.
        """

        def changed(record: VolumeRecord) -> VolumeRecord:
            if record.is_standby_allowed:
                _check_movable(volume_id, durability)
            return dataclasses.replace(record, durability=durability)

        return self._change(volume_id, VolumeRecordEvent.EDIT, changed)

    def adjust_durability(
        self,
        volume_id: str,
        default: DurabilityClass | None = None,
        period_s: float | None = None,
    ) -> Change:
        """Change parts of the durability; its regions stay. The owner has to be told.

        :param default: durability of all that is in no region; None: as it is.
        :param period_s: seconds between two pushes of write-back; None: as it is.
        :raises InvalidError: when nothing would be pushed at that period, or it is out of range.
        :raises ConflictError: when something would stay on the host during a live migration.
        """

        def adjusted(record: VolumeRecord) -> VolumeRecord:
            old = record.durability
            durability = dataclasses.replace(
                old,
                default=old.default if default is None else default,
                period_s=old.period_s if period_s is None else period_s,
            )
            if period_s is not None and DurabilityClass.WRITE_BACK not in durability.classes:
                raise exception.InvalidError(
                    f"volume {volume_id} has no part that is pushed at an interval: it is "
                    f"{durability.default.value}",
                    hint="give an interval with the durability write-back only",
                )
            if record.is_standby_allowed:
                _check_movable(volume_id, durability)
            return dataclasses.replace(record, durability=durability)

        return self._change(volume_id, VolumeRecordEvent.EDIT, adjusted)

    def assign(self, volume_id: str, member: str | None) -> Change:
        """Have the next epoch begin in a member of the origin. The owner has to be told.

        What is written until then goes where it went: this gives nobody a right to write anywhere.
        Of several calls the last one counts; repeating it is safe.

        :param member: None: the home. Whether it may get anything is for the caller to look at.
        :raises InvalidError: when it is no name of a member.
        """
        return self._change(
            volume_id,
            VolumeRecordEvent.EDIT,
            lambda record: dataclasses.replace(record, assigned=member),
        )

    def allow_host(self, volume_id: str, host: str) -> Change:
        """Let a host attach the volume; repeating it is safe.

        :raises ConflictError: when another host may, and no standby is allowed.
        """

        def allowed(record: VolumeRecord) -> VolumeRecord:
            others = [one for one in record.hosts if one != host]
            room = HOSTS_OF_A_MIGRATION if record.is_standby_allowed else 1
            if others and host not in record.hosts and len(others) >= room:
                raise exception.ConflictError(
                    f"volume {volume_id} is attached on host {others[0]}",
                    hint="detach it there first; only a live migration has two hosts",
                )
            return dataclasses.replace(record, hosts=tuple(sorted({*record.hosts, host})))

        return self._change(volume_id, VolumeRecordEvent.EDIT, allowed)

    def disallow_host(self, volume_id: str, host: str) -> Change:
        """Do not let a host attach the volume any more; repeating it is safe.

        If it owns the volume it goes on until another host takes the volume over. With the last
        but one host the permission of a standby ends.
        """

        def disallowed(record: VolumeRecord) -> VolumeRecord:
            hosts = tuple(one for one in record.hosts if one != host)
            is_standby_allowed = record.is_standby_allowed and len(hosts) > 1
            return dataclasses.replace(record, hosts=hosts, is_standby_allowed=is_standby_allowed)

        return self._change(volume_id, VolumeRecordEvent.EDIT, disallowed)

    def begin_standby(self, volume_id: str, host: str) -> Change:
        """Let a second host attach the volume, for a live migration to it; repeating it is safe.

        It does not become owner until the owner releases the volume or is no longer allowed.

        :raises ConflictError: when two other hosts may attach it already, or when a part of it
            never leaves its host: the guest, which goes on, would find something else there.
        """

        def begun(record: VolumeRecord) -> VolumeRecord:
            _check_movable(volume_id, record.durability)
            hosts = tuple(sorted({*record.hosts, host}))
            if len(hosts) > HOSTS_OF_A_MIGRATION:
                raise exception.ConflictError(
                    f"volume {volume_id} is being migrated between {', '.join(record.hosts)}",
                    hint="wait for that migration, or let Cinder remove the attachment it left",
                )
            return dataclasses.replace(record, hosts=hosts, is_standby_allowed=True)

        return self._change(volume_id, VolumeRecordEvent.EDIT, begun)

    def end_standby(self, volume_id: str) -> Change:
        """Allow no further host; those that are allowed stay so. Repeating it is safe."""
        return self._change(
            volume_id,
            VolumeRecordEvent.EDIT,
            lambda record: dataclasses.replace(record, is_standby_allowed=False),
        )


def _check_movable(volume_id: str, durability: Durability) -> None:
    if DurabilityClass.NONE in durability.classes:
        raise exception.ConflictError(
            f"volume {volume_id} has parts of durability none, which never leave their host: a "
            "live migration would lose them under the running guest",
            hint="stop the guest to migrate it, or change the durability of those parts first",
        )
