"""Answers of hosts about a revocation, and what they prove."""

import dataclasses
import enum
from collections.abc import Mapping

from acstor import exception, untrusted_json
from acstor.repository.images.revocation import PAGE_DIGESTS_MAX


class ProofState(enum.StrEnum):
    """State of the proof of one host."""

    ABSENT = "absent"
    """It holds no chunk that only the image has, and has the image attached no more."""
    HELD = "held"
    """It still holds some: somebody reads them, or its disk fails."""
    ATTACHED = "attached"
    """It has the image attached, since instances there need it and bring its chunks back, or has a
    local file of it."""
    UNREACHABLE = "unreachable"
    """It cannot be asked."""
    FAILED = "failed"
    """It does not answer what it was asked."""
    EXCLUDED = "excluded"
    """The operator says that it is gone for good; nobody has asked it."""

    @property
    def is_settled(self) -> bool:
        """True if asking again changes nothing that the proof needs."""
        return self in {ProofState.ABSENT, ProofState.EXCLUDED}


@dataclasses.dataclass(frozen=True, slots=True)
class PageAnswer:
    """Answer about one page of a revocation."""

    asked: int
    """Digests of the page."""
    held: int
    """Chunks that the host held when it was asked."""
    left: int
    """Chunks that it held afterwards; as many, where nothing was to be discarded."""
    attached: bool
    """True if the host has the image attached, or has a local file of it."""

    def to_answer(self) -> dict[str, object]:
        """Return the answer as a call carries it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_answer(cls, host: str, answer: object, asked: int) -> "PageAnswer":
        """Return the answer of a host.

        :param asked: digests of the page; an answer about another number proves nothing.
        :raises InternalError: when it is none.
        """
        problem = exception.InternalError(f"host {host} answered nonsense about the revocation")
        if not isinstance(answer, Mapping) or not isinstance(answer.get("attached"), bool):
            raise problem
        try:
            told, held, left = (
                untrusted_json.whole(answer.get(name), name, 0, PAGE_DIGESTS_MAX)
                for name in ("asked", "held", "left")
            )
        except ValueError as error:
            raise problem from error
        found = cls(told, held, left, answer["attached"])
        if found.asked != asked or found.held > asked or found.left > asked:
            raise problem
        return found
