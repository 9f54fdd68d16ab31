"""Reconcile pass over all links of a host: observed state, desired state, and the changes."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from acstor.drivers.nova.image_links.base_names import base_name
from acstor.drivers.nova.image_links.known_links import KnownLink, KnownLinks
from acstor.drivers.nova.image_links.link_states import LinkEvent, LinkState, next_state
from acstor.drivers.nova.image_links.nova_settings import NovaSettings
from acstor.drivers.nova.image_links.overlay_scan import OverlayScan, scan
from acstor.drivers.nova.image_links.planting import Outcome, Planter

LOG = logging.getLogger(__name__)

IN_USE = "in use by instances of this host"


def why_kept(settings: NovaSettings, image_id: str) -> str | None:
    """Return why the link of an image that should go must stay; None: it may go.

    Looks at all overlays as they are at this moment: to be called under Nova's lock of the image,
    when no new overlay of it can be made.
    """
    now = scan(settings)
    if base_name(image_id) in now.used_names:
        return IN_USE
    if not now.is_complete:
        return f"which images instances use is not known: {now.problem}"
    return None


@dataclass(frozen=True)
class DesiredLinks:
    """Desired state of the links in one reconcile pass."""

    registered: frozenset[str] | None
    """Images that should have a link; None: nobody knows now, nothing is to change."""
    attached: frozenset[str] = frozenset()
    """Images that the data plane offers."""
    ready: frozenset[str] = frozenset()
    """Images in :attr:`attached` whose head and tail are pinned on this host."""
    refusal: str | None = None
    """Reason against links on this host, apart from Nova's settings; None: there is none."""
    closed: frozenset[str] = frozenset()
    """Images that are being withdrawn: not in :attr:`registered`, so their links are to go."""
    round: int = 0
    """The withdrawal round that asks for it; the overlays are looked at anew for each."""
    epoch: str = ""
    """Epoch of ``round``."""
    local: frozenset[str] = frozenset()
    """Images whose link is to lead to their local file; those of all others lead to the mount."""


@dataclass(frozen=True)
class LinkReport:
    """Findings and changes of one reconcile pass."""

    known: KnownLinks = field(default_factory=KnownLinks)
    used: frozenset[str] = frozenset()
    """Images that overlays on this host need, and closed ones whose link could not be removed."""
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By image in :attr:`used`, the directories of the instances that need it."""
    unknown_bases: frozenset[str] = frozenset()
    """Names of base files that overlays need and that are of no image that is known."""
    is_use_known: bool = False
    """True if images that are not in :attr:`used` are not in use."""
    round: int = 0
    """The newest withdrawal round that this host has done: since it was known, all overlays were
    seen, and no withdrawn image that is not in :attr:`users` has a link."""
    epoch: str = ""
    """Epoch of ``round``."""
    needed: frozenset[str] = frozenset()
    """Images that must stay attached: those in use, and those with a link."""
    problems: Mapping[str, str] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    """Images whose link leads to their local file."""


class LinkKeeper:
    """Makes the reconcile passes, one at a time.

    :param known: what was known at the end of the process before.
    :param scan_interval: seconds between looks at the overlays.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        known: KnownLinks,
        scan_interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = known
        self._scan_interval = scan_interval
        self._clock = clock
        self._scan: OverlayScan | None = None
        self._scanned: NovaSettings | None = None
        self._scanned_at = 0.0
        self._used: frozenset[str] = frozenset()
        self._unknown: frozenset[str] = frozenset()
        self._scanned_round = ("", 0)  # with its epoch
        self._done_round = 0
        self._epoch = ""  # of that

    def reconcile(
        self, settings: NovaSettings, planter: Planter, desired: DesiredLinks
    ) -> LinkReport:
        """Bring the links into line with what is desired.

        :raises AcstorError: when Nova's directories are not there.
        :raises OSError: when they cannot be read or changed at all.
        """
        self._forget_later_rounds(desired)
        refusal = desired.refusal or settings.refusal
        if refusal is None:
            planter.prepare()
        problems: dict[str, str] = {}
        planted = planter.planted_images()
        present = planted | (desired.registered or frozenset()) | desired.closed
        self._scan_overlays(settings, present, (desired.epoch, desired.round))
        links: dict[str, KnownLink] = {}
        candidates = planted | self._used | (desired.registered or frozenset())
        if desired.registered is None:
            candidates |= frozenset(self._known.links)
        for image_id in sorted(candidates):
            try:
                outcome = self._outcome(settings, planter, desired, refusal, image_id)
            except OSError as error:
                problems[f"link of image {image_id}"] = str(error)
                outcome = Outcome(LinkEvent.NOT_READY, str(error))
            self._note(image_id, outcome, links)
            if outcome.event is LinkEvent.STRANGER_FOUND:
                problems[f"link of image {image_id}"] = outcome.reason
        if self._scan is None or not self._scan.is_complete:
            reason = self._scan.problem if self._scan else "not looked at yet"
            problems["overlays"] = f"which images instances use is not known: {reason}"
        if refusal is None and self._scan and self._scan.other_digest:
            problems["names of base files"] = (
                f"an instance uses {self._scan.other_digest}: this Nova calls base files by "
                "another digest than SHA-1 and uses no links"
            )
        self._known = self._known.followed_by(settings.base_directory, links)
        held = planter.planted_images() & desired.closed - self._used
        self._note_round(desired, is_settled=not held)
        return LinkReport(
            known=self._known,
            used=self._used | held,
            users={**self._users(), **dict.fromkeys(held, ())},
            unknown_bases=self._unknown,
            is_use_known=self._scan is not None and self._scan.is_complete,
            round=self._done_round,
            epoch=self._epoch,
            needed=self._used | planter.planted_images(),
            problems=problems,
            local=planter.local_images(),
        )

    def _outcome(
        self,
        settings: NovaSettings,
        planter: Planter,
        desired: DesiredLinks,
        refusal: str | None,
        image_id: str,
    ) -> Outcome:
        found = planter.found(image_id)
        if desired.registered is None:
            return found or Outcome(LinkEvent.NOT_READY, "the origin cannot be reached")
        is_registered = image_id in desired.registered
        if refusal is None and (is_registered or image_id in self._used):
            outcome = self._with_link(planter, desired, image_id, found)
            if not is_registered and outcome.event is LinkEvent.PLANT:
                return Outcome(LinkEvent.KEEP, IN_USE, is_local=outcome.is_local)
            return outcome
        outcome = planter.remove(
            image_id,
            lambda: why_kept(settings, image_id),
            of_any_mount=image_id in desired.closed,
        )
        if outcome.event is LinkEvent.REMOVE and is_registered:
            return Outcome(LinkEvent.REFUSE, refusal or "")
        return outcome

    def _with_link(
        self, planter: Planter, desired: DesiredLinks, image_id: str, found: Outcome | None
    ) -> Outcome:
        if found is None and image_id not in desired.attached:
            return Outcome(LinkEvent.NOT_READY, "the data plane does not offer it")
        if found is None and image_id not in desired.ready:
            return Outcome(LinkEvent.NOT_READY, "its head and tail are not pinned yet")
        if found is not None and found.event is not LinkEvent.PLANT:
            return found
        to_local = image_id in desired.local
        if found is not None and found.is_local and image_id not in desired.attached:
            return found  # what it would be moved back to is not there
        return planter.plant(image_id, to_local=to_local)

    def _forget_later_rounds(self, desired: DesiredLinks) -> None:
        """Forget what was done for rounds that a restored or lost ref has undone."""
        if desired.registered is None:
            return  # the rounds are not known now
        if desired.epoch != self._epoch:
            self._epoch, self._done_round = desired.epoch, 0
        self._done_round = min(self._done_round, desired.round)

    def _note_round(self, desired: DesiredLinks, *, is_settled: bool) -> None:
        """Note that this host has done what a withdrawal round asks for, if it has.

        :param is_settled: whether each closed image that no overlay needs has lost its link. Those
            that have not are reported as used, which keeps them and no others.
        """
        if desired.registered is None or self._scan is None or not self._scan.is_complete:
            return
        if self._scanned_round == (desired.epoch, desired.round):
            self._done_round = desired.round
        if not is_settled:
            self._scanned_round = ("", 0)  # an overlay may come until the link goes: scan again

    def _scan_overlays(
        self, settings: NovaSettings, present: frozenset[str], newest_round: tuple[str, int]
    ) -> None:
        now = self._clock()
        if (
            self._scan is None
            or not self._scan.is_complete
            or self._scanned != settings
            or self._scanned_round != newest_round
            or now - self._scanned_at >= self._scan_interval
        ):
            self._scan, self._scanned, self._scanned_at = scan(settings), settings, now
            self._scanned_round = newest_round
        names = {base_name(image_id): image_id for image_id in self._known.image_ids | present}
        used = frozenset(names[name] for name in self._scan.used_names if name in names)
        # What was in use and was not seen this time may be just what could not be read.
        self._used = used if self._scan.is_complete else used | self._used
        unknown = self._scan.used_names - names.keys()
        self._unknown = unknown if self._scan.is_complete else unknown | self._unknown

    def _users(self) -> dict[str, tuple[str, ...]]:
        found = self._scan.users if self._scan else {}
        return {image_id: found.get(base_name(image_id), ()) for image_id in self._used}

    def _note(self, image_id: str, outcome: Outcome, links: dict[str, KnownLink]) -> None:
        former = self._known.links.get(image_id, KnownLink(LinkState.WAITING))
        state = next_state(former.state, outcome.event)
        if state is not former.state or image_id not in self._known.links:
            reason = f" ({outcome.reason})" if outcome.reason else ""
            LOG.info("link of image %s: %s%s", image_id, state.value, reason)
        if state is not LinkState.GONE:
            links[image_id] = KnownLink(state, outcome.reason)
