"""Pins of the operator: the ref ``policy-pins`` in the origin.

The page is ``doc/source/reference/formats/policy-pins.rst``. It lives beside the decision, so that
every leader finds it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor import exception, untrusted_json
from acstor.cluster.ring.decision import HOSTS_MAX, THRESHOLD_MAX, WEIGHT_MAX
from acstor.origin.base import RefStore

PINS_REF = "policy-pins"
PINS_VERSION = 1
"""Raised when a field changes its meaning; unknown fields are ignored."""


@dataclass(frozen=True)
class Pins:
    """Weights and threshold that automatic decisions must leave alone.

    :raises InvalidError: when a value is out of its range.
    """

    weights: Mapping[str, int] = field(default_factory=dict)
    """By host, in the unit of decisions: 10,000 is an ordinary host."""
    is_threshold_pinned: bool = False
    threshold: int | None = None
    """The pinned threshold, hops; None: no host is too far. Counts where it is pinned."""
    is_frozen: bool = False
    """True if nothing at all is changed but what is pinned."""

    def __post_init__(self) -> None:
        if len(self.weights) > HOSTS_MAX:
            raise exception.InvalidError(f"{len(self.weights)} pinned hosts, at most {HOSTS_MAX}")
        for host, weight in self.weights.items():
            if not isinstance(host, str) or type(weight) is not int or not 1 <= weight < WEIGHT_MAX:
                raise exception.InvalidError(
                    f"pinned weight of {host!r:.50} = {weight!r:.20}",
                    hint="to take a host out of the ring's work, drain it: acstor host drain",
                )
        hops = self.threshold
        if hops is not None and (type(hops) is not int or not 1 <= hops <= THRESHOLD_MAX):
            raise exception.InvalidError(f"pinned threshold = {hops!r:.20}, not 1 to 255")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "version": PINS_VERSION,
            "weights": dict(sorted(self.weights.items())),
            "is_threshold_pinned": self.is_threshold_pinned,
            "threshold": self.threshold,
            "is_frozen": self.is_frozen,
        }

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        return json.dumps(self.to_json()).encode() + b"\n"

    @classmethod
    def from_json(cls, fields: Any) -> "Pins":
        """Return what :meth:`to_json` returned; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            version = fields["version"]
            if version != PINS_VERSION or isinstance(version, bool):
                raise exception.UnsupportedError(f"the pins have version {version!r:.20}")
            for name in ("is_threshold_pinned", "is_frozen"):
                if not isinstance(fields[name], bool):
                    raise exception.InvalidError(f"{name} = {fields[name]!r:.20}")
            return cls(
                dict(fields["weights"].items()),
                fields["is_threshold_pinned"],
                fields["threshold"],
                fields["is_frozen"],
            )
        except (exception.InvalidError, AttributeError, TypeError, KeyError) as error:
            raise exception.CorruptError(
                f"the pins are malformed: {error}", hint="run 'acstor policy unpin --all'"
            ) from error

    @classmethod
    def parse(cls, content: bytes) -> "Pins":
        """Read a ref's content; errors as in :meth:`from_json`."""
        try:
            fields = untrusted_json.load(content, "the pins")
        except ValueError as error:
            raise exception.CorruptError(
                "the pins are malformed", hint="run 'acstor policy unpin --all'"
            ) from error
        return cls.from_json(fields)


def read_pins(refs: RefStore) -> Pins:
    """Return what the operator insists on, nothing where there is no ref.

    :raises CorruptError: when the ref is malformed.
    :raises UnsupportedError: when a newer release wrote it.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(PINS_REF)
    return Pins() if ref is None else Pins.parse(ref.content)
