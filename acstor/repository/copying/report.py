"""Report of a copy."""

import dataclasses
import threading


@dataclasses.dataclass(frozen=True, slots=True)
class CopyDamage:
    """One thing that could not be copied as it should be."""

    name: str
    """Key of the object, or name of the ref."""
    what: str
    """Message: what is wrong."""


@dataclasses.dataclass(slots=True)
class CopyReport:
    """Report of a copy; counted from several threads."""

    repository: str = ""
    """UUID of the repository."""
    images: int = 0
    volumes: int = 0
    snapshots: int = 0
    versions: int = 0
    refs: int = 0
    """Refs of the source that the copy has as they were."""
    refs_written: int = 0
    """Refs that the destination did not have so before."""
    refs_left: int = 0
    """Refs of the source that the copy does not have because an object of theirs is damaged."""
    refs_read_again: int = 0
    """Refs that were read anew because objects of theirs were gone, once for each time."""
    refs_unknown: list[str] = dataclasses.field(default_factory=list)
    """Refs of kinds that this release does not know."""
    refs_removed: int = 0
    """Refs that the source has no more."""
    objects: int = 0
    """Objects that the refs name."""
    bytes: int = 0
    """Bytes of these."""
    objects_copied: int = 0
    bytes_copied: int = 0
    objects_present: int = 0
    """Objects that the destination had already."""
    objects_replaced: int = 0
    """Objects of the destination that were not those of the source."""
    objects_verified: int = 0
    """Objects that were read back and compared with their digests."""
    objects_removed: int = 0
    """Objects of the destination that nothing names any more."""
    damages: dict[str, CopyDamage] = dataclasses.field(default_factory=dict)
    """By name."""
    is_complete: bool = False
    """True if the destination can be opened as a repository."""
    seconds: float = 0.0
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    def count(self, **counts: int) -> None:
        """Add to counters."""
        with self._lock:
            for name, number in counts.items():
                setattr(self, name, getattr(self, name) + number)

    def add_damage(self, name: str, what: str) -> None:
        """Note damage; the first message about a name stays."""
        with self._lock:
            self.damages.setdefault(name, CopyDamage(name, what))
