"""A policy service's life: hear, collect, decide, and put in force what the leader decided.

One thread collects and decides; coordination and the feeds have threads of their own. Those that
stand by decide as well, without effect, so that whoever takes over knows which hosts have been
overloaded for how long.
"""

import dataclasses
import logging
import math
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from oslo_config import cfg

from acstor import exception
from acstor.cluster.decision_journal import DecisionLog
from acstor.cluster.leader_lock import Leadership
from acstor.cluster.leader_states import LeaderState
from acstor.cluster.leader_term import LeaderTerm
from acstor.cluster.membership import CoordinationSettings
from acstor.cluster.ring.decision import Decision
from acstor.cluster.ring.published_ring import RingReference
from acstor.native import RingHost
from acstor.origin.base import Origin
from acstor.policy import assembly, similarity
from acstor.policy.collection import Collection
from acstor.policy.decision_log import Inputs, decision_record
from acstor.policy.evaluation_result import EvaluationResult
from acstor.policy.load_history import without_change
from acstor.policy.load_samples import LoadSamples
from acstor.policy.metrics import PolicyMetrics
from acstor.policy.observation import is_overloaded
from acstor.policy.pins import Pins, read_pins
from acstor.repository.opening import open_repository
from acstor.service import Problems, ReconcileLoop, Watchdog

LOG = logging.getLogger(__name__)

STOP_TIMEOUT = 10.0
ROLE = "policy"
"""Name of the lock."""
EARLY_AFTER = 0.25
"""Part of the interval that is between two collections at least, however urgent the second is."""
PATIENCE = 3
"""Intervals for which a fenced service holds the lock before it acquires a term again."""


class Feed(Protocol):
    """Source of samples."""

    @property
    def problem(self) -> str | None:
        """Reason for which it brings none; None: all is well."""

    def start(self) -> None:
        """Begin."""

    def stop(self, timeout: float) -> None:
        """End, within ``timeout`` seconds."""


class _Origin:
    """Parts of the service that need the origin."""

    def __init__(self, origin: Origin, term: LeaderTerm) -> None:
        self.origin = origin
        self.term = term
        self.ring = RingReference(origin)


class PolicyService:
    """One policy service.

    :param conf: checked configuration.
    :param open_origin: opens the origin; tried again until it succeeds.
    :param feeds: by name; they note what they hear in ``load_samples``.
    :param announce: has agents look now, rather than when they would: all, or the one that
        publishes rings.
    :param clock: seconds since the epoch.
    :raises ConfigurationError: when the configuration names a plug-in that there is not, or a
        topology file that is not readable.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        open_origin: Callable[[], Origin],
        load_samples: LoadSamples,
        feeds: Sequence[tuple[str, Feed]] = (),
        metrics: PolicyMetrics,
        announce: Callable[[bool], None] = lambda concerns_all: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._conf = conf
        self._announce = announce
        self._open_origin = open_origin
        self._load_samples = load_samples
        self._feeds = tuple(feeds)
        self._metrics = metrics
        self._clock = clock
        self._interval = conf.policy.interval
        self._topology = assembly.topology(conf)
        self._maker = assembly.decision_maker(
            conf,
            self._topology,
            lambda givers, receivers: similarity.most_similar(
                load_samples.sketches(), givers, receivers
            ),
        )
        self._decision_log = DecisionLog(
            conf.policy.journal_path, conf.policy.journal_size, conf.policy.journal_files
        )
        self.name = f"{conf.host}/{os.getpid()}-{secrets.token_hex(2)}"
        self._opened: _Origin | None = None
        self._pins = Pins()
        self._owners: frozenset[str] | None = None
        self._problems = Problems(LOG, with_hints=True)
        self._said: str | None = None
        self._weights_seen: Mapping[str, int] | None = None
        self._is_following = False
        self._loop = ReconcileLoop(self._reconcile_due, self._seconds_until_due, logger=LOG)
        self._due = self._collected_at = time.monotonic()
        self._is_overload_heard = False
        settings = self._maker.settings
        load_samples.watch(
            lambda load: is_overloaded(load, settings), settings.successive, self._hear_overload
        )
        self._leadership = Leadership(
            CoordinationSettings(
                conf.coordination.backend_url,
                conf.coordination.group,
                conf.coordination.heartbeat_interval,
                conf.coordination.member_timeout,
            ),
            ROLE,
            f"policy-{self.name}",
            self._loop.reconcile_soon,
        )

    @property
    def state(self) -> LeaderState:
        """State of the service."""
        return self._opened.term.state if self._opened else LeaderState.STANDBY

    @property
    def problems(self) -> dict[str, str]:
        """By dependency, what was wrong at the last pass."""
        return self._problems.copy()

    def is_healthy(self) -> bool:
        """Return whether nothing was wrong at the last pass; standing by is well."""
        return not self._problems

    def reconcile_soon(self) -> None:
        """Read pins, decision and leader now; may be called from any thread."""
        self._loop.reconcile_soon()

    def stop(self) -> None:
        """End :meth:`run` soon; may be called from a signal handler."""
        self._loop.stop()

    def run(self, watchdog: Watchdog | None = None) -> None:
        """Work until stopped."""
        self._leadership.start()
        for _, feed in self._feeds:
            feed.start()
        self._due = time.monotonic() + self._interval
        try:
            self._loop.run(watchdog)
        finally:
            if self._opened is not None:
                self._opened.term.stop()
            self._metrics.set_state(LeaderState.STOPPED)
            for _, feed in reversed(self._feeds):
                feed.stop(STOP_TIMEOUT)
            self._leadership.stop(STOP_TIMEOUT)
            if self._opened is not None:
                self._opened.origin.close()

    def _reconcile_due(self) -> None:
        """Evaluate where that is due; else only see who leads and what is in force."""
        now = time.monotonic()
        if now >= self._due:
            self._due = max(self._due + self._interval, now + self._interval / 2)
        elif now >= self._early_due():
            self._due = now + self._interval
        else:
            self.refresh()
            return
        self._collected_at, self._is_overload_heard = now, False
        self.reconcile()

    def _seconds_until_due(self) -> float:
        return max(0.0, min(self._due, self._early_due()) - time.monotonic())

    def _hear_overload(self) -> None:
        """Have a collection at once: a host has been overloaded for long enough."""
        self._is_overload_heard = True
        self._loop.reconcile_soon()

    def _early_due(self) -> float:
        """Return when a collection before its time is due, by the monotonic clock."""
        # What is counted in collections, as the cool-down, is not to be over sooner.
        if not self._is_overload_heard or self._maker.history.cool_down:
            return math.inf
        return float(self._collected_at + EARLY_AFTER * self._interval)

    def refresh(self) -> None:
        """See who leads and what is in force; decide nothing. Raises nothing."""
        problems: dict[str, str] = {}
        self._refresh(problems)
        self._report(problems)

    def reconcile(self) -> None:
        """Take one collection and do what is due. Raises nothing that a dependency causes."""
        problems: dict[str, str] = {}
        heard = self._load_samples.collect(self._clock())
        previous = self._refresh(problems)
        collection = self._completed(heard)
        if "origin" not in problems and "decision" not in problems:
            with self._metrics.seconds.time():
                self._decide(collection, previous, problems)
        self._report(problems)

    # The parts of a pass

    def _refresh(self, problems: dict[str, str]) -> Decision | None:
        """Return the decision in force; note what is wrong."""
        try:
            if self._opened is None:
                origin = open_repository(self._open_origin).origin
                patience = PATIENCE * self._interval
                self._opened = _Origin(origin, LeaderTerm(origin, self.name, patience))
            self._opened.term.refresh(is_elected=self._leadership.is_leader)
        except exception.UnavailableError as error:
            problems["origin"] = self._problems.text(error)
            return None
        except (exception.AcstorError, OSError) as error:
            problems["decision"] = self._problems.text(error)
            return None
        try:
            self._pins = read_pins(self._opened.origin)
            ring = self._opened.ring.current()
        except exception.UnavailableError as error:
            problems["origin"] = self._problems.text(error)
        except exception.AcstorError as error:
            problems["pins"] = self._problems.text(error)  # those known before stay in force
        else:
            self._note_ring(ring.ring.hosts if ring is not None else None)
        return self._opened.term.decision

    def _note_ring(self, hosts: Sequence[RingHost] | None) -> None:
        if hosts is None:
            return
        self._owners = frozenset(host.name for host in hosts if host.weight)
        if self._topology is not None:
            positions = {host.name: host.topology for host in hosts}
            self._maker.topology = self._topology.with_hosts(positions)

    def _completed(self, heard: Collection) -> Collection:
        """Return the collection with the silent hosts of the ring, and without those that left."""
        if self._owners is None:
            return heard
        missing = {
            name: why
            for name, why in heard.missing.items()
            if why != "silent" or name in self._owners
        }
        unheard = self._owners - heard.hosts.keys() - missing.keys()
        return Collection(heard.at, heard.hosts, missing | dict.fromkeys(unheard, "silent"))

    def _decide(
        self, collection: Collection, previous: Decision | None, problems: dict[str, str]
    ) -> None:
        self._follow_leader(previous)
        inputs = Inputs(
            self._maker.settings,
            collection,
            self._maker.history,
            previous,
            self._pins,
            self._maker.topology,
        )
        result = self._maker.decide(collection, previous, self._pins)
        self._metrics.note_collection(collection, result)
        self._say(result)
        if result.decision is None:
            return
        if self._opened is None or not self._opened.term.is_leading:
            self._maker.history = without_change(result.history, inputs.history)
            return
        self._record(problems, decision_record(inputs, result))
        try:
            written = self._opened.term.publish(result.decision)
        except exception.AcstorError as error:
            # Nothing has happened that is known of: the next collection decides again.
            self._maker.history = inputs.history
            self._record(problems, {"kind": "refused", "error": self._problems.text(error)})
            if not isinstance(error, exception.FencedError):
                problems["origin"] = self._problems.text(error)
            return
        self._record(
            problems, {"kind": "published", "term": written.term, "sequence": written.sequence}
        )
        self._metrics.note_decision(result)
        self._announce(written.threshold != (previous.threshold if previous else None))
        LOG.info(
            "decision %d of term %d, %s: %.1f %% of the ring moves, threshold %s",
            written.sequence,
            written.term,
            written.reason,
            100 * result.moved_share,
            written.threshold or "as configured",
        )

    def _follow_leader(self, previous: Decision | None) -> None:
        """Cool down after a change of the weights that another service made."""
        weights = None if previous is None else previous.weights
        is_leading = self._opened is not None and self._opened.term.is_leading
        if not is_leading and self._is_following and weights != self._weights_seen:
            self._maker.history = dataclasses.replace(
                self._maker.history,
                # This collection is one of them already.
                cool_down=self._maker.settings.cool_down + 1,
            )
        self._weights_seen, self._is_following = weights, True

    def _record(self, problems: dict[str, str], record: Mapping[str, object]) -> None:
        try:
            self._decision_log.append(record, int(self._clock() * 1000))
        except OSError as error:
            problems["journal"] = self._problems.text(error)  # deciding goes on

    # Reporting

    def _say(self, result: EvaluationResult) -> None:
        said = result.reason.value
        if said != self._said and not result.reason.is_change:
            LOG.info("no change of the decision: %s (%s)", said, result.detail)
        self._said = said

    def _report(self, problems: dict[str, str]) -> None:
        if self._leadership.problem is not None:
            problems["coordination"] = self._leadership.problem
        for name, feed in self._feeds:
            if feed.problem is not None:
                problems[name] = feed.problem
        self._problems.replace(problems)
        metrics = self._metrics
        metrics.set_state(self.state)
        metrics.set_decision(self._opened.term.decision if self._opened else None)
        metrics.set_feeds(dict(self._load_samples.counts), self._load_samples.ages())
        for dependency in ("coordination", "origin", *(name for name, _ in self._feeds)):
            metrics.up.set(dependency, dependency not in problems)
