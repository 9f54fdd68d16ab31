"""An origin in the memory of this process: for tests and for trying things out."""

import itertools
import threading
import urllib.parse
from collections.abc import Iterator, Sequence

from acstor import exception
from acstor.origin import base, keys
from acstor.origin.doorbell import MemoryDoorbell


class MemoryOrigin(base.Origin):
    """Keeps objects and refs in dictionaries; nothing survives the process."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}
        self._refs: dict[str, base.Ref] = {}
        self._tokens = itertools.count(1)
        self._doorbell = MemoryDoorbell()

    @classmethod
    def from_url(cls, url: urllib.parse.SplitResult) -> "MemoryOrigin":
        """Open ``memory:``: a new, empty origin each time.

        :raises InvalidError: when the URL names a host or a path.
        """
        if url.netloc or url.path.strip("/"):
            raise exception.InvalidError("a memory origin has neither host nor path")
        return cls()

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        keys.validate_key(key)
        content = b"".join(base.as_views(buffers))
        with self._lock:
            _refuse_folder_conflict(key, self._objects)
            if key in self._objects:
                return False
            self._objects[key] = content
            return True

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        content = self._content(key)
        if offset < 0:
            raise exception.InvalidError(f"offset {offset} is negative")
        part = content[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        return len(self._content(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        keys.validate_prefix(prefix)
        with self._lock:
            found = [key for key in self._objects if key.startswith(prefix)]
        yield from found

    def delete(self, key: str) -> bool:
        """Delete an object."""
        keys.validate_key(key)
        with self._lock:
            return self._objects.pop(key, None) is not None

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        keys.validate_ref_name(name)
        with self._lock:
            return self._refs.get(name)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        keys.validate_ref_name(name)
        base.check_ref_content(name, content)
        with self._lock:
            _refuse_folder_conflict(name, self._refs)
            present = self._refs.get(name)
            if (present.token if present else None) != expected:
                raise exception.ConflictError(f"ref {name} was changed by someone else")
            if content is None:
                self._refs.pop(name, None)
                return None
            token = str(next(self._tokens))
            self._refs[name] = base.Ref(token=token, content=bytes(content))
            return token

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        keys.validate_prefix(prefix)
        with self._lock:
            found = [name for name in self._refs if name.startswith(prefix)]
        yield from found

    def doorbell(self) -> MemoryDoorbell:
        """Return what followers in this process are woken by."""
        return self._doorbell

    def _content(self, key: str) -> bytes:
        keys.validate_key(key)
        with self._lock:
            content = self._objects.get(key)
        if content is None:
            raise exception.NotFoundError(f"the origin has no object {key}")
        return content


def _refuse_folder_conflict(name: str, present: dict[str, bytes] | dict[str, base.Ref]) -> None:
    folder = name
    while "/" in folder:
        folder = folder.rsplit("/", 1)[0]
        if folder in present:
            raise exception.InvalidError(f"{folder} is no folder, so {name} cannot be in it")
