"""Rate limit on the removal of unreachable hosts from the ring.

A host that is no member is dead, or the coordination backend has lost it. The ring cannot tell, and
it need not: reads pass over a peer that does not answer, so a dead host in the ring costs what its
share costs while nobody owns it. A living one outside of it costs the same for its share, and every
other host's share moves twice. So few are taken out at once, and none while this host itself has
only just connected or been elected (who published before may just have taken out some), or hears of
nobody.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Collection

from acstor.native import Ring

ASKED_MAX = 64
"""Most absent hosts whose desired states are read in one pass. Of more, as after an outage of many
racks, each is read again after some passes: reading all takes longer than a pass may."""


class ShrinkBound:
    """Says which hosts of the published ring stay in it although they are no members.

    :param host: name of this host, the publisher.
    :param share_max: share of the hosts that own anything, 0 to 1, which may leave the ring in one
        ``interval``; one host always may.
    :param interval: seconds.
    :param is_dismissed: whether an operator has said that a host is to own nothing; it then leaves
        at once.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        host: str,
        *,
        share_max: float,
        interval: float,
        is_dismissed: Callable[[str], bool] = lambda name: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._share_max = share_max
        self._interval = interval
        self._is_dismissed = is_dismissed
        self._clock = clock
        self._absent_since: dict[str, float] = {}
        self._dismissed: dict[str, bool] = {}  # that was asked for last is last
        self._silent: frozenset[str] = frozenset()
        self._left: deque[tuple[float, int]] = deque()
        self.is_blind = False
        """True if none of several other hosts was there at the last :meth:`staying`."""

    def staying(
        self, ring: Ring, members: Collection[str], *, present_since: float
    ) -> frozenset[str]:
        """Return the hosts that own a part of ``ring``, are no members, and keep it for now.

        :param present_since: when this host joined the group that ``members`` were read from, or
            began to publish, whichever was later.
        :raises UnavailableError: when ``is_dismissed`` cannot be answered.
        """
        now = self._clock()
        owners = {host.name for host in ring.hosts if host.weight}
        absent = owners.difference(members)
        self._absent_since = {name: self._absent_since.get(name, now) for name in absent}
        others = owners - {self._host}
        self.is_blind = len(others) > 1 and others <= absent
        absent -= self._dismissed_among(absent)
        self._silent = frozenset(absent)
        allowed = self._allowed(len(owners), now, present_since)
        longest_first = sorted(absent, key=lambda name: (self._absent_since[name], name))
        return frozenset(longest_first[allowed:])

    def note(self, left: Collection[str]) -> None:
        """Note that a ring is about to be published which these hosts have left.

        Before it is: whether it was is not always known afterwards. Only those count that were
        silent at the last :meth:`staying`, and not dismissed.
        """
        self._left.append((self._clock(), len(self._silent.intersection(left))))

    def take_back(self) -> None:
        """Undo the last :meth:`note`: that ring was not published, for certain."""
        self._left.pop()

    def _dismissed_among(self, absent: Collection[str]) -> set[str]:
        """Return the hosts that are known to be dismissed, after some were asked for."""
        known = self._dismissed
        self._dismissed = {name: known[name] for name in known if name in absent}
        new = sorted(
            set(absent).difference(known), key=lambda name: (self._absent_since[name], name)
        )
        for name in [*new, *self._dismissed][:ASKED_MAX]:
            self._dismissed.pop(name, None)
            self._dismissed[name] = self._is_dismissed(name)
        return {name for name, is_dismissed in self._dismissed.items() if is_dismissed}

    def _allowed(self, owners: int, now: float, present_since: float) -> int:
        if self.is_blind or now - present_since < self._interval:
            return 0
        while self._left and now - self._left[0][0] >= self._interval:
            self._left.popleft()
        # Rounded up, but not what is a whole number and has lost its last bit.
        at_once = max(1, math.ceil(self._share_max * owners - 1e-9))
        return max(0, at_once - sum(count for _, count in self._left))
