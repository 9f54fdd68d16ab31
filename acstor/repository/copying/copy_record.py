"""Record of a copy, the ref ``repository-copy`` of its destination.

It is written before anything else, so that a copy that was interrupted is gone on with, and nothing
but a copy is ever changed. It also fences: of two that copy to the same place the second takes the
record, and the first finds that before it removes anything or ends.
"""

import dataclasses
import datetime
import enum
import json
import secrets

from acstor import exception, untrusted_json
from acstor.origin.base import Origin, RefStore
from acstor.origin.ref_replacement import read_replaceable
from acstor.repository import layout
from acstor.repository.copying.ref_kinds import COPY_REF
from acstor.repository.repository import FORMAT_SIZE_MAX, Format

COPY_VERSION = 1
"""Raised when a field changes its meaning; unknown fields are ignored."""


class CopyKind(enum.StrEnum):
    """Purpose of a copy."""

    BACKUP = "backup"
    """Kept; a later copy of the same repository may update it."""
    RESTORE = "restore"
    """To be used as the live repository; the record is removed at the end."""


class CopyState(enum.StrEnum):
    """State of a copy."""

    COPYING = "copying"
    """Not all of it is there; of a backup that is updated the former copy may be."""
    FINISHING = "finishing"
    """All of it is there but the object ``format``; once that is, too, nothing is written again."""
    COMPLETE = "complete"


@dataclasses.dataclass(frozen=True, slots=True)
class CopyRecord:
    """One state of the record."""

    repository: str
    """UUID of the repository that is copied."""
    kind: CopyKind
    state: CopyState
    nonce: str
    """32 hexadecimal digits, of the process that copies."""
    begun_at: str
    """UTC, ISO 8601; for people."""
    completed_at: str = ""
    """Of the last copy that was complete; empty: none was."""

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {"version": COPY_VERSION, **dataclasses.asdict(self)}
        return json.dumps(fields, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "CopyRecord":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            fields = untrusted_json.load(content, "the record of a copy")
            version = fields["version"]
            if version == COPY_VERSION:
                texts = (fields[name] for name in ("repository", "nonce", "begun_at"))
                repository, nonce, begun_at = map(str, texts)
                return cls(
                    repository,
                    CopyKind(fields["kind"]),
                    CopyState(fields["state"]),
                    nonce,
                    begun_at,
                    str(fields.get("completed_at", "")),
                )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(
                f"the ref {COPY_REF} at the destination is malformed",
                hint="copy to an empty destination",
            ) from error
        raise exception.UnsupportedError(f"the destination's copy has version {version!r:.20}")


class CopyTerm:
    """The record of a destination while one process copies there."""

    def __init__(self, refs: RefStore, record: CopyRecord, token: str | None) -> None:
        self._refs = refs
        self._token = token
        self.record = record

    def become(self, state: CopyState) -> None:
        """Write another state, or the same again, which tells whether another process copies.

        :raises ConflictError: when one does.
        """
        completed_at = now_text() if state is CopyState.COMPLETE else self.record.completed_at
        after = dataclasses.replace(self.record, state=state, completed_at=completed_at)
        if after != self.record or self._token is None:
            self.write(after.encode())
            self.record = after
            return
        found = read_replaceable(self._refs, COPY_REF)
        if found is None or found.token != self._token:
            raise _overtaken()

    def remove(self) -> None:
        """Take the record away: the destination is no copy any more.

        :raises ConflictError: when another process copies to it.
        """
        self.write(None)

    def write(self, content: bytes | None) -> None:
        """Have the ref hold this, or be gone.

        :raises ConflictError: when another process copies to the same destination.
        """
        try:
            self._token = self._refs.swap_ref(COPY_REF, self._token, content)
        except exception.ConflictError as error:
            raise _overtaken() from error


def begin(
    source: Origin, repository_format: Format, destination: Origin, kind: CopyKind
) -> CopyTerm:
    """Make the destination that of a copy, or go on with the one that is there.

    :raises InvalidError: when it is no place for this copy; nothing there is changed.
    :raises ConflictError: when another process begins at the same moment.
    """
    ref = read_replaceable(destination, COPY_REF)
    former = None if ref is None else CopyRecord.parse(ref.content)
    if former is None:
        _check_empty(destination, repository_format)
    else:
        _check_same(former, repository_format.id, kind)
    # Without ``format`` nobody has used it, and the source may have gone on since.
    is_nearly_done = (
        former is not None
        and former.state is CopyState.FINISHING
        and destination.exists(layout.FORMAT_KEY)
    )
    state = CopyState.FINISHING if is_nearly_done else CopyState.COPYING
    record = CopyRecord(
        repository_format.id,
        kind,
        state,
        secrets.token_hex(16),
        now_text(),
        former.completed_at if former is not None else "",
    )
    destination.convert_refs()
    term = CopyTerm(destination, record, None if ref is None else ref.token)
    term.write(record.encode())
    seen = source.get_ref(COPY_REF)
    if seen is not None and seen.content == record.encode():
        term.write(None if ref is None else ref.content)
        raise exception.InvalidError(
            "source and destination are the same origin", hint="name another destination"
        )
    return term


def stored_format(origin: Origin) -> Format | None:
    """Return what the object ``format`` of an origin says, or the ref; None: there is none."""
    try:
        content = origin.get(layout.FORMAT_KEY, FORMAT_SIZE_MAX)
    except exception.NotFoundError:
        ref = origin.get_ref(layout.FORMAT_REF)
        if ref is None:
            return None
        content = ref.content
    return Format.parse(content)


def _check_empty(destination: Origin, repository_format: Format) -> None:
    found = stored_format(destination)
    if found is not None and found.id == repository_format.id:
        raise exception.InvalidError(
            f"the destination is repository {found.id} itself, or one that is used in its place",
            hint="copy to an empty destination, or to a former copy",
        )
    if found is not None:
        raise exception.InvalidError(
            f"the destination holds another repository, {found.id} and not {repository_format.id}",
            hint="copy to an empty destination, or to a former copy of this repository",
        )
    name = next(destination.list_refs(), None) or next(destination.list(), None)
    if name is not None:
        raise exception.InvalidError(
            f"the destination is not empty: it has {name}", hint="copy to an empty destination"
        )


def _check_same(former: CopyRecord, repository_id: str, kind: CopyKind) -> None:
    if former.repository != repository_id:
        raise exception.InvalidError(
            f"the destination holds a copy of another repository, {former.repository} and not "
            f"{repository_id}",
            hint="copy to an empty destination, or to a former copy of this repository",
        )
    if former.kind is not kind:
        raise exception.InvalidError(
            f"the destination holds a {former.kind.value}, and this is to be a {kind.value}",
            hint="a restore goes to an empty destination, or on where one was interrupted",
        )


def _overtaken() -> exception.ConflictError:
    return exception.ConflictError(
        "another process copies to the same destination", hint="let it end, then look"
    )


def now_text() -> str:
    """Return the time for people: UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
