"""Marking of a copy as a collection does it: what its refs name is there, and the rest may go."""

from collections.abc import Iterator

from acstor import exception
from acstor.repository import layout
from acstor.repository.gc.marking import Marked, Marker
from acstor.repository.images import usage
from acstor.repository.repository import Repository
from acstor.repository.volumes import record_refs


class MarkedCopy:
    """The copy at a destination that nobody else changes.

    :param repository: at the destination; its object ``format`` need not be there.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._origin = repository.origin
        self._present = dict(self._list())
        self._marked: Marked | None = None

    def _list(self) -> Iterator[tuple[str, str]]:
        for prefix in (layout.PACK_PREFIX, layout.MANIFEST_PREFIX, layout.MOVED_PREFIX):
            for key in self._origin.list(prefix):
                name = layout.name_of(key)
                if name is not None:
                    yield layout.moved_name(name) if prefix == layout.MOVED_PREFIX else name, key

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield name and message of what the refs name and the copy does not have."""
        try:
            self._marked = Marker(self._repository, present=self._present).mark()
        except (exception.CorruptError, exception.UnsupportedError) as error:
            yield "marking", error.message
            return
        missing = self._marked.names - self._present.keys()
        if missing:
            missing -= self._absent()
        for name in sorted(missing):
            yield name, "a pack or manifest of this name is missing in the copy"

    def _absent(self) -> set[str]:
        """Return the names of what need not be there.

        That is what volumes will name next, and what hosts have attached although it is gone.
        """
        found: set[str] = set()
        for record in usage.read_all(self._origin).values():
            found.update(record.manifests)
        for volume_id in record_refs.volume_ids(self._origin):
            volume = record_refs.find_volume(self._origin, volume_id)
            pending = None if volume is None else volume.record.pending
            if pending is not None:
                found.update(pending.packs)
                if pending.disk.manifest is not None:
                    found.add(pending.disk.manifest)
        return found

    def remove_unneeded(self) -> int:
        """Delete what the refs do not name; return how many objects that were.

        :raises InternalError: when it was not marked.
        """
        marked = self._marked
        if marked is None:
            raise exception.InternalError("a copy that was not marked is not pruned")
        unneeded = [key for name, key in self._present.items() if name not in marked.names]
        for key in self._origin.list(layout.VOLUME_LOG_PREFIX):
            parsed = layout.parse_log_key(key)
            if parsed is not None and not marked.logs.covers(*parsed):
                unneeded.append(key)
        return sum(self._origin.delete(key) for key in sorted(unneeded))
