"""Compactions of the registrar that leads: at a bounded rate, and ended when it leads no more."""

import logging
import threading

from oslo_config import cfg

from acstor import exception
from acstor.conf.types import MIB
from acstor.rate_limit import RateLimit
from acstor.repository.gc.compaction import Compactor, Report
from acstor.repository.gc.compaction_plan import Limits
from acstor.repository.gc.remembered_packs import RememberedPacks
from acstor.repository.repository import Repository

LOG = logging.getLogger(__name__)


class PacedCompaction:
    """Compacts packs, and leaves most of the origin's bandwidth to others.

    :param rate_bytes_per_s: that are read; 0: no limit.
    :param reserve_percent: share of the origin's room that is left to volumes.
    """

    def __init__(self, limits: Limits, rate_bytes_per_s: int, reserve_percent: int) -> None:
        self._limits = limits
        self._rate = RateLimit(rate_bytes_per_s)
        self._reserve_percent = reserve_percent
        self._stopped = threading.Event()

    def run(self, repository: Repository, host: str, known: RememberedPacks) -> Report:
        """Compact once.

        :raises AcstorError: when it could not, or was stopped.
        """
        compactor = Compactor(
            repository,
            host,
            self._limits,
            remembered=known,
            pace=self._pace,
            check=self._check,
            reserve_percent=self._reserve_percent,
        )
        report = compactor.compact()
        LOG.info(
            "compacted %d packs: %.1f MiB written, %.1f MiB for collections to free, %d damaged, "
            "%.1f s", report.moved, report.bytes_written / MIB, report.bytes_to_free / MIB,
            report.damaged, report.seconds,
        )  # fmt: skip
        return report

    def stop(self) -> None:
        """End a compaction that runs at its next step, and every later one."""
        self._stopped.set()

    def _pace(self, size: int) -> None:
        self._stopped.wait(self._rate.take(size))

    def _check(self) -> None:
        if self._stopped.is_set():
            raise exception.UnavailableError("this registrar leads no more")


def compaction_of(conf: cfg.ConfigOpts) -> PacedCompaction | None:
    """Return the compaction that the configuration describes, None where it wants none."""
    if not conf.gc.compact:
        return None
    limits = Limits(
        conf.gc.compact_dead_share, conf.gc.compact_live_share_max, conf.registration.pack_size
    )
    return PacedCompaction(limits, conf.gc.compact_rate, conf.origin.reserve_percent)
