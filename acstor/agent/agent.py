"""The agent: keeps the data plane of its host equal to what the deployment wants.

Everything is done in reconcile passes: each compares what is with what should be and acts on the
difference, so that an agent killed anywhere goes on where it was. A dependency that is away makes
a pass incomplete, never wrong: what the data plane has, it keeps.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg

from acstor import exception, version
from acstor.agent.metrics import AgentMetrics
from acstor.agent.reconciler import HostSnapshot, ImageUser, Precondition, Reconciler
from acstor.agent.reconcilers import seen_index
from acstor.agent.reconcilers.decision_following import DecisionFollower
from acstor.agent.reconcilers.desired_host import is_drained, read_desired_state
from acstor.agent.reconcilers.image_following import ImageFollower, ImageReport, waiting_images
from acstor.agent.reconcilers.image_records import ImageRecords
from acstor.agent.reconcilers.image_use import ImageUse
from acstor.agent.reconcilers.index_trust import REASONS, IndexTrust
from acstor.agent.reconcilers.pinning import Pinner
from acstor.agent.reconcilers.ring_following import RingFollower
from acstor.agent.reconcilers.rounds_following import RoundsFollower
from acstor.agent.reconcilers.seen_index import SeenIndex
from acstor.agent.reconcilers.seen_records import SeenRecords, path_in
from acstor.agent.reconcilers.usage_publication import LocalUse, UsagePublisher
from acstor.agent.states import AgentEvent, AgentState, next_state
from acstor.backoff import jittered
from acstor.cluster.member import Member
from acstor.cluster.membership import CoordinationSettings, Membership, View
from acstor.cluster.ring.decision import DecisionReference
from acstor.cluster.ring.publication import RingPublisher
from acstor.cluster.ring.published_ring import RingReference
from acstor.cluster.ring.publisher_term import TermHolder
from acstor.cluster.ring.shrink_bound import ShrinkBound
from acstor.control.client import AdminClient
from acstor.origin.base import Origin, RefStore
from acstor.repository.images.configured_records import record_verifier
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.images.withdrawal_rounds import Rounds
from acstor.repository.opening import open_repository
from acstor.repository.repository import Repository
from acstor.service import Problems, ReconcileLoop, Watchdog

LOG = logging.getLogger(__name__)

ORIGIN_DEADLINE = 5.0
"""Seconds for which one call of the origin is repeated; the next pass is the longer retry."""
STATUS_TIMEOUT = 5.0
STOP_TIMEOUT = 5.0
RECONCILE_SPREAD = 0.001
"""Seconds per member over which passes are spread that one announcement asks all hosts for."""
RECONCILE_SPREAD_MAX = 1.0
"""Seconds over which they are spread at most."""
_PASSES_WITHOUT_ORIGIN_MAX = 3
"""In a row, before somebody else is to publish the ring."""
_WAIT_MIN = 0.05


@dataclass
class _Followers:
    """Parts of the agent that need the origin."""

    origin: Origin
    decision: DecisionFollower
    publisher: RingPublisher
    ring: RingFollower
    usage: UsagePublisher
    rounds: RoundsFollower
    records: ImageRecords
    images: ImageFollower


class Agent:
    """One host's agent; see :mod:`acstor.agent.states` for its life.

    :param conf: checked configuration.
    :param open_origin: opens the origin; tried again at each pass until it succeeds.
    :param metrics_address: ``ip:port`` of the Prometheus endpoint, told to the other hosts.
    :param announce_ring: tells the other agents of a generation.
    :param reconcilers: asked at each pass, in this order.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        open_origin: Callable[[], Origin],
        metrics: AgentMetrics,
        metrics_address: str,
        announce_ring: Callable[[int], None] = lambda generation: None,
        reconcilers: Sequence[Reconciler] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conf = conf
        self._open_origin = open_origin
        self._metrics = metrics
        self._metrics_address = metrics_address
        self._announce_ring = announce_ring
        self._reconcilers = tuple(reconcilers)
        self._clock = clock
        self._directory = f"{conf.state_path}/agent"
        self._data_plane = AdminClient(conf.dataplane.admin_socket)
        self._loop = ReconcileLoop(
            self.reconcile,
            self._seconds_to_next_pass,
            logger=LOG,
            on_fault=lambda: metrics.note_reconcile("failed"),
        )
        self._generation = 0
        self._membership = Membership(
            CoordinationSettings(
                conf.coordination.backend_url,
                conf.coordination.group,
                conf.coordination.heartbeat_interval,
                conf.coordination.member_timeout,
            ),
            conf.host,
            self.reconcile_soon,
        )
        self._pinner = Pinner(
            self._data_plane,
            head_bytes=conf.agent.pin_head,
            tail_bytes=conf.agent.pin_tail,
            timeout=conf.agent.pin_timeout,
            on_pinned=lambda image, pinned, _: metrics.pinned_bytes.labels(image).set(pinned),
            on_all_pinned=self.reconcile_soon,
        )
        self._image_use = ImageUse(clock)
        self._followers: _Followers | None = None
        self._passes_without_origin = 0
        self._data_plane_seen_at: float | None = None
        self._problems = Problems(LOG)
        self._state = AgentState.STARTING
        metrics.set_state(self._state)

    @property
    def state(self) -> AgentState:
        """State of the agent."""
        return self._state

    @property
    def problems(self) -> dict[str, str]:
        """By dependency or image, what was wrong at the last pass."""
        return self._problems.copy()

    @property
    def membership_view(self) -> View:
        """The group as it was last seen."""
        return self._membership.view

    def is_healthy(self) -> bool:
        """Return whether nothing was missing at the last pass."""
        return self._state in {AgentState.ACTIVE, AgentState.DRAINING} and not self._problems

    def reconcile_soon(self) -> None:
        """Have the next pass now; may be called from any thread."""
        self._loop.reconcile_soon()

    def hear_ring(self, generation: int) -> None:
        """Reconcile soon, for another agent published that generation; from any thread."""
        if generation > self._generation:
            self._loop.reconcile_soon(within=self._spread())

    def hear_doorbell(self) -> None:
        """Reconcile soon, for somebody changed what is registered; from any thread."""
        self._loop.reconcile_soon(within=self._spread())

    def hear_decision(self, concerns_all: bool) -> None:
        """Reconcile if there is anything to do about a new decision; from any thread.

        :param concerns_all: whether it changes more than the ring, which one host publishes.
        """
        if self._membership.view.is_publisher:
            self._loop.reconcile_soon()
        elif concerns_all:
            self._loop.reconcile_soon(within=self._spread())

    def stop(self) -> None:
        """End :meth:`run` soon; may be called from a signal handler."""
        self._loop.stop()

    def run(self, watchdog: Watchdog | None = None) -> None:
        """Reconcile again and again until stopped.

        The host stays in the group for as long as members are remembered, so that restarting the
        agent moves nothing.
        """
        self._membership.start()
        self._pinner.start()
        for reconciler in self._reconcilers:
            reconciler.start()
        try:
            self._loop.run(watchdog)
        finally:
            self._move(AgentEvent.STOP)
            for reconciler in reversed(self._reconcilers):
                reconciler.stop(STOP_TIMEOUT)
            self._pinner.stop(STOP_TIMEOUT)
            self._membership.stop(STOP_TIMEOUT, leave=False)
            if self._followers is not None:
                self._followers.origin.close()
            self._move(AgentEvent.STOPPED)

    def reconcile(self) -> None:
        """Compare once and act on the difference; raises nothing."""
        problems: dict[str, str] = {}
        with self._metrics.timed_reconcile():
            status = self._problems.attempt(problems, "data plane", self._read_status)
            followers = self._problems.attempt(problems, "origin", self._opened_followers)
            if followers is not None and status is not None:
                self._prepare(followers.origin, status, problems)
            self._problems.attempt(problems, "data plane", lambda: self._describe_self(status))
            self._passes_without_origin = 0 if followers else self._passes_without_origin + 1
            # Another member publishes the ring then; a moment without changes nothing.
            self._membership.set_eligible(self._passes_without_origin < _PASSES_WITHOUT_ORIGIN_MAX)
            generation = status["ring_generation"] if status else None
            images: ImageReport | None = None
            if followers is not None:
                generation, images = self._follow(followers, status, generation, problems)
            view = self._membership.view
            if not view.is_current:
                problems["coordination"] = view.problem or "not reached yet"
            self._run_reconcilers(
                HostSnapshot(
                    host=self._conf.host,
                    data_plane=self._data_plane,
                    status=status,
                    origin=followers.origin if followers and "origin" not in problems else None,
                    generation=generation,
                    is_draining=self._state is AgentState.DRAINING,
                    view=view,
                    registered=images.registered if images else None,
                    round=followers.rounds.known.round if followers and images else 0,
                    epoch=followers.rounds.known.epoch if followers and images else "",
                    closed=followers.rounds.known.closed if followers else frozenset(),
                    offered=images.offered if images else {},
                    pinned=self._pinner.pinned(status.get("started_at") if status else None),
                    kept=frozenset(images.kept) if images else frozenset(),
                    unverified=frozenset(images.unverified) if images else frozenset(),
                    whole=frozenset(images.whole) if images else frozenset(),
                    whole_pinned=self._pinner.whole(status.get("started_at") if status else None),
                ),
                problems,
            )
            if followers is not None and images is not None:
                self._problems.attempt(problems, "usage record", self._speaker(followers, images))
        self._report(problems, view, generation, is_up=status is not None)

    def _follow(
        self,
        followers: _Followers,
        status: dict[str, Any] | None,
        generation: int | None,
        problems: dict[str, str],
    ) -> tuple[int | None, ImageReport | None]:
        """Do what needs the origin; each step stands for itself, unless the origin is away.

        :returns: the ring generation in use and, where they could be followed, the images.
        """
        images: ImageReport | None = None

        def drain() -> None:
            self._follow_desired_state(followers.origin, status)

        def follow_decision() -> None:
            followers.decision.reconcile(status)

        def publish() -> None:
            self._publish_ring(followers)

        def use_ring() -> None:
            nonlocal generation
            if status is not None:
                generation = followers.ring.reconcile(generation)

        def use_images() -> None:
            nonlocal images
            if status is not None:
                images = self._follow_images(followers, status, generation, problems)

        for what, step in (
            ("desired state", drain),
            ("decision", follow_decision),
            ("ring publication", publish),
            ("ring", use_ring),
            ("images", use_images),
        ):
            try:
                step()
            except exception.UnavailableError as error:
                # Whoever it is that is away, the next steps would only wait for it as well.
                name = "data plane" if "data plane" in str(error) else "origin"
                problems[name] = exception.one_line(error)
                break
            except Exception as error:
                self._problems.note(problems, what, error)
        return generation, images

    def _prepare(self, refs: RefStore, status: dict[str, Any], problems: dict[str, str]) -> None:
        """Do what comes before this host serves others, as far as it can be done now."""
        for reconciler in self._reconcilers:
            if isinstance(reconciler, Precondition):
                try:
                    reconciler.prepare(refs, status)
                except Exception as error:
                    self._problems.note(problems, reconciler.name, error)

    def _run_reconcilers(self, snapshot: HostSnapshot, problems: dict[str, str]) -> None:
        for reconciler in self._reconcilers:
            try:
                problems.update(reconciler.reconcile(snapshot))
            except Exception as error:
                self._problems.note(problems, reconciler.name, error)

    # The steps of a pass

    def _read_status(self) -> dict[str, Any]:
        status: dict[str, Any] = self._data_plane.call("status", call_timeout=STATUS_TIMEOUT)
        return status

    def _describe_self(self, status: dict[str, Any] | None) -> None:
        """Be a member while the data plane answers, and a while longer."""
        now = self._clock()
        if status is not None:
            self._data_plane_seen_at = now
            self._membership.join_as(
                Member(
                    name=self._conf.host,
                    peer_address=str(status["peer_address"]),
                    metrics_address=self._metrics_address,
                    capacity_bytes=int(status["store"]["capacity_bytes"]),
                    release=version.release(),
                    topology=self._conf.topology,
                    is_draining=self._state is AgentState.DRAINING,
                )
            )
        elif (
            self._data_plane_seen_at is not None
            and now - self._data_plane_seen_at > self._conf.coordination.member_timeout
        ):
            self._membership.join_as(None)

    def _speaks_within(self) -> float:
        """Return the seconds that a change on this host takes at most to be published."""
        links = self._conf.image_links
        # Who has no links looks at no disk: its interval would lengthen every withdrawal's grace.
        scan = links.scan_interval if links.enabled else 0.0
        return float(self._conf.agent.interval + scan)

    def _opened_followers(self) -> _Followers:
        if self._followers is None:
            repository = open_repository(self._open_origin)
            origin = repository.origin
            doorbell = origin.doorbell()
            if doorbell is not None:
                doorbell.listen(self.hear_doorbell)
            verifier = record_verifier(self._conf, repository)
            records = self._make_records(repository, verifier)
            reference = RingReference(origin, self._clock)
            usage = UsagePublisher(
                origin,
                self._conf.host,
                attached=self._manifests_attached,
                speaks_within=self._speaks_within(),
                clock=self._clock,
            )
            self._followers = _Followers(
                origin,
                DecisionFollower(DecisionReference(origin, self._clock), self._data_plane),
                self._make_publisher(origin, reference),
                RingFollower(reference, self._data_plane, self._directory),
                usage,
                RoundsFollower(origin, usage, self._clock),
                records,
                ImageFollower(
                    origin,
                    self._data_plane,
                    self._directory,
                    usage,
                    records,
                    needed=self._images_needed,
                    has_index=repository.has_image_index,
                    trust=self._make_trust(repository, verifier),
                    clock=self._clock,
                ),
            )
        return self._followers

    def _make_records(self, repository: Repository, verifier: RecordVerifier) -> ImageRecords:
        return ImageRecords(
            repository.origin,
            verifier,
            SeenRecords(path_in(self._conf.state_path), repository.format.id),
            lambda reason: self._metrics.refused_records.labels(reason.value).inc(),
        )

    def _make_trust(self, repository: Repository, verifier: RecordVerifier) -> IndexTrust | None:
        """Return what judges the index of images, None where signatures are not required."""
        if not verifier.requires_signatures:
            return None
        for reason in REASONS:
            self._metrics.refused_indexes.labels(reason)  # a rate needs a number before the first
        return IndexTrust(
            verifier,
            SeenIndex(seen_index.path_in(self._conf.state_path), repository.format.id),
            lambda reason: self._metrics.refused_indexes.labels(reason).inc(),
            self._metrics.index_age.set,
        )

    def _manifests_attached(self) -> dict[str, str]:
        """Return the image by digest of each manifest that the data plane has, or had before.

        :raises UnavailableError: when the data plane does not say, or does not know yet.
        """
        # In this order: what waits no more at the second call is attached.
        waiting = waiting_images(self._read_status())
        unknown = sorted(image_id for image_id, manifest in waiting.items() if not manifest)
        if unknown:
            raise exception.UnavailableError(
                f"the data plane restores image {unknown[0]} and cannot read its manifest",
                hint="look for errors of the disk that [DEFAULT] state_path is on",
            )
        found = {manifest: image_id for image_id, manifest in waiting.items()}
        images = self._data_plane.call("image.list")
        return found | {str(image["manifest"]): str(image["id"]) for image in images}

    def _make_publisher(self, origin: Origin, reference: RingReference) -> RingPublisher:
        options = self._conf.agent
        bound = ShrinkBound(
            self._conf.host,
            share_max=options.ring_shrink_share,
            interval=options.ring_shrink_interval,
            is_dismissed=lambda name: is_drained(origin, name),
            clock=self._clock,
        )
        return RingPublisher(
            reference,
            host=self._conf.host,
            term_holder=TermHolder(origin, self._conf.host, clock=self._clock),
            bound=bound,
            weights=options.ring_weights,
            vnode_count=options.ring_vnodes,
            settle_delay=options.ring_settle_delay,
            is_elected=self._membership.is_elected,
            clock=self._clock,
        )

    def _images_needed(self) -> frozenset[str] | None:
        """Return which images the reconcilers need attached; None: one of them does not know."""
        needed: frozenset[str] = frozenset()
        for reconciler in self._reconcilers:
            if isinstance(reconciler, ImageUser):
                images = reconciler.images_needed()
                if images is None:
                    return None
                needed |= images
        return needed

    def _speaker(self, followers: _Followers, images: ImageReport) -> Callable[[], None]:
        def speak() -> None:
            use = self._local_use(images, followers.rounds.known)
            if use is not None and images.registered is not None:
                followers.usage.speak(use)

        return speak

    def _local_use(self, images: ImageReport, known: Rounds) -> LocalUse | None:
        """Return what this host uses; None: a reconciler does not know yet.

        :param known: withdrawal rounds that were read before ``images`` were looked at.
        """
        answered = known.round
        found: dict[str, tuple[str, ...]] = dict.fromkeys(images.opened, ())
        bases: frozenset[str] = frozenset()
        is_complete = True
        for reconciler in self._reconcilers:
            if isinstance(reconciler, ImageUser):
                use = reconciler.local_use()
                if use is None:
                    return None
                found.update(use.images)
                bases |= use.bases
                is_complete &= use.is_complete
                # A reconciler's answer to rounds that a backup has replaced since is none to these.
                answered = min(answered, use.round if use.epoch == known.epoch else 0)
        return LocalUse(found, bases, is_complete, answered, known.epoch)

    def _follow_desired_state(self, refs: RefStore, status: dict[str, Any] | None) -> None:
        drain = read_desired_state(refs, self._conf.host).is_drained
        self._move(AgentEvent.DRAIN if drain else AgentEvent.UNDRAIN)
        if status is not None and drain != (status["process_state"] == "draining"):
            self._data_plane.call("drain", on=drain)
            LOG.info("the data plane %s peers", "refuses" if drain else "serves")
            self._describe_self(status)

    def _publish_ring(self, followers: _Followers) -> None:
        decision, publisher = followers.decision, followers.publisher
        self._metrics.set_decision(decision.decision)
        ring = None
        try:
            if self._membership.view.is_publisher and self._membership.is_elected():
                ring = publisher.reconcile(
                    lambda: self._membership.view,
                    decision.decision,
                    is_decision_known=decision.is_known,
                )
            else:
                publisher.stand_by()
        except exception.FencedError as error:
            LOG.warning("%s; what it would have published is dropped", error)
            self._metrics.fenced.inc()
            publisher.stand_by()
            self._membership.renounce()
        finally:
            self._metrics.set_publisher(publisher.term, len(publisher.held), publisher.is_blind)
        if ring is not None:
            self._metrics.publications.inc()
            self._metrics.published_generation.set(ring.generation)
            self._announce_ring(ring.generation)

    def _follow_images(
        self,
        followers: _Followers,
        status: dict[str, Any],
        generation: int | None,
        problems: dict[str, str],
    ) -> ImageReport:
        followers.usage.peer_address = str(status["peer_address"])
        closed = followers.rounds.reconcile().closed
        if followers.rounds.problem is not None:
            problems["withdrawals"] = followers.rounds.problem
        report = followers.images.reconcile(closed, waiting_images(status))
        # Without a ring every host would read what it pins from the origin itself.
        desired = report.offered | report.kept if generation else {}
        use = self._local_use(report, followers.rounds.known)
        self._image_use.note(report.opened.union(use.images if use else ()))
        order = self._image_use.order({**dict.fromkeys(desired, ""), **report.registered_at})
        self._pinner.set_desired(desired, status.get("started_at"), report.whole, order)
        self._metrics.set_images(
            registered=len(report.registered or ()),
            offered=len(report.offered),
            hidden=report.hidden,
            kept=len(report.kept.keys() - report.unverified),
            unverified=len(report.unverified),
            failed=len(report.problems),
        )
        for path, problem in followers.records.key_problems.items():
            problems[f"image key {path}"] = problem
        for image_id, problem in report.problems.items():
            problems[f"image {image_id}"] = problem
        for image_id, problem in self._pinner.problems().items():
            problems[f"pin of image {image_id}"] = problem
        return report

    # Reporting

    def _report(
        self, problems: dict[str, str], view: View, generation: int | None, *, is_up: bool
    ) -> None:
        self._problems.replace(problems)
        if problems:
            self._move(AgentEvent.DEGRADED)
        else:
            self._move(AgentEvent.RECOVERED)
            if generation is not None:
                self._move(AgentEvent.RING_APPLIED)
        metrics = self._metrics
        metrics.note_reconcile("incomplete" if problems else "complete")
        metrics.members.set(len(view.members))
        self._generation = generation or 0
        metrics.used_generation.set(self._generation)
        metrics.up.set("data_plane", is_up)
        metrics.up.set("origin", "origin" not in problems)
        metrics.up.set("coordination", view.is_current)

    def _move(self, event: AgentEvent) -> None:
        former, self._state = self._state, next_state(self._state, event)
        if self._state is not former:
            LOG.info("agent is %s", self._state.value)
            self._metrics.set_state(self._state)
            if AgentState.DRAINING in {former, self._state}:
                self._loop.reconcile_soon()  # the others are to know at once

    def _spread(self) -> float:
        return min(RECONCILE_SPREAD_MAX, RECONCILE_SPREAD * len(self._membership.view.members))

    def _seconds_to_next_pass(self) -> float:
        interval = jittered(self._conf.agent.interval)
        if self._followers is not None and self._membership.view.is_publisher:
            due = self._followers.publisher.seconds_until_due()
            if due > 0:
                interval = min(interval, due)
        return float(max(_WAIT_MIN, interval))
