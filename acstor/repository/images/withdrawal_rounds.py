"""Withdrawal rounds: which images are being taken from the hosts, the ref ``withdrawals``.

Written by the registrar, read by every agent. Each change has a new round number; a host that has
looked at its disk after it read a round says so in its usage record. An image goes through::

                ask              close               remove
    (absent) ---------> asked ---------> closing ----------> removing ---> (absent)
        ^                 | ^               |                       finish
        '-----cancel------' '----reopen-----'
        '-----cancel------------------------'

``asked``: hosts say whether they use it. ``closing``: no host makes new use of it possible: its
link goes, under Nova's lock, where no overlay needs it, and it is not attached anew.
``removing``: decided for good, of the image with that token only. RFD 14 has the argument.

A registrar that replaces a state that it has not written itself (it leads anew, the origin was
restored from a backup) begins another epoch: what hosts have answered before counts no more.
"""

import dataclasses
import enum
import json
import secrets
from collections.abc import Mapping

from acstor import exception, untrusted_json
from acstor.origin.base import RefStore
from acstor.repository.layout import canonical_image_id

ROUNDS_REF = "withdrawals"
ROUNDS_VERSION = 1


class Phase(enum.StrEnum):
    """Phase of the withdrawal of one image."""

    ASKED = "asked"
    CLOSING = "closing"
    REMOVING = "removing"


PHASES: frozenset[tuple[Phase | None, Phase | None]] = frozenset(
    {
        (None, Phase.ASKED),  # ask
        (Phase.ASKED, Phase.CLOSING),  # close
        (Phase.CLOSING, Phase.ASKED),  # reopen: a host uses it after all
        (Phase.CLOSING, Phase.REMOVING),  # remove
        (Phase.ASKED, None),  # cancel
        (Phase.CLOSING, None),  # cancel
        (Phase.REMOVING, None),  # finish
    }
)
"""Every change that the withdrawal of an image makes; None: there is none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Withdrawal:
    """One image that is being withdrawn."""

    phase: Phase
    round: int
    """Round that began with this phase."""
    image_token: str | None = None
    """Token of the image's ref that is to be removed, where the phase is ``removing``."""


@dataclasses.dataclass(frozen=True)
class Rounds:
    """One state of the ref."""

    round: int = 0
    """The newest; 0: there never was one."""
    images: Mapping[str, Withdrawal] = dataclasses.field(default_factory=dict)
    token: str | None = None
    """Of the ref in this state; None: there is none."""
    epoch: str = ""
    """Random id of an unbroken sequence of states by one writer; rounds compare within it only."""

    @property
    def closed(self) -> frozenset[str]:
        """Images of which no new use may become possible."""
        return frozenset(
            image_id
            for image_id, withdrawal in self.images.items()
            if withdrawal.phase is not Phase.ASKED
        )

    def phase_of(self, image_id: str) -> Phase | None:
        """Return how far the withdrawal of an image is; None: there is none."""
        withdrawal = self.images.get(image_id)
        return withdrawal.phase if withdrawal else None

    def changed(
        self,
        image_id: str,
        phase: Phase | None,
        round_min: int = 0,
        *,
        image_token: str | None = None,
    ) -> "Rounds":
        """Return the state with an image in another phase, in a new round.

        :param phase: None: it is withdrawn no more.
        :param round_min: newest round that any host knows of, should this ref have been lost.
        :param image_token: of the image that is to be removed, with ``removing``.
        :raises InternalError: when :data:`PHASES` does not list that.
        """
        if (self.phase_of(image_id), phase) not in PHASES:
            raise exception.InternalError(
                f"a withdrawal does not go from {self.phase_of(image_id)} to {phase}"
            )
        images = dict(self.images)
        following = max(self.round, round_min) + 1
        if phase is None:
            del images[image_id]
        else:
            images[image_id] = Withdrawal(phase, following, image_token)
        return dataclasses.replace(self, round=following, images=images)

    def in_new_epoch(self, round_min: int = 0) -> "Rounds":
        """Return the same withdrawals in a new round of another epoch: every host is asked anew."""
        following = max(self.round, round_min) + 1
        return dataclasses.replace(self, round=following, epoch=secrets.token_hex(16))

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        images = {image_id: _fields(one) for image_id, one in sorted(self.images.items())}
        fields = {
            "version": ROUNDS_VERSION,
            "epoch": self.epoch,
            "round": self.round,
            "images": images,
        }
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, token: str | None = None) -> "Rounds":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            fields = untrusted_json.load(content, "the withdrawals")
            if fields["version"] != ROUNDS_VERSION:
                raise exception.UnsupportedError(
                    f"the withdrawals are written in version {fields['version']!r:.20}, this "
                    f"release reads {ROUNDS_VERSION}"
                )
            images = {
                canonical_image_id(image_id): _withdrawal(one)
                for image_id, one in fields["images"].items()
            }
            newest = untrusted_json.whole(fields["round"], "round")
            return cls(newest, images, token, _text(fields["epoch"]))
        except (ValueError, TypeError, KeyError, AttributeError, exception.InvalidError) as error:
            raise exception.CorruptError(
                "the withdrawals in the origin are malformed",
                hint="the registrar that leads begins new rounds: see that it runs",
            ) from error


def _fields(withdrawal: Withdrawal) -> dict[str, object]:
    fields: dict[str, object] = {"phase": withdrawal.phase.value, "round": withdrawal.round}
    if withdrawal.image_token is not None:
        fields["image_token"] = withdrawal.image_token
    return fields


def _withdrawal(fields: Mapping[str, object]) -> Withdrawal:
    phase = Phase(_text(fields["phase"]))
    token = _text(fields["image_token"]) if phase is Phase.REMOVING else None
    return Withdrawal(phase, untrusted_json.whole(fields["round"], "round"), token)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def read_rounds(refs: RefStore) -> Rounds:
    """Return the present state; errors as those of :meth:`Rounds.parse` and of the origin."""
    ref = refs.get_ref(ROUNDS_REF)
    return Rounds() if ref is None else Rounds.parse(ref.content, ref.token)


def write_rounds(refs: RefStore, after: Rounds) -> Rounds:
    """Write a state that :meth:`Rounds.changed` made; return it as it is in the origin.

    :raises ConflictError: when somebody else has changed the ref.
    :raises UnavailableError: when the origin cannot be reached.
    """
    token = refs.swap_ref(ROUNDS_REF, after.token, after.encode())
    return dataclasses.replace(after, token=token)
