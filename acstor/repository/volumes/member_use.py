"""Use of one member of the origin by volumes: what keeps it from being taken away."""

import dataclasses

from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.set_placement import LOG_FOLDER
from acstor.origin.replicated.states import MemberState
from acstor.repository import layout
from acstor.repository.copying.roots import named
from acstor.repository.gc.log_coverage import LogCoverage
from acstor.repository.volumes.record import VolumeRecord

_PREFIXES = (layout.VOLUME_PREFIX, layout.SNAPSHOT_PREFIX, layout.VERSION_PREFIX)


@dataclasses.dataclass(frozen=True, slots=True)
class MemberUse:
    """Use of one member by volumes."""

    volumes: tuple[str, ...]
    """Volumes of which an epoch is in it that is open or not sealed, or the next one is to be."""
    sole_logs: int
    """Needed log objects that no other active member has."""
    example: str
    """Key of one of them; empty: there is none."""

    @property
    def is_empty(self) -> bool:
        """True if it can be taken away."""
        return not self.volumes and not self.sole_logs


def find_use(origin: ReplicatedOrigin, name: str) -> MemberUse:
    """Return what volumes, snapshots and versions need of a member that is not the home.

    Seals are left out: with the member go those who could write there (RFD 38, *Epochs*).

    :raises UnavailableError: when a member cannot be asked.
    :raises CorruptError: and the like when a record is not readable: what it needs is not known.
    """
    volumes: list[str] = []
    needed = LogCoverage()
    for prefix in _PREFIXES:
        for ref_name in list(origin.list_refs(prefix)):
            ref = origin.get_ref(ref_name)
            if ref is None:
                continue
            needed.add(named(ref_name, ref.content)[1])
            if prefix == layout.VOLUME_PREFIX:
                volume = ref_name.removeprefix(prefix)
                if name in VolumeRecord.parse(ref.content, volume).written_members:
                    volumes.append(volume)
    sole = origin.members[name].list(LOG_FOLDER)
    for one, member in origin.members.items():
        is_on = origin.view.power_state(one) is PowerState.ACTIVE
        if one != name and is_on and origin.view.state(one) is MemberState.ACTIVE:
            sole = sole.difference(member.list(LOG_FOLDER))
    logs = [
        key
        for key in sorted(sole)
        if (found := layout.parse_log_key(key)) is not None and needed.covers(*found)
    ]
    return MemberUse(tuple(sorted(volumes)), len(logs), logs[0] if logs else "")
