"""Objects that manifests need, also where a compaction has moved packs of theirs (RFD 23)."""

import functools
from collections.abc import Sequence

from acstor import native
from acstor.repository import layout, moved_packs
from acstor.repository.repository import Repository

_LISTS_MAX = 64
"""Lists of moved chunks that are remembered."""


class ManifestKeys:
    """Keys of the objects that manifests need.

    :param repository: from which collections delete nothing meanwhile.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._origin = repository.origin
        self._known: dict[str, Sequence[str]] = {}
        self._find_moved = functools.lru_cache(_LISTS_MAX)(self._load_moved)

    def of(self, digest: str) -> Sequence[str]:
        """Return the keys of a manifest, its bases, and what they need.

        :raises NotFoundError: when it is gone.
        :raises CorruptError: when it, or the list of what was moved, is damaged.
        :raises UnsupportedError: when a newer release wrote one of them.
        """
        known = self._known.get(digest)
        if known is None:
            known = self._known[digest] = self._find(digest)
        return known

    def _find(self, digest: str) -> Sequence[str]:
        manifest = self._repository.load_manifest(digest)
        references = manifest.references()
        if self._moved.isdisjoint(name.hex() for name in references):
            return tuple(references.values())
        needed = moved_packs.needed_of(manifest)
        followed = moved_packs.follow(needed, self._find_moved, self._is_there)
        keys = {key for name, key in references.items() if name not in followed.served}
        keys.update(layout.pack_key(pack.hex()) for pack in followed.needed)
        keys.update(layout.moved_key(pack.hex()) for pack in followed.met)
        return tuple(sorted(keys))

    @functools.cached_property
    def _moved(self) -> frozenset[str]:
        """Packs that were moved; what is moved later is still where it was."""
        return frozenset(moved_packs.list_moved(self._origin))

    def _load_moved(self, pack: bytes) -> native.MovedPack | None:
        if pack.hex() not in self._moved:
            return None
        return moved_packs.find_moved(self._origin, pack)

    def _is_there(self, pack: bytes) -> bool:
        return self._origin.exists(layout.pack_key(pack.hex()))
