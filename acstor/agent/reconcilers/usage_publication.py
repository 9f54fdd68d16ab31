"""Publishing what this host uses, before it relies on it: the ref ``usage/<host>``.

Garbage collection takes the manifests that the record names for roots (RFD 13). So a manifest is in
the record before it is attached (:meth:`UsagePublisher.announce`), and leaves it only when the
data plane has not had it for a while. A swap whose outcome is not known may take effect at any
later time; as every write has another sequence number, and the first of a process another agent
id, none of an earlier state can come after a later one.
"""

import dataclasses
import logging
import pathlib
import secrets
import time
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.origin.base import Ref, RefStore
from acstor.origin.ref_replacement import read_replaceable
from acstor.repository.gc import condemnation
from acstor.repository.images import image_registry
from acstor.repository.images.usage import Usage, usage_ref

LOG = logging.getLogger(__name__)

LINGER_SECONDS = 600.0
"""Time that a manifest stays in the record after the data plane was first seen without it, seconds:
a process that takes images over may not list one of them at its start."""
RECHECK_INTERVAL = 60.0
"""Seconds after which the record is compared again, in case somebody has removed it."""
REFRESH_INTERVAL = 600.0
"""Seconds after which an unchanged record is written again: operators see when a host spoke."""
_ATTEMPTS_MAX = 8
_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True)
class LocalUse:
    """Images and base files in use, found in one pass over a host's disk and open files."""

    images: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """By image, the instances that need it."""
    bases: frozenset[str] = frozenset()
    """Base files in use whose image is not known."""
    is_complete: bool = True
    """True if an image that is not named is not in use."""
    round: int = 0
    """The newest withdrawal round that was known before the pass began."""
    epoch: str = ""
    """That ``round`` is of."""


class UsagePublisher:
    """Keeps the record of one host.

    :param attached: asks the data plane for the image by digest of each manifest that it has, or
        restores; may raise :class:`~acstor.exception.UnavailableError`.
    :param speaks_within: seconds that a change on this host takes at most to be published.
    :param clock: monotonic seconds.
    :param wall_clock: seconds since the epoch, for people.
    """

    def __init__(
        self,
        refs: RefStore,
        host: str,
        *,
        attached: Callable[[], Mapping[str, str]] = dict,
        speaks_within: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._refs = refs
        self._host = host
        self._name = usage_ref(host)
        self._attached = attached
        self._speaks_within = speaks_within
        self._clock = clock
        self._wall_clock = wall_clock
        self._boot = _boot_id()
        self._agent = secrets.token_hex(16)
        self._record: Usage | None = None  # the last that is known to be there
        self._token: str | None = None  # of that; None: the next write reads first
        self._expected: str | None = None  # token of what was read then
        self._written_at = self._checked_at = clock()
        self._missing_since: dict[str, float] = {}
        self.peer_address = ""
        """``ip:port`` of the data plane's peer server; empty: not known, what was stays."""

    @property
    def record(self) -> Usage:
        """Record that this process published last; nothing before its first write."""
        return self._record or Usage()

    def ensure(self) -> bool:
        """Have a record be there; return whether it had to be written. Errors as `announce`.

        What is read of withdrawals after this, and only that, the registrar waits for.
        """
        sequence = self.record.sequence
        self._write(lambda before: before, False)
        return self.record.sequence != sequence

    def take_answer_back(self) -> None:
        """Have no withdrawal round be answered any more. Errors as `announce`."""
        self._write(lambda before: dataclasses.replace(before, round=0, epoch=""), False)

    def announce(self, attached: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Have the record name what the data plane has, and what it is about to be given.

        When this returns, a collection that does not see a reference of ``wanted`` elsewhere any
        more sees this one.

        :param attached: image by digest of the manifests that the data plane has now.
        :param wanted: likewise, of those that it is about to be given.
        :raises UnavailableError: when the origin cannot be reached; nothing may then be attached.
        :raises ConflictError: when somebody else writes all the time (two hosts with one name).
        """
        self._write(lambda before: self._with_manifests(before, {**attached, **wanted}), False)

    def speak(self, use: LocalUse) -> None:
        """Publish what is in use; errors as in :meth:`announce`."""

        def changed(before: Usage) -> Usage:
            if use.is_complete:
                after = dataclasses.replace(before, images=_sorted(use.images), bases=use.bases)
                return _with_answer(after, use)
            # What was in use and was not seen this time may be just what could not be read.
            images = {**before.images, **use.images}
            return dataclasses.replace(
                before, images=_sorted(images), bases=before.bases | use.bases
            )

        if self._write(changed, self._clock() - self._written_at >= REFRESH_INTERVAL):
            LOG.info("%d images are in use on this host", len(self.record.images))

    def _with_manifests(self, before: Usage, present: Mapping[str, str]) -> Usage:
        now = self._clock()
        known = {**before.manifests, **present}
        gone = set()
        for digest, image_id in known.items():
            if digest in present or before.uses(image_id):
                self._missing_since.pop(digest, None)
            elif now - self._missing_since.setdefault(digest, now) >= LINGER_SECONDS:
                gone.add(digest)
        for digest in gone:
            del self._missing_since[digest]
        kept = {digest: image for digest, image in known.items() if digest not in gone}
        return dataclasses.replace(before, manifests=kept)

    def _write(self, changed: Callable[[Usage], Usage], is_refresh_due: bool) -> bool:
        """Write the record unless it is so already; return whether what it says has changed."""
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            before = self._present()
            after = changed(before)
            if self.peer_address:
                after = dataclasses.replace(after, peer_address=self.peer_address)
            if self._token is not None and after == before and not is_refresh_due:
                return False
            try:
                self._swap(after)
            except exception.ConflictError:
                if attempt == _ATTEMPTS_MAX:
                    raise
            else:
                return after != before
        raise exception.InternalError("no attempt was made")

    def _present(self) -> Usage:
        """Return the record as it is, read where that is not known."""
        now = self._clock()
        if self._token is not None and now - self._checked_at >= RECHECK_INTERVAL:
            ref = read_replaceable(self._refs, self._name)
            if ref is None or ref.token != self._token:
                self._token = None
            self._checked_at = now
        if self._token is not None and self._record is not None:
            return self._record
        condemnation.stop_older_collectors(self._refs)
        ref = read_replaceable(self._refs, self._name)
        self._expected = ref.token if ref else None
        before = self._parsed(ref)
        mine = self.record
        # Whoever removed or replaced it, what this process relies on is in use.
        return dataclasses.replace(
            before,
            images=_sorted({**before.images, **mine.images}),
            bases=before.bases | mine.bases,
            manifests={**before.manifests, **mine.manifests},
        )

    def _parsed(self, ref: Ref | None) -> Usage:
        """Return what a record says; of one that is damaged or gone, what the data plane says.

        While it is damaged nothing is collected: whoever replaces it first knows what to put there.
        """
        if ref is not None:
            try:
                return Usage.parse(ref.content, self._host)
            except exception.CorruptError as error:
                LOG.error("%s; it is replaced by what the data plane has attached", error)
        return Usage(manifests=self._attached())

    def _swap(self, after: Usage) -> None:
        expected = self._token if self._token is not None else self._expected
        written = dataclasses.replace(
            after,
            sequence=after.sequence + 1,
            time=image_registry.format_time(self._wall_clock()),
            boot=self._boot,
            agent=self._agent,
            speaks_within=self._speaks_within,
        )
        self._token = None  # until it is known how this ends
        self._token = self._refs.swap_ref(self._name, expected, written.encode())
        self._record = written
        self._written_at = self._checked_at = self._clock()


def _with_answer(before: Usage, use: LocalUse) -> Usage:
    """Return the record with the newer of two rounds; those of two epochs do not compare."""
    if use.round == 0 or (use.epoch == before.epoch and use.round <= before.round):
        return before
    return dataclasses.replace(before, round=use.round, epoch=use.epoch)


def _sorted(images: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {image_id: tuple(sorted(images[image_id])) for image_id in sorted(images)}


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
