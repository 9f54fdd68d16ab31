"""The search for one object in several members, and the meanings of *not found*."""

import enum

from acstor import exception
from acstor.origin.replicated.placement import Placed


class Absence(enum.StrEnum):
    """Meaning of *not found*, said by a member that should have an object."""

    NOT_SYNCED = "not-synced"
    """Another member has it, and owes it to this one."""
    MOVING = "moving"
    """Another member has it, and it is on its way."""
    UNKNOWN = "unknown"
    """No member that can be asked has it, and not all can be asked."""
    ABSENT = "absent"
    """No member has it: it never was, or it was collected."""


class Search:
    """Answers of the members that were asked for one object.

    :param key: of the object.
    :param placed: the members that should have it.
    """

    def __init__(self, key: str, placed: Placed) -> None:
        self._key = key
        self._placed = placed
        self._missing: list[str] = []
        self._failures: dict[str, exception.AcstorError] = {}
        self._damage: exception.CorruptError | None = None

    @property
    def is_over(self) -> bool:
        """True if nothing that the members left could say matters."""
        return self._placed.is_decided and self._placed.members[0] in self._missing

    def missed(self, member: str) -> None:
        """Note that a member does not have it."""
        self._missing.append(member)

    def failed(self, member: str, error: exception.AcstorError) -> None:
        """Note that a member cannot be asked."""
        self._failures[member] = error

    def damaged(self, error: exception.CorruptError) -> None:
        """Note that a member has it damaged."""
        self._damage = error

    def absence(self, *, is_found: bool) -> Absence | None:
        """Return what the members that do not have it mean; None: those that should, have it."""
        if not is_found and not self._damage:
            is_unknown = self._failures and not self.is_over
            return Absence.UNKNOWN if is_unknown else Absence.ABSENT
        if not set(self._missing) & set(self._placed.members):
            return None
        return Absence.MOVING if self._placed.is_moving else Absence.NOT_SYNCED

    def error(self, *, is_over: bool = False) -> exception.AcstorError:
        """Return what to raise when no member gave the object.

        *Unavailable* as long as a member that may have it cannot be asked; the damage where one has
        it damaged; *not found* only where all say so.

        :param is_over: True if the time for it is over, which may be why one did not answer.
        """
        if self.is_over:
            return exception.NotFoundError(f"no member has an object {self._key}")
        if self._failures and is_over:
            return exception.DeadlineError(f"there was no time to read {self._key}")
        lasting = [error for error in self._failures.values() if not error.is_transient]
        if lasting and len(lasting) == len(self._failures):
            return lasting[0]
        if self._failures:
            names = ", ".join(sorted(self._failures))
            first = next(iter(self._failures.values()))
            return exception.UnavailableError(
                f"{self._key} is in no member that answers; {names} cannot be asked: {first}",
                hint=f"check the stores of {names}; what they have is not known until then",
            )
        if self._damage is not None:
            return self._damage
        return exception.NotFoundError(f"no member has an object {self._key}")
