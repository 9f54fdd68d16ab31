"""``acstor-policy`` that ends or stops itself in the middle of a decision; run by the probe tests.

``python -m tests.probe.policy_worker WRITE MOMENT --config-file FILE``: at its WRITE-th write of
the decision (the first one claims the office) it is killed, before or after what it writes is
there; or it is stopped, and writes when somebody has it go on.
"""

import os
import signal
import sys

from acstor.cluster.ring.decision import DECISION_REF
from acstor.cmd import policy
from acstor.origin import opening
from acstor.origin.base import Origin
from acstor.origin.faulty import FaultyOrigin

MOMENTS = {
    "killed-before": (True, signal.SIGKILL),
    "killed-after": (False, signal.SIGKILL),
    "stopped-before": (True, signal.SIGSTOP),
}
"""Faults by name: whether each comes before the write, and its signal."""


class DeadlyOrigin(FaultyOrigin):
    """An origin whose n-th write of the decision is the end of this process, or has it stop."""

    def __init__(self, inner: Origin, write: int, moment: str) -> None:
        super().__init__(inner)
        self._left = write
        self._is_before, self._signal = MOMENTS[moment]

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref, and die of it."""
        self._left -= name == DECISION_REF
        is_the_one = name == DECISION_REF and self._left == 0
        if is_the_one and self._is_before:
            os.kill(os.getpid(), self._signal)
        token = super().swap_ref(name, expected, content)
        if is_the_one and not self._is_before:
            os.kill(os.getpid(), self._signal)
        return token


def main() -> int:
    write, moment = int(sys.argv[1]), sys.argv[2]
    open_origin = opening.open_origin

    def open_deadly(
        url: str, deadline_seconds: float, around: opening.Around = lambda origin: origin
    ) -> Origin:
        return DeadlyOrigin(open_origin(url, deadline_seconds, around), write, moment)

    opening.open_origin = open_deadly
    return policy.main(sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
