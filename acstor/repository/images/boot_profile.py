"""Boot profile of an image: the content of the ref ``boot-profiles/<uuid>``.

Every host reports in which order its guests read an image while they booted. What a boot reads is
known from the working set (:mod:`acstor.repository.images.working_set`); this says when, so that it
is fetched before it is asked for. The last boots are kept, of up to three kinds, and vote
(:mod:`acstor.repository.images.boot_kinds`).
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from acstor import exception, untrusted_json
from acstor.control import bitmap, rank_list
from acstor.control.chunk_set import CHUNK_COUNT_MAX
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore
from acstor.repository import layout
from acstor.repository.images import boot_kinds, image_refs
from acstor.repository.images.boot_kinds import Boot, Kind

VERSION = 1
"""Version of the content that this build reads and writes."""
PREFIX = "boot-profiles/"
CONTENT_SIZE_MAX = 8 << 20
"""Longest content of a ref that is read, bytes: 48 boots of as many chunks as one may have."""
HOST_LENGTH_MAX = 255
"""Longest name of a host, characters."""
_COUNT_MAX = (1 << 53) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class BootProfile:
    """Boots of one image, as reported so far."""

    chunk_count: int
    kinds: tuple[Kind, ...] = ()
    reports: int = 0
    """Boots that were reported."""
    first_host: str = ""
    """Host that reported first; empty: none has."""
    is_lone: bool = True
    """False once another host has."""

    @property
    def used(self) -> tuple[Kind, ...]:
        """Kinds that hosts are given, the likeliest first."""
        return boot_kinds.used(self.kinds, is_lone=self.is_lone)

    def merged(self, boot: Boot) -> "BootProfile":
        """Return the profile after one more boot; one that is known, or is none, changes nothing.

        What does not fit the disk is left out.
        """
        order = tuple(chunk for chunk in boot.order if 0 <= chunk < self.chunk_count)
        order = order[: rank_list.CHUNKS_MAX]
        is_known = any(
            (known.host, known.number) == (boot.host, boot.number)
            for kind in self.kinds
            for known in kind.boots
        )
        if is_known or len(order) < rank_list.CHUNKS_MIN or self.reports >= _COUNT_MAX:
            return self
        report = self.reports + 1
        kinds = boot_kinds.merged(self.kinds, dataclasses.replace(boot, order=order), report)
        first = self.first_host or boot.host
        return BootProfile(
            self.chunk_count, kinds, report, first, self.is_lone and first == boot.host
        )

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {
            "version": VERSION,
            "chunk_count": self.chunk_count,
            "reports": self.reports,
            "first_host": self.first_host,
            "is_lone": self.is_lone,
            "kinds": [_kind_fields(kind) for kind in self.kinds],
        }
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, image_id: str) -> "BootProfile":
        """Read a ref's content; unknown fields are ignored.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed or too long.
        """
        what = f"the boot profile of image {image_id}"
        try:
            if len(content) > CONTENT_SIZE_MAX:
                raise ValueError("it is too long")
            fields = untrusted_json.load(content, what)
            version = fields["version"]
            if untrusted_json.is_whole(version, VERSION + 1, _COUNT_MAX):
                raise exception.UnsupportedError(
                    f"{what} has version {version}, this release reads {VERSION}"
                )
            untrusted_json.whole(version, "version", VERSION, VERSION)
            return cls._checked(fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise exception.CorruptError(f"{what} is malformed: {error}") from error
        except exception.CorruptError as error:
            raise exception.CorruptError(f"{what} is malformed: {error}") from error

    @classmethod
    def _checked(cls, fields: Any) -> "BootProfile":
        chunk_count = untrusted_json.whole(fields["chunk_count"], "chunks", 0, CHUNK_COUNT_MAX)
        reports = untrusted_json.whole(fields["reports"], "reports", 0, _COUNT_MAX)
        first, is_lone, kinds = (fields[name] for name in ("first_host", "is_lone", "kinds"))
        if not isinstance(is_lone, bool):
            raise ValueError("is_lone is neither true nor false")
        if not isinstance(kinds, list) or len(kinds) > boot_kinds.KINDS_MAX:
            raise ValueError("too many kinds")
        parsed = tuple(_parse_kind(kind, chunk_count, reports) for kind in kinds)
        return cls(chunk_count, parsed, reports, _host(first) if first else "", is_lone)


def boot_profile_ref(image_id: str) -> str:
    """Return the name of the ref that holds an image's boot profile."""
    return PREFIX + layout.canonical_image_id(image_id)


def read(refs: RefStore, image_id: str) -> BootProfile | None:
    """Return what is known of an image, None when no boot of it was reported.

    :raises CorruptError: and the like when the ref is not readable.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(boot_profile_ref(image_id))
    return None if ref is None else BootProfile.parse(ref.content, image_id)


def add(
    refs: RefStore,
    image_id: str,
    chunk_count: int,
    boots: Iterable[Boot],
    wait: Callable[[float], object] = time.sleep,
) -> BootProfile:
    """Merge boots into the ref, by compare-and-swap, and return the merged profile.

    What is there but cannot be read, or is of a disk of another length, is replaced: it is learnt
    again.

    :raises ConflictError: when others write all the time.
    :raises UnsupportedError: when a newer release wrote the ref; it stays.
    :raises UnavailableError: when the origin cannot be reached.
    """
    found = tuple(boots)
    profile = BootProfile(chunk_count)

    def merge(content: bytes | None) -> bytes | None:
        nonlocal profile
        profile = known = _known(content, image_id, chunk_count)
        for boot in found:
            profile = profile.merged(boot)
        # What is there stays as it is, byte by byte, where nothing is new.
        return content if profile == known and content is not None else profile.encode()

    ref_replacement.change(refs, boot_profile_ref(image_id), merge, wait)
    return profile


def list_image_ids(refs: RefStore) -> Iterator[str]:
    """Yield the ids of the images of which something is known, in no particular order."""
    return image_refs.list_image_ids(refs, PREFIX)


def forget(refs: RefStore, image_id: str) -> bool:
    """Remove what is known of an image; return whether there was something.

    :raises UnavailableError: when the origin cannot be reached.
    """
    return ref_replacement.replace(refs, boot_profile_ref(image_id), None)


def _known(content: bytes | None, image_id: str, chunk_count: int) -> BootProfile:
    if content is not None:
        with contextlib.suppress(exception.CorruptError):
            found = BootProfile.parse(content, image_id)
            if found.chunk_count == chunk_count:
                return found
    return BootProfile(chunk_count)


def _kind_fields(kind: Kind) -> dict[str, object]:
    boots = [
        {
            "host": boot.host,
            "number": boot.number,
            "order": bitmap.encode(rank_list.encode([boot.order])),
        }
        for boot in kind.boots
    ]
    return {"matched": kind.matched, "total": kind.total, "boots": boots}


def _parse_kind(fields: Any, chunk_count: int, reports: int) -> Kind:
    boots = fields["boots"]
    if not isinstance(boots, list) or not 0 < len(boots) <= boot_kinds.BOOTS_MAX:
        raise ValueError("a kind has too many boots, or none")
    return Kind(
        tuple(_parse_boot(boot, chunk_count) for boot in boots),
        untrusted_json.whole(fields["matched"], "a report", 0, reports),
        untrusted_json.whole(fields["total"], "boots", len(boots), _COUNT_MAX),
    )


def _parse_boot(fields: Any, chunk_count: int) -> Boot:
    text = fields["order"]
    if not isinstance(text, str):
        raise ValueError("an order is no text")
    orders = rank_list.decode(bitmap.inflate(text, rank_list.len_max(1)), chunk_count)
    if len(orders) != 1:
        raise ValueError("a boot has one order")
    number = untrusted_json.whole(fields["number"], "number of a boot", 0, _COUNT_MAX)
    return Boot(_host(fields["host"]), number, orders[0])


def _host(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= HOST_LENGTH_MAX or not name.isprintable():
        raise ValueError("no name of a host")
    return name
