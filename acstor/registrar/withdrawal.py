"""Taking withdrawn images from the hosts, once no instance uses them any more."""

import dataclasses
import logging
import time
from collections.abc import Callable

from acstor import exception
from acstor.repository import catalogue, usage
from acstor.repository.catalogue import Catalogue, Entry, Listed
from acstor.repository.repository import Repository

LOG = logging.getLogger(__name__)


class Withdrawals:
    """Decides when a withdrawn image goes.

    :param grace_seconds: from the last use of an image that Glance deleted or deactivated, to
        its removal. What is withdrawn for another reason (it is a kernel, its content changed)
        would do harm on the hosts, and goes as soon as it is unused.
    :param on_removal: called after each.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        repository: Repository,
        grace_seconds: float,
        on_removal: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep what to work with."""
        self._repository = repository
        self._grace_seconds = grace_seconds
        self._on_removal = on_removal
        self._clock = clock
        self._used: frozenset[str] | None = None

    def forget_usage(self) -> None:
        """Have the usage of the hosts be read again when it is needed next."""
        self._used = None

    def grace_of(self, entry: Entry) -> float:
        """Return the seconds for which a withdrawn image stays after its last use."""
        return 0.0 if entry.is_urgent else self._grace_seconds

    def look(self, listed: Listed, entries: Catalogue) -> bool:
        """Remove a withdrawn image from the hosts if it is time; return whether it was removed.

        :raises CorruptError: and the like when a host's usage is not readable: nobody knows then
            what that host uses, and nothing is removed.
        :raises UnavailableError: when the origin cannot be reached.
        """
        entry, now = listed.entry, self._clock()
        if listed.image_id in self._usage():
            if entry.unused_since is not None:
                self._note(listed, entries, None)
            return False
        since = catalogue.parse_time(entry.unused_since) if entry.unused_since else now
        if since > now:  # this clock is behind the one of the registrar that noted it
            since = now
        if now - since < self.grace_of(entry):
            if entry.unused_since is None:
                self._note(listed, entries, catalogue.format_time(now))
            return False
        try:
            self._repository.remove_image(listed.image_id)
        except exception.ConflictError:
            return False
        except exception.NotFoundError:
            return True
        LOG.info("image %s is off the hosts, no instance uses it", listed.image_id)
        self._on_removal()
        return True

    def _usage(self) -> frozenset[str]:
        if self._used is None:
            found = usage.read_all(self._repository.origin).values()
            self._used = frozenset[str]().union(*(each.images for each in found))
        return self._used

    def _note(self, listed: Listed, entries: Catalogue, unused_since: str | None) -> None:
        entry = dataclasses.replace(listed.entry, unused_since=unused_since)
        try:
            entries.replace(listed.image_id, listed, entry)
        except exception.ConflictError:
            LOG.debug("the entry of image %s was changed by somebody else", listed.image_id)
