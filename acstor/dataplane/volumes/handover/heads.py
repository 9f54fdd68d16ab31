"""The first sectors of a volume that is moving: the owner reads them for the standby.

Else QEMU's look at them, when it starts at the destination of a live migration, would take the
volume from the guest at the source, which would wait for all that was never pushed, and for the
way back. See :mod:`acstor.repository.volumes.heads`.

The answer comes when little is left to push: QEMU, which waits for it, tells that the migration can
begin, and one that began before would end with a guest that waits for all the rest.
"""

import contextlib
import logging
import random
import time
from collections.abc import Callable

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.ownership.heads import HeadQuestions
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.table import VolumeTable
from acstor.native import DataPlane, map_errors
from acstor.repository.volumes.heads import Head

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_PATIENCE = 20.0
"""Seconds for which a standby waits until its question is heard. An owner hears its doorbell every
three; one of a release before never does, and hands the volume over instead."""
_WAIT_MIN = 0.02
_WAIT_MAX = 0.1
_AWAY_WAIT = 1.0
"""Longest pause after the origin did not answer, seconds."""


class VolumeHeads:
    """First sectors of volumes that stay where they are: answered by the owner, for the standby.

    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        observer: VolumeObserver,
        owner: VolumeOwner,
        questions: HeadQuestions,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._table = table
        self._files = files
        self._observer = observer
        self._owner = owner
        self._questions = questions
        self._runtime = runtime

    def wanted(self) -> list[str]:
        """Return the volumes of which this host is the standby and whose first sectors are read."""
        standbys = self._table.in_state(_S.STANDBY)
        return [one.volume for one in standbys if self._observer.status(one).get("is_head_wanted")]

    def answer(self, volume: str) -> bool:
        """Answer a standby that reads the first sectors, if one does; the task is done then.

        It is told at once that it was heard, and answered when the volume has been got ahead.

        :raises AcstorError: when the volume cannot be read, or the origin does not answer.
        """
        local, kept = self._table.find_or_add(volume), self._files.find_readable(volume)
        asked = self._questions.asked(volume)
        if kept is None or asked is None or asked.content is not None:
            local.head_asked = None
            return True
        local.head_asked = asked.nonce
        if asked.owner != self._owner.host:
            self._questions.answer(volume, Head(asked.nonce, self._owner.host))
        if local.head_ready != asked.nonce:
            return True
        with map_errors(f"reading the first sectors of volume {volume}"):
            content = self._runtime().volume_read_head(volume)
        self._questions.answer(volume, Head(asked.nonce, self._owner.host, kept.epoch, content))
        return True

    def fetch(self, volume: str, wait: Callable[[float], object] = time.sleep) -> bool:
        """Answer reads of the first sectors that wait here by what the owner has.

        Where that does not succeed they wait for the volume itself, as all other requests do.

        :returns: whether the task is done.
        :raises AcstorError: when the volume was closed meanwhile.
        """
        local = self._table.known(volume)
        with map_errors(f"volume {volume}"):
            look = self._runtime().volume_begin_head(volume)
        if look is None:
            return True
        content = self._head(local, wait)
        with map_errors(f"volume {volume}"):
            if content is None:
                LOG.info("volume %s is asked for: nobody reads its first sectors for us", volume)
                self._runtime().volume_give_up_head(volume)
            else:
                self._runtime().volume_answer_head(volume, look, content)
        return True

    def _head(self, local: LocalVolume, wait: Callable[[float], object]) -> bytes | None:
        """Return the first sectors as the owner has them; None when nobody says so in time."""
        deadline = time.monotonic() + _PATIENCE
        nonce: str | None = None
        is_heard = False
        try:
            while local.state is _S.STANDBY and (is_heard or time.monotonic() < deadline):
                pause = _WAIT_MIN, _WAIT_MAX
                try:
                    if nonce is None:
                        nonce = self._questions.ask(local.volume)
                    found = self._questions.asked(local.volume)
                    if found is None or found.nonce != nonce:
                        return None
                    if found.content is not None:
                        return self._questions.current_content(local.volume, found)
                    # However long an owner has to push; but not for one that was replaced.
                    is_heard = found.owner == self._owner.record(local.volume).owner
                except exception.UnavailableError as error:
                    LOG.warning("first sectors of volume %s: %s", local.volume, error)
                    pause = _AWAY_WAIT / 2, _AWAY_WAIT
                wait(random.uniform(*pause))
        except exception.AcstorError as error:
            LOG.warning("first sectors of volume %s: %s", local.volume, error)
        finally:
            # One that stays is replaced by the next question, and goes with the volume.
            with contextlib.suppress(exception.AcstorError):
                self._questions.forget(local.volume)
        return None
