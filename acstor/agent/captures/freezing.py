"""Freezing the file systems of a guest, with a deadline, and a thaw on every path.

libvirt's own call waits for the agent without limit. So the agent is asked by command, each with a
deadline, and after a freeze that may have happened it is asked to thaw until it answers: a freeze
that was too late comes all the same.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from acstor import exception
from acstor.agent.hypervisor.base import AgentError, Hypervisor
from acstor.agent.hypervisor.domain_xml import Guest
from acstor.backoff import BackOff
from acstor.repository.versions.record import Consistency
from acstor.versions.host_capture.request import WantedConsistency

LOG = logging.getLogger(__name__)

FREEZE_TIMEOUT = 5
"""Seconds that an agent has to freeze."""
THAW_TIMEOUT = 5
"""Seconds that an agent has to thaw, each time that it is asked."""
THAW_SECONDS = 60.0
"""Longest time that one capture asks for a thaw; then the host's agent goes on asking."""
_RETRY = BackOff(first=0.2, longest=2.0)


@dataclass
class FrozenMoment:
    """Outcome of a freeze; known once it is over."""

    consistency: Consistency = Consistency.CRASH
    note: str = ""
    """Reason for which file systems were not frozen."""
    is_thawed: bool = True
    """False where it is not known that the guest goes on."""


class Freezer:
    """Freezes guests of one hypervisor.

    :param note_frozen: told a guest before it is asked to freeze, and an empty text once
        it is known to be thawed: whoever finds this process dead has to thaw it.
    :param clock: monotonic seconds.
    :param wait: how to wait between attempts.
    """

    def __init__(
        self,
        hypervisor: Hypervisor,
        note_frozen: Callable[[str], None] = lambda server: None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._hypervisor = hypervisor
        self._note_frozen = note_frozen
        self._clock = clock
        self._wait = wait

    @contextlib.contextmanager
    def frozen(self, guest: Guest, wanted: WantedConsistency) -> Iterator[FrozenMoment]:
        """Have the file systems of a guest frozen, where that is wanted and can be had.

        Whatever happens inside or here, the guest is asked to thaw.

        :raises ConflictError: when they could not be frozen and nothing less is wanted; before
            what is inside, or after it where the guest has thawed by itself.
        """
        moment = FrozenMoment()
        moment.note = self._freeze(guest, wanted)
        if moment.note:
            _refuse_less(guest, wanted, moment.note)
            yield moment
            return
        try:
            yield moment
        finally:
            thawed = self.thaw(guest.server)
            moment.is_thawed = thawed is not None
            if thawed:
                moment.consistency = Consistency.FS
            elif thawed == 0:
                moment.note = "the guest had thawed its file systems by itself"
            else:
                moment.note = "the guest's agent did not answer to the thaw"
        if moment.consistency is not Consistency.FS:
            _refuse_less(guest, wanted, moment.note)

    def _freeze(self, guest: Guest, wanted: WantedConsistency) -> str:
        """Freeze; return why that was not done, empty where it was."""
        if wanted is WantedConsistency.CRASH:
            return "it was not asked for"
        if not guest.is_active:
            return "the guest does not run"
        if not guest.has_agent:
            return "the guest has no channel for an agent (hw_qemu_guest_agent)"
        if not guest.is_agent_connected:
            return "no agent runs in the guest"
        self._note_frozen(guest.server)
        try:
            count = self._hypervisor.ask_agent(
                guest.server, "guest-fsfreeze-freeze", FREEZE_TIMEOUT
            )
        except (AgentError, exception.AcstorError) as error:
            reason = f"the guest's agent did not freeze: {error}"
            # Also where it refuses: some file systems may be frozen already.
            self.thaw(guest.server)
            return reason
        if not isinstance(count, int) or count <= 0:
            self.thaw(guest.server)
            return "the guest's agent has frozen no file system"
        return ""

    def thaw(self, server: str) -> int | None:
        """Ask for a thaw until there is an answer, for a bounded time.

        :returns: number of file systems that were frozen until now; None: there was no answer, and
            the guest may be frozen.
        """
        until, attempts = self._clock() + THAW_SECONDS, 0
        while True:
            found = self.try_thaw(server)
            if found is not None:
                return found
            attempts += 1
            if self._clock() >= until:
                LOG.error("guest %s may be frozen: its agent does not answer to a thaw", server)
                return None
            self._wait(_RETRY.seconds(attempts))

    def try_thaw(self, server: str) -> int | None:
        """Ask once for a thaw; errors as an answer of None.

        A guest that does not run any more is thawed: nothing of it is left that could be frozen.
        """
        try:
            count = self._hypervisor.ask_agent(server, "guest-fsfreeze-thaw", THAW_TIMEOUT)
        except (AgentError, exception.AcstorError) as error:
            with contextlib.suppress(exception.AcstorError):
                guest = self._hypervisor.find(server)
                if guest is None or not guest.is_active:
                    self._note_frozen("")
                    return 0
            LOG.warning("guest %s: its agent did not thaw: %s", server, error)
            return None
        self._note_frozen("")
        return count if isinstance(count, int) and count >= 0 else 0


def _refuse_less(guest: Guest, wanted: WantedConsistency, reason: str) -> None:
    if wanted is WantedConsistency.FS:
        raise exception.ConflictError(
            f"the file systems of server {guest.server} were not frozen: {reason}",
            hint="ask for consistency 'best' or 'crash', or see to the guest's agent",
        )
