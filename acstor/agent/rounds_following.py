"""Reading which images are being withdrawn, after this host's record is published."""

import time
from collections.abc import Callable

from acstor.agent.usage_publication import UsagePublisher
from acstor.origin.base import Origin, Ref
from acstor.repository.withdrawal_rounds import ROUNDS_REF, Rounds

REREAD_INTERVAL = 60.0
"""Seconds after which the ref is read whatever looks unchanged about it."""


class RoundsFollower:
    """Reads the rounds at each look.

    :param publisher: writes this host's usage record, first: the registrar then waits for this
        host, or has changed the rounds before they are read.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        origin: Origin,
        publisher: UsagePublisher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._origin = origin
        self._publisher = publisher
        self._clock = clock
        self._ref: Ref | None = None
        self._read_at: float | None = None
        self.known = Rounds()
        """As they were read last."""

    def look(self) -> Rounds:
        """Return the present rounds.

        :raises CorruptError: when they are malformed; nothing may then be attached.
        :raises UnsupportedError: likewise, when a newer release wrote them.
        :raises UnavailableError: when the origin cannot be reached.
        """
        is_new = self._publisher.ensure()
        now = self._clock()
        if is_new or self._read_at is None or now - self._read_at >= REREAD_INTERVAL:
            ref, self._read_at = self._origin.get_ref(ROUNDS_REF), now
        else:
            ref = self._origin.refresh_ref(ROUNDS_REF, self._ref)
        self.known = Rounds() if ref is None else Rounds.parse(ref.content, ref.token)
        self._ref = ref
        return self.known
