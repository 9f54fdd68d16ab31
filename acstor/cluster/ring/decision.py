"""The decision in force: the weights and the threshold that the policy service decided.

The ref ``decision`` holds it; the page is ``doc/source/reference/formats/decision.rst``. Only the
policy service writes it, always by compare-and-swap on the token that it read last, so that one
that was deposed meets a conflict. Agents read it. It never expires: without a policy service the
last decision stays in force.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin.base import Ref, RefStore

DECISION_REF = "decision"
DECISION_VERSION = 1
"""Raised when a field changes its meaning; unknown fields are ignored."""
MEAN_WEIGHT = 10_000
"""Weight of an ordinary host: a quarter of it makes a quarter of an ordinary host's share."""
WEIGHT_MAX = 1 << 20
THRESHOLD_MAX = 255
HOSTS_MAX = 65_535
"""Most hosts of one decision: the most that a ring has."""
SIMILARITY_MAX = 4096
"""Most pairs of one decision."""
TEXT_LENGTH_MAX = 512
RECHECK_INTERVAL = 60.0
"""Seconds after which the decision is read again although it seems to be the same."""
_NUMBER_MAX = (1 << 63) - 1
_HOST = re.compile(r"[A-Za-z0-9_.@-]{1,255}")
_HINT = "let a policy service of the newest release decide anew, or remove the ref 'decision'"


@dataclass(frozen=True)
class Decision:
    """Decision of the policy service: weights of hosts, similarity, threshold.

    :raises InvalidError: when a value is out of its range.
    """

    term: int
    """Grows with each new leader."""
    sequence: int
    """Grows with each change."""
    leader: str
    """Leader that decided; for people."""
    decided_at_ms: int
    """POSIX time by the clock of the leader, milliseconds; for people."""
    policy: str
    """Name of the weight policy."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """By host, 0 to :data:`WEIGHT_MAX`; :data:`MEAN_WEIGHT` is an ordinary host's."""
    threshold: int | None = None
    """Hops at which candidates are skipped, 1 to 255; None: the data planes' configuration says."""
    similarity: tuple[tuple[str, str, float], ...] = ()
    """(giving host, receiving host, proportion of the giver's chunks that the receiver has)."""
    reason: str = ""

    def __post_init__(self) -> None:
        for name in ("term", "sequence", "decided_at_ms"):
            _check(_is_whole(getattr(self, name), 0, _NUMBER_MAX), name, getattr(self, name))
        for name in ("leader", "policy", "reason"):
            text = getattr(self, name)
            _check(isinstance(text, str) and len(text) <= TEXT_LENGTH_MAX, name, text)
        _check(len(self.weights) <= HOSTS_MAX, "number of weights", len(self.weights))
        for host, weight in self.weights.items():
            is_right = _is_host(host) and _is_whole(weight, 0, WEIGHT_MAX)
            _check(is_right, f"weight of {host!r:.50}", weight)
        if self.weights:
            _check(any(self.weights.values()), "every weight", 0)
        _check(
            self.threshold is None or _is_whole(self.threshold, 1, THRESHOLD_MAX),
            "threshold",
            self.threshold,
        )
        _check(len(self.similarity) <= SIMILARITY_MAX, "number of pairs", len(self.similarity))
        for giver, receiver, share in self.similarity:
            is_right = _is_host(giver) and _is_host(receiver) and _is_share(share)
            _check(is_right, f"similarity of {giver!r:.50} and {receiver!r:.50}", share)

    def weight_of(self, host: str) -> int:
        """Return the weight of a host: the mean of all where the decision does not name it."""
        weight = self.weights.get(host)
        if weight is not None:
            return weight
        return round(self.mean_weight) if self.weights else MEAN_WEIGHT

    @property
    def mean_weight(self) -> float:
        """The mean of the weights of the hosts that it names, drained ones left out."""
        weights = [weight for weight in self.weights.values() if weight]
        return sum(weights) / len(weights) if weights else float(MEAN_WEIGHT)

    def similarity_map(self) -> dict[tuple[str, str], float]:
        """Return the similarities as :func:`acstor.native.build_ring` takes them."""
        return {(giver, receiver): share for giver, receiver, share in self.similarity}

    def encode(self) -> bytes:
        """Return the ref's content, JSON; equal decisions have equal bytes."""
        fields = {
            "version": DECISION_VERSION,
            "term": self.term,
            "sequence": self.sequence,
            "leader": self.leader,
            "decided_at_ms": self.decided_at_ms,
            "policy": self.policy,
            "weights": dict(sorted(self.weights.items())),
            "threshold": self.threshold,
            "similarity": [list(pair) for pair in self.similarity],
            "reason": self.reason,
        }
        return json.dumps(fields, allow_nan=False).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "Decision":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            fields: Any = untrusted_json.load(content, "the decision")
            version = fields["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise exception.CorruptError("the decision is malformed", hint=_HINT) from error
        if type(version) is not int or version != DECISION_VERSION:
            raise exception.UnsupportedError(f"the decision has version {version!r:.20}")
        try:
            return cls(
                term=fields["term"],
                sequence=fields["sequence"],
                leader=fields["leader"],
                decided_at_ms=fields["decided_at_ms"],
                policy=fields["policy"],
                weights=_mapping(fields["weights"]),
                threshold=fields["threshold"],
                similarity=tuple(
                    (giver, receiver, share) for giver, receiver, share in fields["similarity"]
                ),
                reason=fields["reason"],
            )
        except (exception.InvalidError, ValueError, TypeError, KeyError) as error:
            raise exception.CorruptError(
                f"the decision is malformed: {error}", hint=_HINT
            ) from error


def following(number: int) -> int:
    """Return the term or sequence after another; after the last that fits, the first."""
    return number % _NUMBER_MAX + 1


@dataclass(frozen=True)
class PublishedDecision:
    """The decision as the origin holds it."""

    decision: Decision
    token: str


def read_decision(refs: RefStore) -> PublishedDecision | None:
    """Return the decision in force, or None before the first.

    :raises CorruptError: when it is malformed.
    :raises UnsupportedError: when a newer release wrote it.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(DECISION_REF)
    return None if ref is None else PublishedDecision(Decision.parse(ref.content), ref.token)


def replace_decision(
    refs: RefStore, expected: PublishedDecision | None, decision: Decision
) -> PublishedDecision:
    """Put ``decision`` in force if ``expected`` still is.

    :raises ConflictError: when it is not; nothing is changed.
    :raises UnavailableError: when the origin cannot be reached; it may have been changed.
    """
    token = refs.swap_ref(DECISION_REF, expected.token if expected else None, decision.encode())
    if token is None:
        raise exception.InternalError("a ref that was written has no token")
    return PublishedDecision(decision, token)


class DecisionReference:
    """Reader of the decision in force: reads it only when it has changed, or once in a while.

    :param clock: monotonic seconds.
    """

    def __init__(self, refs: RefStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._refs = refs
        self._clock = clock
        self._ref: Ref | None = None
        self._known: Decision | None = None
        self._read_at: float | None = None

    @property
    def known(self) -> Decision | None:
        """Decision that was read last; None: there was none."""
        return self._known

    def current(self) -> Decision | None:
        """Return the decision in force, None before the first.

        :raises CorruptError: when it is malformed; what was known before stays :attr:`known`.
        :raises UnsupportedError: when a newer release wrote it; likewise.
        :raises UnavailableError: when the origin cannot be reached; likewise.
        """
        now = self._clock()
        if self._read_at is not None and now - self._read_at < RECHECK_INTERVAL:
            ref = self._refs.refresh_ref(DECISION_REF, self._ref)
        else:
            ref = self._refs.get_ref(DECISION_REF)
            self._read_at = now
        if ref is None:
            self._ref = self._known = None
        elif self._ref is None or self._ref.token != ref.token:
            self._known = Decision.parse(ref.content)
            self._ref = ref  # not before it was parsed: what is malformed is told at each look
        return self._known


def _mapping(value: object) -> dict[str, int]:
    _check(isinstance(value, dict), "weights", value)
    return dict(value)  # type: ignore[call-overload, no-any-return]


def _check(is_right: bool, what: str, value: object) -> None:
    if not is_right:
        raise exception.InvalidError(f"{what} = {value!r:.100}")


def _is_whole(value: object, lowest: int, highest: int) -> bool:
    return untrusted_json.is_whole(value, lowest, highest)


def _is_host(value: object) -> bool:
    return isinstance(value, str) and _HOST.fullmatch(value) is not None


def _is_share(value: object) -> bool:
    return untrusted_json.is_number(value, 0, 1) and value != 0
