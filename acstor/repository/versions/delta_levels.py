"""Levels of a chain of manifests: which of them a new delta takes in, so that none is too deep.

Source: ACStor, §3.7.1: the child and the grandchild of a template are merged when its tree is
deeper than 3. As in folds of volumes (``crates/manifest``, levels.rs), size decides, too: what is
written again and again stays small. Differs from folds: the lowest level, the base, is never taken
in; a version goes on sharing it with its image.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.disk_manifest import DEPTH_MAX, SIZE_MAX, DiskManifest, PagedManifest
from acstor.repository.versions import delta_pages
from acstor.repository.versions.delta_manifest import Delta, Said

SHARE_DIVISOR = 8
"""A level is taken in where it has less than so many times the pages of what is above."""
DELTA_PAGES_MIN = 4
"""Pages of every delta: header, summary, index, directory."""


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """One manifest of a chain."""

    name: str
    pages: int


def chain_of(objects: base.ObjectStore, manifest: PagedManifest) -> list[Level]:
    """Return the manifests that a reading looks into, the topmost first."""
    sizes = ((name, objects.size(layout.manifest_key(name))) for name in manifest.names)
    return [Level(name, size // delta_pages.PAGE_SIZE) for name, size in sizes]


def delta_pages_of(said: Mapping[int, Said]) -> int:
    """Return about how many pages a delta has that says this."""
    data = sum(chunk is not None for chunk in said.values())
    spans = len({index // delta_pages.SPAN_CHUNKS for index in said})
    return DELTA_PAGES_MIN + spans + -(-data // delta_pages.PAGE_ENTRIES)


def levels_to_take_in(pages: int, chain: Sequence[Level]) -> int:
    """Return how many of the levels of a chain a new delta takes in, from the top.

    :param pages: of the delta by itself.
    :param chain: of its parent, the topmost level first; the last one is never taken in.
    """
    taken = pages
    for number, level in enumerate(chain[:-1]):
        is_full = number == 0 and len(chain) >= DEPTH_MAX
        if not is_full and taken * SHARE_DIVISOR <= level.pages:
            return number
        taken += level.pages
    return len(chain) - 1


def take_in(
    objects: base.ObjectStore, said: Mapping[int, Said], levels: Sequence[Level]
) -> dict[int, Said]:
    """Return what a delta says together with levels below it, the topmost first.

    :raises NotFoundError: when one is gone.
    :raises CorruptError: when one is damaged.
    """
    result = dict(said)
    for level in levels:
        for index, chunk in read_delta(objects, level.name).said():
            result.setdefault(index, chunk)
    return result


def read_delta(objects: base.ObjectStore, name: str) -> Delta:
    """Return a delta that is stored.

    :raises NotFoundError: when it is gone.
    :raises CorruptError: when it is damaged.
    """
    key = layout.manifest_key(name)
    size = objects.size(key)
    if size > SIZE_MAX:
        raise exception.CorruptError(f"manifest {name} has {size} bytes, more than any has")
    return Delta(name, objects.get_range(key, 0, size))


def without_idle_zeros(said: Mapping[int, Said], below: DiskManifest) -> dict[int, Said]:
    """Return what a delta says without zeros where the manifest below has no data.

    Such zeros come from levels that were taken in; they would be right, and cost a bit each.
    """
    return {index: said[index] for index in said if said[index] or _has_data(below, index)}


def _has_data(manifest: DiskManifest, index: int) -> bool:
    return index < manifest.chunk_count and manifest.has_data(index, index + 1)
