"""The volumes of this host: opened, served, kept over restarts, pushed and given back.

Who owns a volume is in its record in the origin (:mod:`acstor.repository.volumes`); what the owner
wrote is in its log, here and in the origin (crates/overlay).
"""

from collections.abc import Callable, Mapping

from acstor.control.operations import Target
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.folds.exclusion import FoldExclusion
from acstor.dataplane.volumes.folds.folds import VolumeFolds
from acstor.dataplane.volumes.folds.turns import FoldTurns
from acstor.dataplane.volumes.freezes import VolumeFreezes
from acstor.dataplane.volumes.handover.ahead import PushAhead
from acstor.dataplane.volumes.handover.fetching import VolumeFetching
from acstor.dataplane.volumes.handover.handover import VolumeHandover
from acstor.dataplane.volumes.handover.heads import VolumeHeads
from acstor.dataplane.volumes.handover.moving import VolumeMoves
from acstor.dataplane.volumes.handover.watch import VolumeWatch
from acstor.dataplane.volumes.lifecycle.acquisition import VolumeAcquisition
from acstor.dataplane.volumes.lifecycle.checks import OwnershipChecks
from acstor.dataplane.volumes.lifecycle.closing import VolumeClosing
from acstor.dataplane.volumes.lifecycle.forgetting import VolumeForgetting
from acstor.dataplane.volumes.lifecycle.giving_up import VolumeGivingUp
from acstor.dataplane.volumes.lifecycle.opening import VolumeOpening
from acstor.dataplane.volumes.lifecycle.releases import VolumeReleases
from acstor.dataplane.volumes.lifecycle.reopening import VolumeReopening
from acstor.dataplane.volumes.lifecycle.resuming import VolumeResuming
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.lifecycle.standby import VolumeStandby
from acstor.dataplane.volumes.listeners import VolumeListeners
from acstor.dataplane.volumes.logs.closed import ClosedLogs
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.dataplane.volumes.logs.volumes_aside import VolumesAside
from acstor.dataplane.volumes.mending import VolumeMending
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.ownership.doorbells import HostDoorbells
from acstor.dataplane.volumes.ownership.heads import HeadQuestions
from acstor.dataplane.volumes.ownership.migrations import MigrationRequests
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.pushes import VolumePushes
from acstor.dataplane.volumes.settings import VolumeSettings
from acstor.dataplane.volumes.sockets import VolumeSockets
from acstor.dataplane.volumes.statuses import VolumeStatuses
from acstor.dataplane.volumes.table import VolumeTable
from acstor.dataplane.volumes.take_overs import TakeOvers
from acstor.native import DataPlane
from acstor.supervision.supervisor import Supervisor


class Volumes:
    """The volumes of one data plane: an object for each responsibility, put together here.

    Each knows only what was made before it. Whoever needs one calls it, not this: the sockets by
    :meth:`targets`, the reconciler and the service by name.

    :param host: its name in the records.
    :param access: to the records.
    :param is_enabled: whether volumes may be opened.
    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        host: str,
        access: OriginAccess,
        is_enabled: bool,
        runtime: Callable[[], DataPlane],
        files: VolumeFiles,
        place: LogDirectory,
        sockets: VolumeSockets,
        supervisor: Supervisor,
    ) -> None:
        self._access = access
        self._runtime = runtime
        self.files = files
        self.take_overs = TakeOvers()
        """Of owners that had not given a volume back, by this process."""
        self.owner = VolumeOwner(host, access)
        self.doorbells = HostDoorbells(host, access)
        self.migrations = MigrationRequests(host, access, self.doorbells)
        self.questions = HeadQuestions(access, self.owner, self.doorbells)
        self.table = VolumeTable(host)
        self.observer = VolumeObserver(self.table, runtime)
        self.statuses = VolumeStatuses(self.table, self.observer, sockets)
        self.freezes = VolumeFreezes(self.table, self.observer, runtime)
        self.listeners = VolumeListeners(sockets, supervisor)
        self.mending = VolumeMending(
            files=files, owner=self.owner, observer=self.observer, runtime=runtime
        )
        self.settings = VolumeSettings(
            table=self.table,
            files=files,
            owner=self.owner,
            observer=self.observer,
            runtime=runtime,
        )
        self._add_folds()
        self._add_lifecycle(place, is_enabled)
        self._add_handover()
        self._add_logs()
        self.pushes = VolumePushes(
            table=self.table,
            files=files,
            owner=self.owner,
            checks=self.checks,
            runtime=runtime,
        )

    def _add_folds(self) -> None:
        self.fold_exclusion = FoldExclusion(self._runtime)
        self.fold_turns = FoldTurns(self.fold_exclusion.set_unwanted)
        self.folds = VolumeFolds(
            table=self.table,
            files=self.files,
            owner=self.owner,
            mending=self.mending,
            turns=self.fold_turns,
            exclusion=self.fold_exclusion,
            runtime=self._runtime,
        )

    def _add_lifecycle(self, place: LogDirectory, is_enabled: bool) -> None:
        self.serving = VolumeServing(
            files=self.files,
            listeners=self.listeners,
            mending=self.mending,
            access=self._access,
            runtime=self._runtime,
        )
        self.forgetting = VolumeForgetting(
            table=self.table,
            files=self.files,
            listeners=self.listeners,
            observer=self.observer,
            serving=self.serving,
        )
        self.acquisition = VolumeAcquisition(
            files=self.files,
            owner=self.owner,
            mending=self.mending,
            take_overs=self.take_overs,
            access=self._access,
            runtime=self._runtime,
        )
        self.releases = VolumeReleases(
            files=self.files,
            owner=self.owner,
            observer=self.observer,
            serving=self.serving,
            runtime=self._runtime,
        )
        self.standby = VolumeStandby(
            files=self.files,
            owner=self.owner,
            migrations=self.migrations,
            doorbells=self.doorbells,
            acquisition=self.acquisition,
            releases=self.releases,
            serving=self.serving,
        )
        self.checks = OwnershipChecks(
            table=self.table,
            files=self.files,
            mending=self.mending,
            serving=self.serving,
            standby=self.standby,
        )
        self._add_ways_in(place, is_enabled)
        self._add_ways_out(place)

    def _add_ways_in(self, place: LogDirectory, is_enabled: bool) -> None:
        self.resuming = VolumeResuming(
            table=self.table,
            place=place,
            files=self.files,
            mending=self.mending,
            listeners=self.listeners,
            serving=self.serving,
            forgetting=self.forgetting,
        )
        self.reopening = VolumeReopening(
            table=self.table,
            files=self.files,
            mending=self.mending,
            serving=self.serving,
            forgetting=self.forgetting,
        )
        self.opening = VolumeOpening(
            is_enabled=is_enabled,
            place=place,
            table=self.table,
            observer=self.observer,
            statuses=self.statuses,
            listeners=self.listeners,
            checks=self.checks,
            reopening=self.reopening,
            acquisition=self.acquisition,
            standby=self.standby,
            serving=self.serving,
            forgetting=self.forgetting,
        )

    def _add_ways_out(self, place: LogDirectory) -> None:
        self.closing = VolumeClosing(
            place=place,
            table=self.table,
            exclusion=self.fold_exclusion,
            observer=self.observer,
            resuming=self.resuming,
            standby=self.standby,
            releases=self.releases,
            serving=self.serving,
            forgetting=self.forgetting,
        )
        self.giving_up = VolumeGivingUp(
            table=self.table,
            files=self.files,
            exclusion=self.fold_exclusion,
            observer=self.observer,
            serving=self.serving,
            forgetting=self.forgetting,
        )

    def _add_handover(self) -> None:
        self.ahead = PushAhead(
            observer=self.observer,
            folds=self.folds,
            turns=self.fold_turns,
            exclusion=self.fold_exclusion,
            runtime=self._runtime,
        )
        self.handover = VolumeHandover(
            table=self.table,
            files=self.files,
            exclusion=self.fold_exclusion,
            ahead=self.ahead,
            releases=self.releases,
        )
        self.moves = VolumeMoves(
            table=self.table, access=self._access, handover=self.handover, standby=self.standby
        )
        self.watching = VolumeWatch(
            table=self.table,
            files=self.files,
            owner=self.owner,
            migrations=self.migrations,
            checks=self.checks,
            settings=self.settings,
            mending=self.mending,
            releases=self.releases,
            handover=self.handover,
            ahead=self.ahead,
            moves=self.moves,
        )
        self.fetching = VolumeFetching(
            table=self.table,
            observer=self.observer,
            owner=self.owner,
            migrations=self.migrations,
            standby=self.standby,
        )
        self.heads = VolumeHeads(
            table=self.table,
            files=self.files,
            observer=self.observer,
            owner=self.owner,
            questions=self.questions,
            runtime=self._runtime,
        )

    def _add_logs(self) -> None:
        self.closed_logs = ClosedLogs(
            table=self.table, files=self.files, owner=self.owner, forgetting=self.forgetting
        )
        self.aside = VolumesAside(
            table=self.table,
            files=self.files,
            owner=self.owner,
            listeners=self.listeners,
            forgetting=self.forgetting,
            runtime=self._runtime,
        )

    def targets(self) -> Mapping[Target, object]:
        """Return what does the operations on volumes."""
        return {
            Target.VOLUME_STATUSES: self.statuses,
            Target.VOLUME_OPENING: self.opening,
            Target.VOLUME_CLOSING: self.closing,
            Target.VOLUME_PUSHES: self.pushes,
            Target.VOLUME_FREEZES: self.freezes,
            Target.VOLUME_SETTINGS: self.settings,
            Target.VOLUME_FOLDS: self.folds,
            Target.VOLUME_GIVING_UP: self.giving_up,
            Target.VOLUMES_ASIDE: self.aside,
        }
