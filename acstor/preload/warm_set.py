"""Warm set: the chunks of one image that guests of a host use, as that host tells another.

It is a hint: a host that lies, or tells of an image of other content, has the other one fetch
chunks of the image that nobody reads, within the bounds of any preload, and nothing else.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.control.chunk_set import CHUNK_COUNT_MAX, ChunkSet

WARM_SET_VERSION = 1
SET_TEXT_MAX = 4 << 20
"""Longest text of one set in a warm set, characters: two of them fit in any broker's message."""


@dataclasses.dataclass(frozen=True, slots=True)
class WarmSet:
    """Chunks of one image that a host's guests use."""

    image: str
    chunk_count: int
    """Chunks of the image."""
    read: ChunkSet
    """Chunks that guests of the host read while the image booted."""
    held: ChunkSet
    """Chunks that are in the host's chunk store, for its own guests or for others."""

    def first(self, chunks_max: int) -> ChunkSet:
        """Return at most so many chunks: those that were read, then those that are held."""
        rest = itertools.islice(self.held - self.read, max(0, chunks_max - len(self.read)))
        read = itertools.islice(self.read, chunks_max)
        return ChunkSet.of([*read, *rest], self.chunk_count)

    def to_answer(self) -> dict[str, object]:
        """Return the answer to another host; a set whose text would be too long is empty in it."""
        return {
            "version": WARM_SET_VERSION,
            "image": self.image,
            "chunk_count": self.chunk_count,
            "read": _text(self.read),
            "held": _text(self.held),
        }

    @classmethod
    def from_answer(cls, host: str, image: str, answer: object) -> "WarmSet":
        """Return the warm set of an image that a host answers with; unknown fields are ignored.

        :raises UnsupportedError: when it is of a newer version.
        :raises CorruptError: when it is none, or of another image.
        """
        if not isinstance(answer, Mapping):
            raise exception.CorruptError(f"host {host} tells no warm set")
        version = answer.get("version")
        if version != WARM_SET_VERSION:
            raise exception.UnsupportedError(
                f"host {host} tells a warm set of version {version!r:.20}, this release reads "
                f"{WARM_SET_VERSION}"
            )
        try:
            count = untrusted_json.whole(
                answer.get("chunk_count"), "chunk_count", 0, CHUNK_COUNT_MAX
            )
            read, held = (_decoded(answer, name, count) for name in ("read", "held"))
        except ValueError as error:
            raise exception.CorruptError(f"host {host} tells no warm set: {error}") from error
        if answer.get("image") != image:
            raise exception.CorruptError(f"host {host} tells the warm set of another image")
        return cls(image, count, read, held)


def _text(chunks: ChunkSet) -> str:
    text = chunks.encode()
    return text if len(text) <= SET_TEXT_MAX else ChunkSet(chunks.chunk_count).encode()


def _decoded(answer: Mapping[Any, Any], name: str, chunk_count: int) -> ChunkSet:
    text = answer.get(name)
    if not isinstance(text, str) or len(text) > SET_TEXT_MAX:
        raise ValueError(f"{name} is no text of at most {SET_TEXT_MAX} characters")
    return ChunkSet.decode(text, chunk_count)
