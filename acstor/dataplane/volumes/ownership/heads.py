"""Questions for the first sectors of volumes, as hosts ask and answer them through the origin.

See :mod:`acstor.repository.volumes.heads`.
"""

from acstor import exception
from acstor.dataplane.volumes.ownership.doorbells import HostDoorbells
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.repository.volumes import heads


class HeadQuestions:
    """The questions of this host, and those of others for volumes that it owns.

    :param doorbells: ring at the owners that are asked.
    """

    def __init__(self, access: OriginAccess, owner: VolumeOwner, doorbells: HostDoorbells) -> None:
        self._access = access
        self._owner = owner
        self._doorbells = doorbells

    def ask(self, volume: str) -> str:
        """Ask the owner of a volume for its first sectors; return the question's nonce.

        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when no other host owns it.
        """
        record = self._owner.record(volume)
        if record.owner in (None, self._owner.host):
            raise exception.ConflictError(f"no other host owns volume {volume}")
        nonce = heads.ask(self._access.origin(), volume)
        self._doorbells.ring(record)
        return nonce

    def asked(self, volume: str) -> heads.Head | None:
        """Return the question for a volume's first sectors, or the answer to it.

        :raises UnavailableError: when the origin does not answer.
        """
        return heads.asked(self._access.origin(), volume)

    def answer(self, volume: str, head: heads.Head) -> None:
        """Answer a question for a volume's first sectors.

        :param head: its nonce, and what this host read since, in the epoch that it names.
        """
        heads.answer(self._access.origin(), volume, head)

    def current_content(self, volume: str, head: heads.Head) -> bytes | None:
        """Return the content of an answer; None where another host may have written since.

        :raises UnavailableError: when the origin does not answer.
        """
        record = self._owner.record(volume)
        is_owner = (record.owner, record.epoch) == (head.owner, head.epoch)
        return head.content if is_owner and record.unsealed is None else None

    def forget(self, volume: str) -> None:
        """Remove a question for a volume's first sectors, and its answer."""
        heads.remove(self._access.origin(), volume)
