"""Keeping the image registry equal to what Glance says, one image after the other.

Called from one thread. Each look compares what is with what should be, so that a registrar that
is killed anywhere is made up for by the next look of any other.
"""

import dataclasses
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.conf.types import MIB
from acstor.registrar import decision as deciding
from acstor.registrar import planning
from acstor.registrar.boot_parts import BootParts
from acstor.registrar.fair_order import FairOrder
from acstor.registrar.image_service.base import ImageService, ServiceImage
from acstor.registrar.index_statements import IndexStatements
from acstor.registrar.index_upkeep import IndexUpkeep
from acstor.registrar.registration.job import Outcome, OutcomeKind
from acstor.registrar.registration.jobs import Jobs
from acstor.registrar.withdrawal import USAGE_AGE_MAX, Withdrawals
from acstor.repository import layout
from acstor.repository.images import image_registry
from acstor.repository.images.image_registry import (
    Entry,
    EntryEvent,
    EntryState,
    ImageRegistry,
    Listed,
)
from acstor.repository.repository import Repository

LOG = logging.getLogger(__name__)

CORRUPT_ATTEMPTS_MAX = 3
"""Downloads of an image with a wrong checksum before it is given up until Glance changes it."""
_PROBLEMS = (exception.CorruptError, exception.UnsupportedError, exception.InvalidError)
"""Errors of one image, which say nothing of the others."""
_MASS_COUNT = 4
_MASS_SHARE = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class SyncSettings:
    """Rules of the decision on an image, and delays between attempts."""

    registrar: str
    """Name of this process in the entries."""
    rules: deciding.Rules
    retry_delay: float
    retry_delay_max: float


class RegistrySync:
    """Keeps the image registry of one repository.

    :param clock: seconds since the epoch.
    :param statements: signs what the index of images carries; None: there is no key.
    """

    def __init__(
        self,
        service: ImageService,
        repository: Repository,
        jobs: Jobs,
        withdrawals: Withdrawals,
        settings: SyncSettings,
        clock: Callable[[], float] = time.time,
        statements: IndexStatements | None = None,
    ) -> None:
        """Keep what to work with."""
        self._service = service
        self._repository = repository
        self._registry = ImageRegistry(repository.origin, repository.image_index)
        self._index_upkeep = IndexUpkeep(repository.image_index, statements=statements)
        self._jobs = jobs
        self._withdrawals = withdrawals
        self._settings = settings
        self._clock = clock
        self._parts = BootParts()
        self._order = FairOrder()
        self._parts_due: set[str] = set()  # something else is said of them since their last look
        self.known: dict[str, Entry] = {}
        """Entries as they were seen last."""
        self.due: dict[str, ServiceImage] = {}
        """Images to register, by id."""

    def counts(self) -> Counter[EntryState]:
        """Return the number of images in each state."""
        return Counter(entry.state for entry in self.known.values())

    def silent_hosts(self) -> dict[str, str]:
        """Return by host that holds up withdrawals by its silence, what to do about it."""
        return self._withdrawals.silent_hosts()

    def next_due(self) -> tuple[float, str] | None:
        """Return when (seconds since the epoch) which image is to be looked at next."""
        times = []
        for image_id, entry in self.known.items():
            if image_id in self.due or self._jobs.key_of(image_id) is not None:
                continue
            if entry.state is EntryState.FAILED and entry.retry_at and not entry.judged:
                times.append((image_registry.parse_time(entry.retry_at), image_id))
            due_in = self._withdrawals.due_in(image_id)
            if entry.state is EntryState.WITHDRAWN and due_in is not None:
                times.append((self._clock() + due_in, image_id))
        return min(times, default=None)

    def next_image(self) -> ServiceImage | None:
        """Return the image to register next, None when there is none."""
        return self._order.next_of(self.due.values())

    def reconcile(self, is_wanted: Callable[[], bool]) -> dict[str, str]:
        """Compare all images; return what is wrong with single ones, by id.

        :param is_wanted: whether this process still leads.
        :raises AcstorError: when Glance or the origin cannot be asked; what was done is done.
        """
        left = self._index_upkeep.keep()
        if left:
            LOG.warning("the index of images: ended %d changes that their writers had left", left)
        images = {image.id: image for image in self._service.list_images()}
        self._parts.replace(images.values())
        self._parts_due.clear()
        published = set(self._repository.list_image_ids())
        entered = set(self._registry.ids())
        self._withdrawals.forget_usage()
        for image_id in self.known.keys() - entered:
            del self.known[image_id]
        problems: dict[str, str] = {}
        gone = 0
        for image_id in sorted(images.keys() | entered):
            if not is_wanted():
                break
            image = images.get(image_id)
            try:
                if image is None:
                    # A listing may miss what changes while it is made; a question does not.
                    image = self._service.find_image(image_id)
                    self._parts_due |= self._parts.note(image_id, image)
                    gone += image is None and self._is_registered(image_id)
                self._settle(image_id, image, is_published=image_id in published)
            except _PROBLEMS as error:
                problems[f"image {image_id}"] = f"{error.message}; {error.hint}"
        problems.update(self._compare_parts(is_wanted))
        self._warn_of_mass(gone)
        return problems

    def reconcile_image(self, image_id: str) -> None:
        """Compare one image.

        :raises AcstorError: when Glance or the origin cannot be asked, or the entry is malformed.
        """
        image_id = layout.canonical_image_id(image_id)
        image = self._service.find_image(image_id)
        self._parts_due |= self._parts.note(image_id, image)
        self._withdrawals.forget_usage(USAGE_AGE_MAX)
        self._settle(image_id, image, is_published=True)
        for what, problem in self._compare_parts(lambda: True).items():
            LOG.warning("%s: %s", what, problem)  # the next comparison finds it again

    def start(self, image: ServiceImage) -> bool:
        """Note that an image is being registered; return whether to do it.

        The attempt counts from now on, so that an image that kills its registrar has failed.

        :raises AcstorError: when the origin cannot be asked.
        """
        self.due.pop(image.id, None)
        listed = self._registry.find(image.id)
        if listed is None or listed.entry.state is not EntryState.WAITING:
            return False
        reason, attempts = listed.entry.reason, listed.entry.attempts + 1
        event = EntryEvent.START
        self._order.note_turn(image.owner)
        return self._apply(image.id, listed, event, reason, image, attempts=attempts) is not None

    def finish(self, outcome: Outcome) -> None:
        """Note what became of a registration, then look at its image again.

        :raises AcstorError: when the origin cannot be asked; it is then to be called again.
        """
        image = outcome.image
        listed = self._registry.find(image.id)
        is_ours = (
            listed is not None
            and listed.entry.state is EntryState.REGISTERING
            and listed.entry.registrar == self._settings.registrar
        )
        if listed is not None and is_ours:
            event, fields = self._verdict(outcome, listed.entry)
            self._apply(image.id, listed, event, outcome.reason, image, **fields)
        _log(outcome)

    def _verdict(self, outcome: Outcome, entry: Entry) -> tuple[EntryEvent, dict[str, object]]:
        key = planning.verdict_key(outcome.image)
        match outcome.kind:
            case OutcomeKind.REGISTERED:
                return EntryEvent.FINISH, {"attempts": 0, "retry_at": None, "judged": None}
            case OutcomeKind.LEFT:
                return EntryEvent.LEAVE, {"attempts": 0, "retry_at": None, "judged": key}
            case OutcomeKind.CANCELLED:
                return EntryEvent.ACCEPT, {"attempts": max(0, entry.attempts - 1)}
        attempts = max(1, entry.attempts)
        is_final = outcome.kind is OutcomeKind.MISMATCHED or (
            outcome.kind is OutcomeKind.CORRUPT and attempts >= CORRUPT_ATTEMPTS_MAX
        )
        if is_final:
            return EntryEvent.FAIL, {"attempts": attempts, "retry_at": None, "judged": key}
        return EntryEvent.FAIL, self._retry(attempts)

    def _retry(self, attempts: int) -> dict[str, object]:
        """Return the fields of an entry whose image is tried again after so many attempts."""
        longest = self._settings.retry_delay * 2.0 ** min(attempts - 1, 30)
        delay = min(self._settings.retry_delay_max, longest) * random.uniform(0.75, 1.0)
        retry_at = image_registry.format_time(self._clock() + delay)
        return {"attempts": attempts, "retry_at": retry_at, "judged": None}

    def _settle(self, image_id: str, image: ServiceImage | None, *, is_published: bool) -> None:
        """Do what is to be done about one image.

        :param is_published: False where hosts are known not to have it.
        """
        listed = self._registry.find(image_id)
        published = self._repository.find_image(image_id) if is_published else None
        is_withdrawn = listed is not None and listed.entry.state is EntryState.WITHDRAWN
        try:
            if not self._withdrawals.complete(image_id, published, is_withdrawn=is_withdrawn):
                published = None
        except exception.ConflictError:
            return  # another registrar is at it; the next look sees what came of it
        situation = planning.Situation(
            image,
            deciding.decide(image, self._settings.rules, self._parts.naming(image_id)),
            listed.entry if listed else None,
            (published.record.checksum or "") if published else None,
            is_at_work=self._jobs.key_of(image_id) is not None,
            at_work_on=self._jobs.key_of(image_id),
        )
        plan = planning.plan(situation, self._clock())
        if plan.cancel:
            self._jobs.cancel(image_id, plan.cancel)
        if plan.event is EntryEvent.RESTORE and is_withdrawn and not self._restored(image_id):
            return
        if plan.event is not None:
            fields: dict[str, object] = {"is_urgent": plan.is_urgent}
            if plan.event is EntryEvent.FAIL:
                fields |= self._retry(max(1, listed.entry.attempts if listed else 0))
            changed = self._apply(image_id, listed, plan.event, plan.reason, image, **fields)
            if changed is None and plan.event is not EntryEvent.FORGET:
                return  # somebody else changed it; the next look sees what
            listed = changed
        elif listed is not None and image is not None:
            listed = self._refresh(listed, image)
        self._remember(image_id, listed)
        if plan.start and image is not None:
            self.due[image_id] = image
        else:
            self.due.pop(image_id, None)
        if listed is not None and listed.entry.state is EntryState.WITHDRAWN and published:
            if self._withdrawals.advance(listed, published, self._registry):
                # It is off the hosts; what is left to do is another look's.
                self._settle(image_id, image, is_published=False)
            else:
                self._remember(image_id, self._registry.find(image_id))

    def _restored(self, image_id: str) -> bool:
        """Have hosts use a withdrawn image again; return whether that could be done."""
        try:
            self._withdrawals.cancel(image_id)
        except exception.ConflictError:
            return False
        return True

    def _compare_parts(self, is_wanted: Callable[[], bool]) -> dict[str, str]:
        """Look at images of which others say something else now; return problems, by image."""
        problems: dict[str, str] = {}
        for image_id in sorted(self._parts_due):
            if not is_wanted():
                break
            try:
                self._settle(image_id, self._service.find_image(image_id), is_published=True)
            except _PROBLEMS as error:
                problems[f"image {image_id}"] = f"{error.message}; {error.hint}"
            self._parts_due.discard(image_id)
        return problems

    def _apply(
        self,
        image_id: str,
        listed: Listed | None,
        event: EntryEvent,
        reason: str,
        image: ServiceImage | None,
        **fields: object,
    ) -> Listed | None:
        """Change an entry; return it, None when it is gone or somebody else was first."""
        before = listed.entry if listed else None
        state = image_registry.next_state(before.state if before else None, event)
        after: Entry | None = None
        if state is not None:
            after = self._described(before or Entry(state), event, image)
            changed_at = image_registry.format_time(self._clock())
            changes: Mapping[str, object] = {
                "state": state,
                "reason": reason[: image_registry.REASON_LENGTH_MAX],
                "changed_at": changed_at,
                "registrar": self._settings.registrar,
                "unused_since": None,
                **fields,
            }
            after = dataclasses.replace(after, **changes)  # type: ignore[arg-type]
        try:
            changed = self._registry.replace(image_id, listed, after)
        except exception.ConflictError:
            LOG.debug("the entry of image %s was changed by somebody else", image_id)
            return None
        self._remember(image_id, changed)
        _tell_of_ignored_pin(image_id, before, after)
        if event in (EntryEvent.LEAVE, EntryEvent.WITHDRAW, EntryEvent.RESTORE) and state:
            LOG.info("image %s is %s%s", image_id, state.value, f": {reason}" if reason else "")
        return changed

    def _described(self, entry: Entry, event: EntryEvent, image: ServiceImage | None) -> Entry:
        """Return the entry with what Glance says now."""
        if image is None:
            return entry
        entry = self._named(entry, image)
        if event is EntryEvent.WITHDRAW:
            return entry  # checksum and size stay those of what hosts have
        entry = dataclasses.replace(
            entry,
            checksum=str(image.checksum) if image.checksum else None,
            size_bytes=image.size_bytes or 0,
        )
        if event is EntryEvent.ACCEPT:
            is_retry = entry.state is EntryState.FAILED and entry.judged is None
            attempts = entry.attempts if is_retry else 0
            entry = dataclasses.replace(entry, attempts=attempts, retry_at=None, judged=None)
        return entry

    def _named(self, entry: Entry, image: ServiceImage) -> Entry:
        """Return the entry with what Glance may say anew at any time."""
        return dataclasses.replace(
            entry,
            name=image.name[: image_registry.NAME_LENGTH_MAX],
            glance_updated_at=image.updated_at,
            pin=deciding.is_pinned(image, self._settings.rules),
            pin_ignored=deciding.is_pin_ignored(image, self._settings.rules),
        )

    def _refresh(self, listed: Listed, image: ServiceImage) -> Listed:
        """Bring what Glance says into an entry whose state does not change."""
        entry = self._named(listed.entry, image)
        if entry == listed.entry or listed.entry.state is EntryState.REGISTERING:
            return listed
        try:
            changed = self._registry.replace(listed.image_id, listed, entry) or listed
        except exception.ConflictError:
            return listed
        _tell_of_ignored_pin(listed.image_id, listed.entry, entry)
        return changed

    def _remember(self, image_id: str, listed: Listed | None) -> None:
        if listed is None:
            self.known.pop(image_id, None)
        else:
            self.known[image_id] = listed.entry

    def _is_registered(self, image_id: str) -> bool:
        listed = self._registry.find(image_id)
        return listed is not None and listed.entry.state is EntryState.REGISTERED

    def _warn_of_mass(self, gone: int) -> None:
        registered = gone + self.counts()[EntryState.REGISTERED]
        if gone >= _MASS_COUNT and gone > _MASS_SHARE * registered:
            LOG.warning(
                "Glance lists %d of %d registered images no more; if that is wrong, check that "
                "the user of [keystone] has the role admin before [registrar] withdraw_grace "
                "is over", gone, registered,
            )  # fmt: skip


def _tell_of_ignored_pin(image_id: str, before: Entry | None, after: Entry | None) -> None:
    """Log it when an image begins to ask for what it may not: once, whoever leads later."""
    if after is not None and after.pin_ignored and not (before and before.pin_ignored):
        LOG.warning(
            "the pin of image %s is ignored: it is not public, and its project is not in "
            "[registrar] pin_projects", image_id,
        )  # fmt: skip


def _log(outcome: Outcome) -> None:
    image, report = outcome.image, outcome.report
    what = f"image {image.id} ({image.name})" if image.name else f"image {image.id}"
    if outcome.kind is OutcomeKind.REGISTERED and report is not None:
        source = "downloaded" if outcome.downloaded_bytes else "read from the store"
        LOG.info(
            "%s is %s: file of %s %s, disk of %s, %s stored, %.1f s",
            what, report.status, _mebibytes(image.size_bytes or 0), source,
            _mebibytes(report.size_bytes), _mebibytes(report.bytes_stored), outcome.seconds,
        )  # fmt: skip
    elif outcome.kind in (OutcomeKind.LEFT, OutcomeKind.CANCELLED):
        LOG.info("%s was not registered (%s): %s", what, outcome.kind.value, outcome.reason)
    else:
        LOG.warning("%s could not be registered: %s", what, outcome.reason)


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f} MiB"
