"""Revocation of an image: the refs ``revocations/<image id>/...``.

An image is revoked when no host may keep a chunk that only it has. The record says which image, and
what each host has answered; the pages beside it name the chunks, so that hosts which were away find
them when the image itself is long gone. Pages are written before the record that counts on them.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from acstor import exception, native, untrusted_json
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore
from acstor.repository import layout

PREFIX = "revocations/"
VERSION = 1
DIGEST_BYTES = 32
PAGE_DIGESTS_MAX = 1 << 15
"""Most digests of a page: 1 MiB, what a data plane takes at a time (crates/host, discarding.rs)."""
CHUNKS_MAX = 1 << 24
"""Most chunks of one revocation: an image of 1 TiB in chunks of 64 KiB, none of them shared."""
PAGES_MAX = CHUNKS_MAX // PAGE_DIGESTS_MAX
_RECORD = "record"
_NAME = re.compile(r"[0-9a-f]{64}\Z")
_TEXT_MAX = 500


@dataclasses.dataclass(frozen=True, slots=True)
class HostProof:
    """Last answer of one host."""

    state: str
    """:class:`acstor.revocation.answers.ProofState`."""
    held: int = 0
    """Chunks that it held when it was asked first."""
    dropped: int = 0
    """Chunks that it discarded since."""
    left: int = 0
    """Chunks that it held when it was asked last."""
    time: str = ""
    """Time of the last question, UTC, ISO 8601, for people."""
    note: str = ""
    """Reason for which nothing is proven, for people."""


@dataclasses.dataclass(frozen=True)
class Revocation:
    """Record of a revocation."""

    image: str
    name: str
    """Name of the image, for people."""
    time: str
    """Time at which it was revoked, UTC, ISO 8601, for people."""
    shared: int
    """Chunks of the image that others need, too; hosts keep them."""
    page_sizes: tuple[int, ...] = ()
    """Digests of each page."""
    page_names: tuple[str, ...] = ()
    """BLAKE3 of each page's bytes, hexadecimal."""
    hosts: Mapping[str, HostProof] = dataclasses.field(default_factory=dict)

    @property
    def chunks(self) -> int:
        """Chunks that only the image has."""
        return sum(self.page_sizes)

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {
            "version": VERSION,
            "name": self.name,
            "time": self.time,
            "shared": self.shared,
            "page_sizes": list(self.page_sizes),
            "page_names": list(self.page_names),
            "hosts": {host: dataclasses.asdict(one) for host, one in sorted(self.hosts.items())},
        }
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, image_id: str) -> "Revocation":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        what = f"the revocation of image {image_id}"
        try:
            fields = untrusted_json.load(content, what)
            if fields["version"] != VERSION:
                raise exception.UnsupportedError(
                    f"{what} has version {fields['version']!r:.20}, this release reads {VERSION}"
                )
            return cls(
                image_id,
                _text(fields["name"]),
                _text(fields["time"]),
                untrusted_json.whole(fields["shared"], "shared"),
                *_pages(fields),
                {_text(host): _proof(one) for host, one in fields["hosts"].items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(
                f"{what} is malformed", hint=f"run 'acstor image revoke {image_id}' again"
            ) from error


def _pages(fields: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    sizes, names = fields["page_sizes"], fields["page_names"]
    if not isinstance(sizes, list) or not isinstance(names, list):
        raise TypeError("no lists of pages")
    if len(sizes) != len(names) or len(sizes) > PAGES_MAX:
        raise ValueError("not the pages of one revocation")
    checked = tuple(untrusted_json.whole(size, "a page", 1, PAGE_DIGESTS_MAX) for size in sizes)
    if not all(isinstance(name, str) and _NAME.match(name) for name in names):
        raise ValueError("a page has no digest for a name")
    return checked, tuple(names)


def _proof(fields: Mapping[str, Any]) -> HostProof:
    counts = [untrusted_json.whole(fields[name], name) for name in ("held", "dropped", "left")]
    held, dropped, left = counts
    return HostProof(
        _text(fields["state"]), held, dropped, left, _text(fields["time"]), _text(fields["note"])
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_MAX:
        raise TypeError("no text, or a long one")
    return value


def record_ref(image_id: str) -> str:
    """Return the name of the ref that holds the record of an image's revocation."""
    return f"{PREFIX}{layout.canonical_image_id(image_id)}/{_RECORD}"


def page_ref(image_id: str, page: int) -> str:
    """Return the name of the ref that holds one page of it."""
    return f"{PREFIX}{layout.canonical_image_id(image_id)}/{page:06d}"


def list_image_ids(refs: RefStore) -> Iterator[str]:
    """Yield the ids of the images that are revoked, in no particular order."""
    for name in refs.list_refs(PREFIX):
        image_id, _, last = name.removeprefix(PREFIX).partition("/")
        if last == _RECORD:
            yield image_id


def find(refs: RefStore, image_id: str) -> Revocation | None:
    """Return the revocation of an image, None where there is none.

    :raises CorruptError: and the like when it is not readable.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(record_ref(image_id))
    return None if ref is None else Revocation.parse(ref.content, image_id)


def check_not_revoked(refs: RefStore, image_id: str) -> None:
    """Refuse an image that is revoked.

    :raises InvalidError: when it is, whether or not the record can be read.
    """
    if refs.get_ref(record_ref(image_id)) is not None:
        raise exception.InvalidError(
            f"image {image_id} is revoked: no host may have its chunks",
            hint=f"delete or deactivate it in Glance; 'acstor revocation forget {image_id}' allows "
            "it again",
        )


def write(refs: RefStore, found: Revocation, digests: Sequence[bytes]) -> Revocation:
    """Write a revocation with its pages; return it with these.

    :param digests: of the chunks that hosts are to discard, each once.
    :raises ExhaustedError: when they are too many.
    :raises ConflictError: when somebody else writes all the time.
    """
    if len(digests) > CHUNKS_MAX:
        raise exception.ExhaustedError(
            f"image {found.image} has {len(digests)} chunks of its own, more than {CHUNKS_MAX}",
            hint="remove it with 'acstor image remove', and empty the chunk stores of the hosts",
        )
    sizes, names = [], []
    for number, first in enumerate(range(0, len(digests), PAGE_DIGESTS_MAX)):
        page = digests[first : first + PAGE_DIGESTS_MAX]
        content = b"".join(page)
        ref_replacement.replace(refs, page_ref(found.image, number), content)
        sizes.append(len(page))
        names.append(native.digest(content).hex())
    written = dataclasses.replace(found, page_sizes=tuple(sizes), page_names=tuple(names))
    ref_replacement.replace(refs, record_ref(found.image), written.encode())
    return written


def note_hosts(refs: RefStore, image_id: str, proofs: Mapping[str, HostProof]) -> Revocation:
    """Note what hosts have answered; return the record with it.

    :raises NotFoundError: when the revocation was forgotten meanwhile.
    :raises ConflictError: when somebody else writes all the time.
    """
    merged: Revocation | None = None

    def merge(content: bytes | None) -> bytes | None:
        nonlocal merged
        if content is None:
            raise exception.NotFoundError(f"the revocation of image {image_id} was forgotten")
        known = Revocation.parse(content, image_id)
        merged = dataclasses.replace(known, hosts={**known.hosts, **proofs})
        return merged.encode()

    ref_replacement.change(refs, record_ref(image_id), merge)
    if merged is None:
        raise exception.InternalError("nothing was written")
    return merged


def read_page(refs: RefStore, found: Revocation, page: int) -> bytes:
    """Return the digests of one page, one after the other.

    :raises NotFoundError: when there is no such page.
    :raises CorruptError: when it is not the one that the record counts on.
    """
    if not 0 <= page < len(found.page_names):
        raise exception.NotFoundError(f"the revocation of image {found.image} has no page {page}")
    ref = refs.get_ref(page_ref(found.image, page))
    content = b"" if ref is None else ref.content
    if native.digest(content).hex() != found.page_names[page]:
        raise exception.CorruptError(
            f"page {page} of the revocation of image {found.image} is not the one of its record",
            hint=f"run 'acstor image revoke {found.image}' again",
        )
    return content


def forget(refs: RefStore, image_id: str) -> bool:
    """Remove a revocation; return whether there was one.

    :raises UnavailableError: when the origin cannot be reached.
    """
    image_id = layout.canonical_image_id(image_id)
    # The record first: without it nobody looks for a page.
    was_there = ref_replacement.replace(refs, record_ref(image_id), None)
    for name in list(refs.list_refs(f"{PREFIX}{image_id}/")):
        ref_replacement.replace(refs, name, None)
    return was_there
