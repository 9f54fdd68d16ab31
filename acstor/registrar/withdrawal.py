"""Taking withdrawn images from the hosts, once every host has said that it needs them no more."""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.origin.ref_replacement import read_replaceable
from acstor.registrar.withdrawal_step import Answers, Step, answers, grace_min, next_step
from acstor.repository.images import image_registry, usage, withdrawal_rounds
from acstor.repository.images.image_registry import Entry, ImageRegistry, Listed
from acstor.repository.images.usage import Usage
from acstor.repository.images.withdrawal_rounds import ROUNDS_REF, Phase, Rounds
from acstor.repository.repository import Image, Repository

LOG = logging.getLogger(__name__)

POLL_INTERVAL = 10.0
"""Seconds between two looks at an image for which hosts are being waited for, at most."""
POLL_INTERVAL_MIN = 1.0
_POLLS_PER_GRACE = 5.0
"""Looks within the grace, so that a short one is not lengthened by much."""
POLL_SPACING = 0.1
"""Seconds between two looks at images when very many wait: each asks Glance."""
USAGE_AGE_MAX = 5.0
"""Seconds for which what the hosts have said is not read again for single images: with many that
wait at once it would be read all the time. An older answer only delays."""
PATIENCE_MIN = 300.0
"""Seconds after which a host counts as silent, at least: four times its own interval where that is
more."""


@dataclasses.dataclass
class _Waiting:
    """Waiting times of one image; times are monotonic seconds."""

    unused_since: float | None = None
    """Since when each host has spoken and none uses it."""
    silent_since: dict[str, float] = dataclasses.field(default_factory=dict)
    """By host that has not answered the image's last round."""
    due_at: float | None = None
    """Time of the next check; None: at the next comparison of all images."""


class Withdrawals:
    """Moves withdrawn images on, round by round (RFD 14).

    What it measures begins anew with each object: a registrar that takes over waits for the whole
    grace, whatever any clock says.

    :param grace_seconds: from the last use of an image that Glance deleted or deactivated, or that
        nobody wants registered any more, to its removal. What is urgent (it is a kernel, its
        content changed) would do harm on the hosts, and gets only what a spawn under way needs.
    :param speaks_within: seconds within which hosts that do not say so themselves tell of a change.
    :param on_removal: called after each.
    :param clock: seconds since the epoch, for what people read.
    :param monotonic: seconds, for what is measured.
    """

    def __init__(
        self,
        repository: Repository,
        grace_seconds: float,
        speaks_within: float = 0.0,
        on_removal: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep what to work with."""
        self._repository = repository
        self._origin = repository.origin
        self._grace_seconds = grace_seconds
        self._speaks_within = speaks_within
        self._poll_interval = min(
            POLL_INTERVAL, max(POLL_INTERVAL_MIN, grace_seconds / _POLLS_PER_GRACE)
        )
        self._on_removal = on_removal
        self._clock = clock
        self._monotonic = monotonic
        self._rounds: Rounds | None = None
        self._written_token: str | None = None  # of the rounds that this object wrote last
        self._usages: Mapping[str, Usage] | None = None
        self._last_usages: Mapping[str, Usage] = {}
        self._read_at = 0.0
        self._reading_seconds = 0.0  # of the last reading of all usage records
        self._waiting: dict[str, _Waiting] = {}

    def forget_usage(self, older_than: float = 0.0) -> None:
        """Have rounds and usage of the hosts be read again when they are needed next.

        :param older_than: seconds; what was read later than that ago is kept. So is what took
            longer to read, for as long as that took: else many hosts would be read all the time.
        """
        kept_for = max(older_than, self._reading_seconds) if older_than else 0.0
        if self._monotonic() - self._read_at >= kept_for:
            self._rounds = self._usages = None

    def due_in(self, image_id: str) -> float | None:
        """Return the seconds after which to look at an image again; None: at leisure."""
        waiting = self._waiting.get(image_id)
        if waiting is None or waiting.due_at is None:
            return None
        return max(0.0, waiting.due_at - self._monotonic())

    def silent_hosts(self) -> dict[str, str]:
        """Return by host that holds withdrawals up by its silence, what to do about it."""
        now = self._monotonic()
        images: dict[str, list[str]] = {}
        for image_id, waiting in sorted(self._waiting.items()):
            for host, since in waiting.silent_since.items():
                if now - since >= self._patience(host):
                    images.setdefault(host, []).append(image_id)
        return {host: self._silence(host, named) for host, named in sorted(images.items())}

    def complete(self, image_id: str, published: Image | None, *, is_withdrawn: bool) -> bool:
        """Finish what was decided of an image, and drop rounds that nobody needs any more.

        To be called before anything else is decided of an image.

        :param published: as hosts have it; None: they do not.
        :param is_withdrawn: whether its entry says so.
        :returns: whether hosts have it.
        :raises ConflictError: when somebody else changed something: look again later.
        """
        is_decided = self._read_rounds().phase_of(image_id) is Phase.REMOVING
        if published and is_decided:
            # Anew, now that the image was read: no registrar registers it before they are over.
            self.forget_usage()
            decided = self._read_rounds().images.get(image_id)
            if decided is None or decided.phase is not Phase.REMOVING:
                raise exception.ConflictError(f"image {image_id} is being withdrawn by another")
            if decided.image_token == published.token:
                self._remove(published)
                published = None
            else:  # that one is gone already
                LOG.info("image %s was registered again since its removal: it stays", image_id)
        if is_decided or not (published and is_withdrawn):
            self.cancel(image_id)
        return published is not None

    def cancel(self, image_id: str) -> None:
        """Withdraw an image no more, unless its removal is decided and not done.

        :raises ConflictError: when somebody else changed something: look again later.
        """
        self._waiting.pop(image_id, None)
        if self._read_rounds().phase_of(image_id) is not None:
            self._write(image_id, None)

    def advance(self, listed: Listed, published: Image, entries: ImageRegistry) -> bool:
        """Move an image on; return whether it was removed from the hosts.

        :param published: the image as hosts have it, read after :meth:`complete` was called last.
        :raises CorruptError: and the like when a host's usage is not readable: nobody knows then
            what that host uses, and nothing is removed.
        :raises UnavailableError: when the origin cannot be reached.
        """
        image_id = listed.image_id
        try:
            rounds = self._own_rounds()
            said = answers(rounds, self._read_usages(), image_id)
            step = next_step(rounds.phase_of(image_id), said)
            return self._take(step, said, listed, published, entries)
        except exception.ConflictError:
            self.forget_usage()
            return False

    def _take(
        self, step: Step, said: Answers, listed: Listed, published: Image, entries: ImageRegistry
    ) -> bool:
        image_id, now = listed.image_id, self._monotonic()
        waiting = self._waiting.setdefault(image_id, _Waiting())
        waiting.due_at = now + max(self._poll_interval, POLL_SPACING * len(self._waiting))
        waiting.silent_since = {
            host: waiting.silent_since.get(host, now)
            for host in (said.silent if step is Step.WAIT else ())
        }
        match step:
            case Step.ASK:
                self._write(image_id, Phase.ASKED)
            case Step.WAIT:
                if self.silent_hosts():  # they may be silent for weeks
                    waiting.due_at = None
            case Step.KEEP:
                self._keep(waiting, listed, entries)
            case Step.CLOSE:
                self._close_after_grace(waiting, listed, entries)
            case Step.REMOVE:
                self._write(image_id, Phase.REMOVING, published.token)
                self._remove(published)
                self.cancel(image_id)
                return True
            case Step.FINISH:  # decided by another registrar since this one looked
                self.forget_usage()
        return False

    def _keep(self, waiting: _Waiting, listed: Listed, entries: ImageRegistry) -> None:
        waiting.unused_since = waiting.due_at = None
        if listed.entry.unused_since is not None:
            self._note(listed, entries, None)
        if self._read_rounds().phase_of(listed.image_id) is Phase.CLOSING:
            LOG.info("image %s is used again: it stays on the hosts", listed.image_id)
            self._write(listed.image_id, Phase.ASKED)

    def _close_after_grace(self, waiting: _Waiting, listed: Listed, entries: ImageRegistry) -> None:
        now = self._monotonic()
        if waiting.unused_since is None:
            waiting.unused_since = now
            self._note(listed, entries, image_registry.format_time(self._clock()))
        closes_at = waiting.unused_since + self._grace_of(listed.entry)
        if now < closes_at:
            waiting.due_at = closes_at
        else:
            self._write(listed.image_id, Phase.CLOSING)

    def _remove(self, published: Image) -> None:
        # With the token: what another registrar has registered since under this id stays.
        try:
            self._repository.remove_image(published.id, published.token)
        except exception.NotFoundError:
            return
        LOG.info("image %s is off the hosts, no instance uses it", published.id)
        self._on_removal()

    def _grace_of(self, entry: Entry) -> float:
        wanted = 0.0 if entry.is_urgent else self._grace_seconds
        return max(wanted, grace_min(self._read_usages(), self._speaks_within))

    # The rounds are read before the usage records: an answer to a round is then seen with it, and
    # whoever changes a round in between makes our next write fail.

    def _read_rounds(self) -> Rounds:
        if self._rounds is None:
            self._usages = None
            self._read_at = self._monotonic()
            self._rounds = self._readable_rounds()
        return self._rounds

    def _readable_rounds(self) -> Rounds:
        """Return the rounds; instead of malformed ones a new epoch without any withdrawal.

        What was decided and not done is lost with them: hosts are asked anew about those images.

        :raises ConflictError: when somebody else was quicker.
        """
        ref = read_replaceable(self._origin, ROUNDS_REF)
        if ref is None:
            return Rounds()
        try:
            return Rounds.parse(ref.content, ref.token)
        except exception.CorruptError as error:
            LOG.error("%s: all of them begin anew", error)
        written = self._swap(Rounds(token=ref.token).in_new_epoch(self._newest_answer()))
        self._usages = None
        return written

    def _read_usages(self) -> Mapping[str, Usage]:
        if self._usages is None:
            started = self._monotonic()
            self._usages = self._last_usages = usage.read_all(self._origin)
            self._read_at = self._monotonic()
            self._reading_seconds = self._read_at - started
        return self._usages

    def _own_rounds(self) -> Rounds:
        """Return the rounds; where another wrote them, or a backup was restored, in a new epoch.

        What hosts have answered to those is then worth nothing: instances may have come since.
        """
        rounds = self._read_rounds()
        if rounds.images and not self._is_own(rounds):
            rounds = self._swap(rounds.in_new_epoch(self._newest_answer()))
            self._usages = None
        return rounds

    def _is_own(self, rounds: Rounds) -> bool:
        return rounds.token is not None and rounds.token == self._written_token

    def _write(self, image_id: str, phase: Phase | None, image_token: str | None = None) -> None:
        rounds = self._read_rounds()
        newest = self._newest_answer()
        if not self._is_own(rounds):
            rounds = rounds.in_new_epoch(newest)
        self._swap(rounds.changed(image_id, phase, newest, image_token=image_token))

    def _swap(self, after: Rounds) -> Rounds:
        self._rounds = self._written_token = None  # until it is known how this ends
        written = withdrawal_rounds.write_rounds(self._origin, after)
        self._rounds, self._written_token = written, written.token
        return written

    def _newest_answer(self) -> int:
        answered = (one.round for one in self._read_usages().values())
        return max((number for number in answered if number <= usage.ROUND_MAX), default=0)

    def _note(self, listed: Listed, entries: ImageRegistry, unused_since: str | None) -> None:
        entry = dataclasses.replace(listed.entry, unused_since=unused_since)
        try:
            entries.replace(listed.image_id, listed, entry)
        except exception.ConflictError:
            LOG.debug("the entry of image %s was changed by somebody else", listed.image_id)

    def _patience(self, host: str) -> float:
        spoken = self._last_usages.get(host, Usage())
        return max(PATIENCE_MIN, 4.0 * spoken.speaks_within)

    def _silence(self, host: str, images: list[str]) -> str:
        spoken = self._last_usages.get(host, Usage()).time
        since = f"since {spoken}" if spoken else "in this release's format"
        more = f" and {len(images) - 1} more" if len(images) > 1 else ""
        named = f"{images[0]}{more}"
        return (
            f"image {named} cannot go before the host speaks, which it has not {since}; "
            "start or upgrade acstor-agent there, or, when the host is gone for good, run "
            f"'acstor host forget {host}'"
        )
