"""The term of the host that publishes the ring: fences publishers that were stopped or cut off.

The ref ``ring-term`` says whose term it is; the page is
``doc/source/reference/formats/ring-term.rst``. Whoever was elected claims a term: raises the
number by compare-and-swap, then writes the ring again as it is, which gives it another token. A
publisher reads the ring first and looks at the term after that, so whichever of the two a later
claim overtakes, the publisher meets either a term that is not its own or a token that is too old.

The term is not in the ring, for a data plane of an older release refuses a ring of any other
format; see ``doc/source/rfd/0009-decision-and-ring.rst``.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from acstor import exception, untrusted_json
from acstor.cluster.ring.published_ring import RingReference
from acstor.origin.base import Ref, RefStore
from acstor.origin.ref_replacement import read_replaceable

LOG = logging.getLogger(__name__)

TERM_REF = "ring-term"
TERM_VERSION = 1
"""Raised when a field changes its meaning; unknown fields are ignored."""
TEXT_LENGTH_MAX = 512
_TERM_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class PublisherTerm:
    """Term of the host that publishes the ring."""

    term: int
    """Grows with each publisher; at least 1."""
    publisher: str
    """Name of the host; for people."""
    claimed_at_ms: int
    """POSIX time by that host's clock, milliseconds; for people."""

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {
            "version": TERM_VERSION,
            "term": self.term,
            "publisher": self.publisher,
            "claimed_at_ms": self.claimed_at_ms,
        }
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "PublisherTerm":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            fields: Any = untrusted_json.load(content, "the term")
            version = fields["version"]
            found = cls(fields["term"], fields["publisher"], fields["claimed_at_ms"])
        except (ValueError, TypeError, KeyError) as error:
            raise _malformed() from error
        if type(version) is not int or version != TERM_VERSION:
            raise exception.UnsupportedError(
                f"the ring's term has version {version!r:.20}",
                hint="upgrade this host; one of a newer release publishes the ring",
            )
        is_right = (
            _is_whole(found.term, 1)
            and _is_whole(found.claimed_at_ms, 0)
            and isinstance(found.publisher, str)
            and len(found.publisher) <= TEXT_LENGTH_MAX
        )
        if not is_right:
            raise _malformed()
        return found


class TermHolder:
    """The term of one host, as long as it is the elected publisher.

    :param publisher: name of the host.
    :param posix_clock: seconds since the epoch.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        refs: RefStore,
        publisher: str,
        posix_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refs = refs
        self._publisher = publisher
        self._posix_clock = posix_clock
        self._clock = clock
        self._last_token: str | None = None  # of the last term that this host claimed
        self.since = 0.0
        """Begin of the first of this host's terms that nobody else's has followed."""
        self._is_first = False  # somebody else's term was before the one that begins
        self._claimed: Ref | None = None
        self._term: int | None = None
        self._newest = 0  # term that was read or claimed here

    @property
    def term(self) -> int | None:
        """The term that this host claimed; None: it has none."""
        return self._term

    def give_up(self) -> None:
        """Be no publisher any more; whoever is elected next claims a term of its own."""
        self._claimed = self._term = None

    def claim(self, reference: RingReference) -> None:
        """Begin a term where this host has none, and make every token of the ring before it old.

        A term that was claimed stays this host's where the ring could not be written: it is
        continued, not followed by another one at each call.

        :raises ConflictError: when somebody else claims or publishes at the same moment.
        :raises CorruptError: when the ring is not readable; no term is begun for it.
        :raises UnsupportedError: when a newer release wrote the term; it is left alone.
        :raises UnavailableError: when the origin cannot be reached; the next call begins anew.
        """
        if self._term is not None:
            return
        reference.read()
        claimed = self._pending()
        if claimed is None:
            claimed = self._claim_next()
        reference.renew()
        if self._is_first:
            self.since, self._is_first = self._clock(), False
        self._term = PublisherTerm.parse(claimed.content).term
        LOG.info("this host publishes the ring, term %d", self._term)

    def _pending(self) -> Ref | None:
        """Return the term that this host claimed and that has not begun; None: there is none."""
        if self._claimed is None:
            return None
        ref = read_replaceable(self._refs, TERM_REF)
        return ref if ref is not None and ref.token == self._claimed.token else None

    def _claim_next(self) -> Ref:
        # Of one that is damaged only the token counts: who had that term finds it to be over.
        ref = read_replaceable(self._refs, TERM_REF)
        term = PublisherTerm(
            self._former(ref) + 1, self._publisher, max(0, int(self._posix_clock() * 1000))
        )
        content = term.encode()
        token = self._refs.swap_ref(TERM_REF, ref.token if ref else None, content)
        if token is None:
            raise exception.InternalError("a ref that was written has no token")
        if ref is None or ref.token != self._last_token:
            self._is_first = True
        self._last_token = token
        self._newest = term.term
        self._claimed = Ref(token, content)
        return self._claimed

    def check(self) -> None:
        """Refuse a host whose term is over; called after the ring was read that is to be replaced.

        :raises FencedError: when somebody else has claimed a term since, or the ref is damaged;
            this one is over.
        :raises UnavailableError: when the origin cannot be reached.
        """
        if self._claimed is None:
            raise exception.FencedError(f"host {self._publisher} has no term to publish rings in")
        try:
            ref = self._refs.refresh_ref(TERM_REF, self._claimed)
        except exception.CorruptError as error:
            LOG.error("whose term it is cannot be told, it is nobody's: %s", error)
            ref = None
        if ref is not None and ref.token == self._claimed.token:
            return
        former = self._term
        self.give_up()
        raise exception.FencedError(
            f"the term {former} of host {self._publisher} as the ring's publisher is over"
        )

    def _former(self, ref: Ref | None) -> int:
        if ref is None:
            return 0
        try:
            self._newest = PublisherTerm.parse(ref.content).term
        except exception.CorruptError:
            # What fences is the token; the number is for people.
            LOG.error("the ring's term is malformed: one after %d follows", self._newest)
        return self._newest % _TERM_MAX


def _malformed() -> exception.CorruptError:
    return exception.CorruptError(
        "the ring's term is malformed",
        hint=f"remove the ref {TERM_REF!r}; the publisher claims another term",
    )


def _is_whole(value: object, lowest: int) -> bool:
    return untrusted_json.is_whole(value, lowest, _TERM_MAX)
