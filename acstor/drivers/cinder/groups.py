"""Generic volume groups, with consistent group snapshots where the group's type asks for them.

Groups of other types raise NotImplementedError, as Cinder wants it: its generic code then does
each volume by itself.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from cinder.objects import fields
from cinder.volume import volume_utils

from acstor import exception
from acstor.drivers.cinder.consistent_states import consistent_states
from acstor.drivers.cinder.failures import reported
from acstor.drivers.cinder.feature import NO_SHARED_TARGET, disk_of
from acstor.drivers.cinder.snapshots import Snapshots
from acstor.repository.volumes.store import PushedState

LOG = logging.getLogger(__name__)

Update = dict[str, Any]


class Groups(Snapshots):
    """Volumes whose snapshots are of one moment."""

    def create_group(self, context: Any, group: Any) -> Update:
        """Make a group: nothing of it is kept outside Cinder."""
        _require_consistent(group)
        return {"status": fields.GroupStatus.AVAILABLE}

    def delete_group(
        self, context: Any, group: Any, volumes: Sequence[Any]
    ) -> tuple[Update, list[Update]]:
        """Delete a group and its volumes."""
        _require_consistent(group)
        updates = []
        for volume in volumes:
            status = fields.GroupStatus.DELETED
            try:
                self.delete_volume(volume)
            except Exception:  # one that cannot be deleted must not keep the others
                LOG.exception("volume %s of group %s is not deleted", volume.id, group.id)
                status = "error_deleting"
            updates.append({"id": volume.id, "status": status})
        is_whole = all(update["status"] == fields.GroupStatus.DELETED for update in updates)
        return (
            {"status": fields.GroupStatus.DELETED if is_whole else "error_deleting"},
            updates,
        )

    def update_group(
        self, context: Any, group: Any, add_volumes: Any = None, remove_volumes: Any = None
    ) -> tuple[None, None, None]:
        """Change which volumes belong to a group: nothing of it is kept outside Cinder."""
        _require_consistent(group)
        return None, None, None

    @reported("creating group {group.id} from a source")
    def create_group_from_src(
        self,
        context: Any,
        group: Any,
        volumes: Sequence[Any],
        group_snapshot: Any = None,
        snapshots: Sequence[Any] | None = None,
        source_group: Any = None,
        source_vols: Sequence[Any] | None = None,
    ) -> tuple[Update, list[Update]]:
        """Make the volumes of a group from a group snapshot, or from another group at one moment.

        On failure none of them is left.
        """
        _require_consistent(group)
        makers: list[Callable[[Any], object]]
        if snapshots:
            makers = [
                functools.partial(self.create_volume_from_snapshot, snapshot=snapshot)
                for snapshot in snapshots
            ]
        elif source_vols:
            disks = [disk_of(source) for source in source_vols]
            states = self._states(disks)
            makers = [
                functools.partial(self.make_clone, source=disk, pushed=states[disk])
                for disk in disks
            ]
        else:
            raise exception.InvalidError(f"group {group.id} has no source")
        with contextlib.ExitStack() as undoing:
            for volume, make in zip(volumes, makers, strict=True):
                make(volume)
                undoing.callback(_undo, self.back_end.volumes.delete, disk_of(volume))
            undoing.pop_all()
        return (
            {"status": fields.GroupStatus.AVAILABLE},
            [{"id": volume.id, "status": "available", **NO_SHARED_TARGET} for volume in volumes],
        )

    @reported("taking group snapshot {group_snapshot.id}")
    def create_group_snapshot(
        self, context: Any, group_snapshot: Any, snapshots: Sequence[Any]
    ) -> tuple[Update, list[Update]]:
        """Take snapshots of all volumes of a group as they are at one moment.

        On failure none of them is left.
        """
        _require_consistent(group_snapshot)
        disks = {str(snapshot.id): disk_of(snapshot.volume) for snapshot in snapshots}
        states = self._states(list(disks.values()))
        volumes = self.back_end.volumes
        with contextlib.ExitStack() as undoing:
            for snapshot_id, disk in disks.items():
                volumes.snapshot(disk, snapshot_id, states[disk], group=str(group_snapshot.id))
                undoing.callback(_undo, volumes.delete_snapshot, snapshot_id)
            undoing.pop_all()
        return (
            {"status": fields.GroupSnapshotStatus.AVAILABLE},
            [
                {"id": snapshot.id, "status": fields.SnapshotStatus.AVAILABLE}
                for snapshot in snapshots
            ],
        )

    def delete_group_snapshot(
        self, context: Any, group_snapshot: Any, snapshots: Sequence[Any]
    ) -> tuple[Update, list[Update]]:
        """Delete the snapshots of a group snapshot."""
        _require_consistent(group_snapshot)
        updates = []
        for snapshot in snapshots:
            status = fields.SnapshotStatus.DELETED
            try:
                self.delete_snapshot(snapshot)
            except Exception:  # one that cannot be deleted must not keep the others
                LOG.exception("snapshot %s is not deleted", snapshot.id)
                status = fields.SnapshotStatus.ERROR_DELETING
            updates.append({"id": snapshot.id, "status": status})
        is_whole = all(update["status"] == fields.SnapshotStatus.DELETED for update in updates)
        of_group = fields.GroupSnapshotStatus
        return {"status": of_group.DELETED if is_whole else of_group.ERROR_DELETING}, updates

    def _states(self, disks: list[str]) -> dict[str, PushedState]:
        setting = self.configuration.safe_get
        return consistent_states(
            self.back_end, disks, setting("acstor_freeze_timeout"), setting("acstor_push_timeout")
        )


def _undo(action: Callable[[str], object], name: str) -> None:
    try:
        action(name)
    except exception.AcstorError as error:
        LOG.warning("%s, of a group that failed, stays behind: %s", name, error)


def _require_consistent(group: Any) -> None:
    """Leave groups whose snapshots need not be of one moment to Cinder's generic code.

    :raises NotImplementedError: for those.
    """
    if not volume_utils.is_group_a_cg_snapshot_type(group):
        raise NotImplementedError
