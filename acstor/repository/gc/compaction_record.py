"""Records of compactions under way, refs ``compactions/<host>``.

A host does one compaction at a time. Its record names the packs whose chunks it copies, and each
pack that it makes before that exists; collections keep them all. Who begins another one on the same
host replaces the record, and the former one, if it still runs, finds that out before its next step.
"""

import dataclasses
import json
import re
import secrets
from collections.abc import Sequence

from acstor import exception, untrusted_json
from acstor.origin import base, ref_replacement
from acstor.repository import layout

COMPACTION_VERSION = 1
PACKS_MAX = 1 << 16
"""Most packs that a record names."""

_PACK = re.compile(r"[0-9a-f]{64}\Z")


def random_nonce() -> str:
    """Return what tells one compaction from all others."""
    return secrets.token_hex(16)


@dataclasses.dataclass(frozen=True, slots=True)
class CompactionRecord:
    """One state of a compaction."""

    sources: tuple[str, ...] = ()
    """Packs whose chunks are copied."""
    packs: tuple[str, ...] = ()
    """Packs that are made of them, whether they exist yet or not."""
    nonce: str = dataclasses.field(default_factory=lambda: random_nonce())

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {"version": COMPACTION_VERSION, **dataclasses.asdict(self)}
        return json.dumps(fields, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, host: str) -> "CompactionRecord":
        """Read a ref's content.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed.
        """
        try:
            fields = untrusted_json.load(content, "a record of a compaction")
            version = fields["version"]
            if version == COMPACTION_VERSION:
                sources, packs = (_packs_of(fields[name]) for name in ("sources", "packs"))
                return cls(sources, packs, str(fields["nonce"]))
        except (ValueError, TypeError, KeyError) as error:
            raise exception.CorruptError(
                f"the record of the compaction on host {host} is malformed",
                hint=f"stop compactions there and remove the ref {layout.compaction_ref(host)}",
            ) from error
        raise exception.UnsupportedError(
            f"the record of the compaction on host {host} has version {version!r:.20}",
            hint="upgrade this machine to the release that the host runs",
        )


def _packs_of(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > PACKS_MAX:
        raise ValueError(f"no list of at most {PACKS_MAX} packs")
    if not all(isinstance(pack, str) and _PACK.match(pack) for pack in value):
        raise ValueError("a pack has no digest for a name")
    return tuple(value)


def named_by_all(refs: base.RefStore) -> set[str]:
    """Return every pack that a compaction under way copies or makes.

    :raises CorruptError: when a record cannot be read: what it names is then unknown.
    :raises UnsupportedError: when a newer release wrote one.
    """
    found: set[str] = set()
    for name in refs.list_refs(layout.COMPACTION_PREFIX):
        ref = refs.get_ref(name)
        if ref is not None:
            host = name.removeprefix(layout.COMPACTION_PREFIX)
            record = CompactionRecord.parse(ref.content, host)
            found.update(record.sources, record.packs)
    return found


def forget_compaction(refs: base.RefStore, host: str) -> bool:
    """Remove the record of a host that is gone; what it had made is garbage then.

    :returns: whether there was one.
    :raises ConflictError: when the host writes all the time.
    """
    return ref_replacement.replace(refs, layout.compaction_ref(host), None)


class OwnRecord:
    """The record of the compaction that this process does, under its host's name."""

    def __init__(self, refs: base.RefStore, host: str) -> None:
        self._refs = refs
        self._host = host
        self._name = layout.compaction_ref(host)
        self._record = CompactionRecord()
        self._token: str | None = None

    def clear(self) -> None:
        """Drop what a compaction of this host that was killed, or still runs, has named.

        :raises ConflictError: when another one begins at the same time.
        """
        former = self._refs.get_ref(self._name)
        if former is not None:
            self._token = former.token
            self._swap(None)

    def begin(self, sources: Sequence[bytes]) -> None:
        """Name what is to be copied; what another compaction of this host had named is dropped.

        :raises ConflictError: when another one begins at the same time.
        """
        if self._token is None:
            former = self._refs.get_ref(self._name)
            self._token = None if former is None else former.token
        self._write(CompactionRecord(tuple(pack.hex() for pack in sources)))

    def announce(self, pack: bytes) -> None:
        """Name a pack that is about to be stored.

        :raises ConflictError: when another compaction of this host has begun.
        """
        record = self._record
        self._write(dataclasses.replace(record, packs=(*record.packs, pack.hex())))

    def check_current(self) -> None:
        """Refuse to go on where another compaction of this host has begun.

        :raises ConflictError: when it has.
        """
        ref = self._refs.get_ref(self._name)
        if ref is None or ref.token != self._token:
            raise self._overtaken()

    def end(self) -> None:
        """Name nothing any more.

        :raises ConflictError: when another compaction of this host has begun.
        """
        if self._token is not None:
            self._swap(None)

    def _write(self, record: CompactionRecord) -> None:
        self._record = dataclasses.replace(record, nonce=random_nonce())
        self._swap(self._record.encode())

    def _swap(self, content: bytes | None) -> None:
        try:
            self._token = self._refs.swap_ref(self._name, self._token, content)
        except exception.ConflictError as error:
            raise self._overtaken() from error

    def _overtaken(self) -> exception.ConflictError:
        return exception.ConflictError(
            f"another compaction has begun on host {self._host}",
            hint="let one of them end before the next begins",
        )
