"""Order in which a link serves chunks of concurrent requests: ``network.in_order``, measured.

Guests that boot the same image come to the same owner within milliseconds. Where its link shares
fairly, all of them wait until the last has its chunk; where packets wait in the order in which they
came, half of them do not wait half as long. Measured on the testbed's links: one host is asked by
many others for a chunk each, again and again, beside even extra traffic.
"""

import dataclasses
import functools
import statistics
import threading
import time
from collections.abc import Callable, Sequence

from bench.acstor import link_shares
from bench.acstor.link_shares import Connections
from bench.acstor.settings import RATE
from testbed.exception import TestbedError
from testbed.network import Namespace
from testbed.rates import LinkRate
from testbed.testbed import Testbed, TestbedSettings

ASKING = 20
LOADS = (0.0, 0.28)
"""UDP each way, as shares of the owner's link; 0.28 is what a mean of 70 MB/s takes of 1 Gbit/s."""
CONVOYS = 12
PAUSE_S = 0.3


@dataclasses.dataclass(frozen=True)
class Convoy:
    """Chunks that were asked for at once."""

    congestion_control: str
    load: float
    seconds: Sequence[float]
    """Until each was there, the first one first."""

    @property
    def mean_over_last(self) -> float:
        """Return 1 where all come together, about a half where they come one by one."""
        return statistics.fmean(self.seconds) / self.seconds[-1]


def mean_over_last(in_order: float, count: int) -> float:
    """Return what the simulator's sharing makes of so many chunks that are asked for at once.

    :param in_order: share of the link that goes to who asked first.
    """
    now, total, left = 0.0, 0.0, 1.0
    for waiting in range(count, 0, -1):
        others = (1.0 - in_order) / waiting
        duration = left / (in_order + others)
        now += duration
        total += now
        left -= duration * others
    return total / count / now


def in_order_of(ratio: float, count: int) -> float:
    """Return the share that makes :func:`mean_over_last` this ratio, from 0 to 1."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if mean_over_last(middle, count) > ratio:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def measure(rate: LinkRate = RATE, convoys: int = CONVOYS, asking: int = ASKING) -> list[Convoy]:
    """Measure convoys with every congestion control and load.

    :param rate: of every link.
    :raises TestbedError: when the hosts cannot be made, or a connection ends.
    """
    found = []
    size = 1 + max(asking, link_shares.PARTNERS)
    with Testbed.create(TestbedSettings(size, rate, rate)) as testbed:
        for load in LOADS:
            flows = link_shares.flows(1, load, rate.bytes_per_s) if load else []
            with link_shares.extra(testbed, flows, f"convoys-{load}"):
                for control in link_shares.available():
                    times = _convoys(testbed.hosts[: asking + 1], control, convoys)
                    found += [Convoy(control, load, sorted(one)) for one in times]
    return found


def _convoys(hosts: Sequence[Namespace], control: str, count: int) -> list[list[float]]:
    """Return the seconds of each chunk of each convoy but the first, that finds links cold."""
    owner, *asking = hosts
    connections = Connections(control)
    try:
        ends = [connections.open(host, owner) for host in asking]
        found = []
        for _ in range(count + 1):
            found.append(_at_once([functools.partial(link_shares.ask, end) for end in ends]))
            time.sleep(PAUSE_S)
    finally:
        connections.close()
    return found[1:]


def _at_once(actions: Sequence[Callable[[], bool]]) -> list[float]:
    """Return how long each action took, all begun at once."""
    barrier = threading.Barrier(len(actions))
    took: list[float] = []

    def run(action: Callable[[], bool]) -> None:
        barrier.wait(link_shares.READY_TIMEOUT_S)
        began = time.monotonic()
        if action():
            took.append(time.monotonic() - began)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(took) < len(actions):
        raise TestbedError("a connection ended before its chunk was there")
    return took


def table(found: Sequence[Convoy]) -> list[list[str]]:
    """Return a table, header first: medians over the convoys."""
    rows = [["TCP", "UDP", "chunks", "last ms", "mean over last", "in order"]]
    for control, load in sorted({(one.congestion_control, one.load) for one in found}):
        ones = [one for one in found if (one.congestion_control, one.load) == (control, load)]
        ratio = statistics.median(one.mean_over_last for one in ones)
        last = statistics.median(one.seconds[-1] for one in ones)
        count = len(ones[0].seconds)
        rows.append([control, f"{load:.0%}", str(count), f"{last * 1e3:.0f}", f"{ratio:.2f}",
                     f"{in_order_of(ratio, count):.2f}"])  # fmt: skip
    return rows
