"""Published ring in the origin, and a reader that polls it without reading it all the time.

The ref ``ring`` holds the ring, some hundred KiB. Every agent looks every few seconds, so beside
it the small ref ``ring-generation`` says which generation it is. The ring is what counts: the
number is written after it and only says when to read it again. A publisher that is killed between
the two is made up for by reading the ring once a minute whatever the number says.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from acstor import exception
from acstor.native import DataPlaneError, Ring
from acstor.origin.base import Ref, RefStore
from acstor.origin.ref_replacement import read_replaceable

LOG = logging.getLogger(__name__)

RING_REF = "ring"
"""Ref of the ring; its content is the ring's binary form."""
GENERATION_REF = "ring-generation"
"""Ref of the number; JSON: version, generation."""
GENERATION_VERSION = 1
RECHECK_INTERVAL = 60.0
"""Seconds after which the ring is read again although its number has not changed."""


@dataclass(frozen=True)
class PublishedRing:
    """The ring at one moment."""

    ring: Ring
    content: bytes
    token: str


def read_ring(refs: RefStore, known: PublishedRing | None = None) -> PublishedRing | None:
    """Return the published ring, or None before the first.

    :param known: what was read before; it is returned, and not read again, where nothing changed.
    :raises CorruptError: when the ref's content is no ring.
    :raises UnavailableError: when the origin cannot be reached.
    """
    if known is None:
        ref = refs.get_ref(RING_REF)
    else:
        ref = refs.refresh_ref(RING_REF, Ref(known.token, known.content))
    if ref is None:
        return None
    if known is not None and ref.token == known.token:
        return known
    try:
        return PublishedRing(Ring.decode(ref.content), ref.content, ref.token)
    except DataPlaneError as error:
        raise exception.CorruptError(
            f"the published ring is not readable: {error}",
            hint="run the newest release on all hosts; a ring of another format is not replaced",
        ) from error


def encode_generation(generation: int) -> bytes:
    """Return the content of the ref of the number."""
    fields = {"version": GENERATION_VERSION, "generation": generation}
    return json.dumps(fields).encode() + b"\n"


class RingReference:
    """Reads the published ring when it may have changed, and replaces it.

    :param clock: monotonic seconds.
    """

    def __init__(self, refs: RefStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._refs = refs
        self._clock = clock
        self._known: PublishedRing | None = None
        self._number_token: str | None = None
        self._read_at = 0.0
        self._is_number_damaged = False

    def current(self) -> PublishedRing | None:
        """Return the published ring, as it was at most ``RECHECK_INTERVAL`` ago.

        :raises CorruptError: when it is not readable.
        :raises UnavailableError: when the origin cannot be reached.
        """
        number = self._number()
        if (
            self._known is not None
            and number is not None
            and number.token == self._number_token
            and self._clock() - self._read_at < RECHECK_INTERVAL
        ):
            return self._known
        return self._read(number.token if number else None, self._known)

    def read(self) -> PublishedRing | None:
        """Return the published ring as it is now; errors as in :meth:`current`."""
        return self._read(self._number_token)

    def replace(self, expected: PublishedRing | None, ring: Ring) -> None:
        """Publish ``ring`` if ``expected`` still is the published one.

        :raises ConflictError: when it is not.
        :raises UnavailableError: when the origin cannot be reached.
        """
        token = expected.token if expected else None
        self._known = None
        self._refs.swap_ref(RING_REF, token, ring.encode())
        self._renumber(ring.generation)

    def renew(self) -> None:
        """Write the published ring again as it is: every token of it that was read before is old.

        :raises ConflictError: when somebody publishes at the same moment.
        :raises CorruptError: when the published ring is not readable; it is left alone.
        :raises UnavailableError: when the origin cannot be reached.
        """
        published = self.read()
        if published is not None:
            self._known = None
            self._refs.swap_ref(RING_REF, published.token, published.content)

    def _number(self) -> Ref | None:
        """Return the ref of the number; None: there is none, or it is damaged."""
        try:
            number = self._refs.get_ref(GENERATION_REF)
        except (exception.CorruptError, exception.UnsupportedError) as error:
            if not self._is_number_damaged:
                LOG.warning("%s; the ring is read each time instead; %s", error, error.hint)
            self._is_number_damaged = True
            return None
        self._is_number_damaged = False
        return number

    def _renumber(self, generation: int) -> None:
        """Write the number of a ring that is published, whatever becomes of this."""
        try:
            number = read_replaceable(self._refs, GENERATION_REF)
            token = number.token if number else None
            self._refs.swap_ref(GENERATION_REF, token, encode_generation(generation))
        except exception.ConflictError:
            pass  # somebody newer was faster
        except exception.AcstorError as error:
            LOG.warning(
                "ring generation %d is published, its number is not: hosts that hear nothing of it "
                "follow within %.0f s: %s",
                generation,
                RECHECK_INTERVAL,
                error,
            )

    def _read(
        self, number_token: str | None, former: PublishedRing | None = None
    ) -> PublishedRing | None:
        self._known = None
        known = read_ring(self._refs, former)
        self._known, self._number_token, self._read_at = known, number_token, self._clock()
        return known
