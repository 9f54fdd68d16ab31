"""Upkeep of an origin of several members by the registrar that leads, on a thread of its own."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.origin import base
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.power.power_keeping import PowerKeeping
from acstor.origin.replicated.power.switching import PowerSwitching
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.origin.retrying import RetryingOrigin
from acstor.registrar.member_power import PowerParts
from acstor.registrar.metrics import RegistrarMetrics
from acstor.repository import layout
from acstor.repository.copying.object_check import UNREADABLE, check_object
from acstor.repository.copying.roots import named
from acstor.repository.gc.condemnation import Tombstones, logs_of_name
from acstor.repository.gc.log_coverage import LogCoverage
from acstor.repository.upgrade import note_format
from acstor.repository.volumes.log_places import RecordedLogs
from acstor.service import ReconcileLoop

LOG = logging.getLogger(__name__)

PERIOD_SECONDS = 60.0
"""Time between two passes where nothing is left to be copied: T_s of flexStore."""
CONDEMNED_SECONDS = 60.0
"""Time after which tombstones of logs are looked at again."""
UNDER_WAY_SECONDS = 10.0
"""The same while a member goes to sleep or wakes."""
MIB = 1 << 20


class MemberUpkeep:
    """Makes passes until it is stopped.

    :param origin: several members.
    :param rate: largest rate of copies to and from each, MiB per second.
    :param leader: name of this process.
    :param metrics: of the registrar.
    :param power: machines of members and the budget.
    """

    def __init__(
        self,
        origin: ReplicatedOrigin,
        rate: int,
        leader: str,
        metrics: RegistrarMetrics,
        power: PowerParts,
    ) -> None:
        logs = RecordedLogs(origin, lambda: origin.view.home)
        self._keeping = MemberKeeping(
            origin,
            check_readable,
            rate * MIB,
            leader,
            is_wanted=NotCondemned(origin),
            needed=manifests_of,
            logs=logs,
        )
        self._switching = PowerSwitching(
            origin,
            self._keeping,
            {name: one.driver for name, one in power.machines.items() if one.driver is not None},
            leader,
            times=power.times,
            switched=metrics.note_switch,
            is_written=logs.may_be_written,
        )
        self._power = PowerKeeping(
            origin,
            self._switching,
            power.machines,
            power.settings,
            power.policy,
            power.budget(),
            lambda: self._keeping.away,
            is_written=logs.is_written,
            journal=power.journal,
        )
        self._keeping.power_status = self._power.status
        self._origin = origin
        self._is_format_noted = False
        self._metrics = metrics
        self._loop = ReconcileLoop(self._run, self._seconds_until_due, logger=LOG)
        self._thread = threading.Thread(target=self._loop.run, name="member-upkeep", daemon=True)
        self.problem: str | None = None
        """Problem of the members, None where there is none."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds_max: float) -> None:
        """End after the pass that runs; one that takes longer goes on, and does no harm."""
        self._loop.stop()
        self._thread.join(seconds_max)

    def _run(self) -> None:
        try:
            self._note_format()
            status = self._keeping.run()
            self._power.run()
        except exception.AcstorError as error:
            self.problem = f"{error.message}; {error.hint}"
            return
        errors = {name: one.error for name, one in status.members.items() if one.error}
        self.problem = "; ".join(f"{name}: {text}" for name, text in errors.items()) or None
        if self._switching.error:
            self.problem = "; ".join(filter(None, (self.problem, self._switching.error)))
        self._metrics.set_members(status)
        self._metrics.set_power(status.power, self._switching.record)
        self._metrics.member_copied.inc(self._keeping.report.bytes)

    def _note_format(self) -> None:
        """Have copies of the refs say which repository this is, for a promotion."""
        if not self._is_format_noted:
            note_format(self._origin)
            self._is_format_noted = True

    def _seconds_until_due(self) -> float:
        if self._keeping.is_behind:
            return 0.0
        return UNDER_WAY_SECONDS if self._power.is_under_way else PERIOD_SECONDS


def upkeep_of(
    origin: base.Origin,
    rate: int,
    leader: str,
    metrics: RegistrarMetrics,
    power: Callable[[], PowerParts],
) -> MemberUpkeep | None:
    """Return the upkeep of an origin, None for one that is a single store.

    :param power: returns what the power of members needs.
    :raises ConfigurationError: as ``power`` does.
    """
    store = origin.inner if isinstance(origin, RetryingOrigin) else origin
    if not isinstance(store, ReplicatedOrigin):
        return None
    return MemberUpkeep(store, rate, leader, metrics, power())


class NotCondemned:
    """Says of a key whether nobody deletes its object: copied meanwhile, its name came back.

    :param refs: with the tombstones. Those of logs name whole ranges, so that all are looked at,
        now and then: a log object that is copied all the same is condemned again.
    :param clock: monotonic seconds.
    """

    def __init__(self, refs: base.RefStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._refs = refs
        self._clock = clock
        self._logs = LogCoverage()
        self._look_at = -math.inf

    def __call__(self, key: str) -> bool:
        """Return whether it may be copied.

        :raises UnavailableError: when that cannot be told.
        """
        log = layout.parse_log_key(key)
        if log is not None:
            return not self._condemned_logs().covers(*log)
        name = layout.name_of(key)
        if name is None:
            return True
        if key.startswith(layout.MOVED_PREFIX):
            name = layout.moved_name(name)
        return self._refs.get_ref(layout.condemned_ref(name)) is None

    def _condemned_logs(self) -> LogCoverage:
        if self._clock() >= self._look_at:
            names = Tombstones(self._refs).names()
            coverage = LogCoverage()
            coverage.add(one for name in names if (one := logs_of_name(name)) is not None)
            self._logs, self._look_at = coverage, self._clock() + CONDEMNED_SECONDS
        return self._logs


def manifests_of(name: str, content: bytes) -> Iterator[str]:
    """Yield the keys of the manifests that a ref names; of one that is not readable, none."""
    try:
        manifests, _, _ = named(name, content)
    except UNREADABLE:
        return
    yield from map(layout.manifest_key, manifests)


def check_readable(key: str, content: memoryview, others: base.ObjectStore) -> None:
    """Compare an object with its name.

    :raises CorruptError: when it is not what it should be, whatever is wrong with it.
    """
    try:
        check_object(key, content, others)
    except UNREADABLE as error:
        raise exception.CorruptError(f"{key}: {error.message}", hint=error.hint) from error
