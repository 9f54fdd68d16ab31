"""Reading which images are being withdrawn, after this host's record is published."""

import time
from collections.abc import Callable

from acstor import exception
from acstor.agent.reconcilers.usage_publication import UsagePublisher
from acstor.origin.base import Ref, RefStore
from acstor.repository.images.withdrawal_rounds import ROUNDS_REF, Rounds

REREAD_INTERVAL = 60.0
"""Seconds after which the ref is read whatever looks unchanged about it."""


class RoundsFollower:
    """Reads the rounds at each pass.

    :param publisher: writes this host's usage record, first: the registrar then waits for this
        host, or has changed the rounds before they are read.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        refs: RefStore,
        publisher: UsagePublisher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refs = refs
        self._publisher = publisher
        self._clock = clock
        self._ref: Ref | None = None
        self._read_at: float | None = None
        self._has_read = False
        self.known = Rounds()
        """As they were read last."""
        self.problem: str | None = None
        """Reason for which they could not be read at the last pass."""

    def reconcile(self) -> Rounds:
        """Return the present rounds; where they are malformed, those before.

        Guests are to be started then, too. What this host has closed stays closed; of another image
        it has not answered that it closed it, so that it stays registered while it is used here.
        A process that has read none does not know what the one before has closed: it takes the
        answer back before anything is attached.

        :raises UnsupportedError: when a newer release wrote them; nothing may then be attached.
        :raises UnavailableError: when the origin cannot be reached.
        """
        is_new = self._publisher.ensure()
        try:
            self._read(is_new)
        except exception.CorruptError as error:
            self._ref, self._read_at = None, None
            if not self._has_read:
                self._publisher.take_answer_back()
            self.problem = f"{error}; the registrar replaces them"
        else:
            self._has_read, self.problem = True, None
        return self.known

    def _read(self, is_new: bool) -> None:
        now = self._clock()
        if is_new or self._read_at is None or now - self._read_at >= REREAD_INTERVAL:
            ref, self._read_at = self._refs.get_ref(ROUNDS_REF), now
        else:
            ref = self._refs.refresh_ref(ROUNDS_REF, self._ref)
        self.known = Rounds() if ref is None else Rounds.parse(ref.content, ref.token)
        self._ref = ref
