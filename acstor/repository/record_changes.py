"""Changes of records in refs, by compare-and-swap: read, made anew, checked, swapped."""

import dataclasses
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from acstor import exception
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore


class Checkable(Protocol):
    """Record that knows what it must be like."""

    def check(self) -> None:
        """Refuse what no record may be.

        :raises ValueError: saying what is wrong.
        """


class Record(Checkable, Protocol):
    """Record that is written into a ref."""

    def encode(self) -> bytes:
        """Return the ref's content."""


Changed = TypeVar("Changed", bound=Record)


# Without slots: typing notes of which records it is in a name of its own, where it is made by one.
@dataclasses.dataclass(frozen=True)
class RecordChange(Generic[Changed]):
    """A record before and after a call."""

    before: Changed
    after: Changed
    """Equal to ``before`` when nothing had to be changed, or the record was removed."""


def change_record(
    refs: RefStore,
    name: str,
    read: Callable[[bytes | None], Changed],
    make: Callable[[Changed], Changed | None],
    renew: Callable[[Changed, Changed | None], Changed | None],
    wait: Callable[[float], object],
) -> RecordChange[Changed]:
    """Change a record by compare-and-swap, again when somebody else was quicker.

    :param name: of the ref.
    :param read: returns the record of a content; refuses where there is none.
    :param make: returns the record as it shall be, the same one when nothing is to do, None to
        remove it; raises to refuse. Asked anew at every attempt.
    :param renew: checks the step from one record to another, and returns what is written.
    :raises ConflictError: when others write all the time.
    """
    done: list[RecordChange[Changed]] = []

    def changed(content: bytes | None) -> bytes | None:
        before = read(content)
        after = make(before)
        if after == before:
            done.append(RecordChange(before, before))
            return content
        after = renew(before, after)
        done.append(RecordChange(before, before if after is None else after))
        return None if after is None else after.encode()

    ref_replacement.change(refs, name, changed, wait)
    return done[-1]


def check_sound(record: Checkable, what: str) -> None:
    """Refuse a record that is not sound before it is written.

    :param what: whose record, for the message.
    :raises InvalidError: saying what is wrong.
    """
    try:
        record.check()
    except (ValueError, TypeError) as error:
        raise exception.InvalidError(f"{what}: {error}") from error
