"""Volumes in memory: what guests write are words, and log objects hold words.

The local log is a file in the volume's directory: a process that follows another finds it there.
"""

import itertools
import json
import os
import pathlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from acstor.dataplane.volumes.runtime import LogOrigin, VolumeSpec
from acstor.native import manifest_name
from acstor.repository import layout
from acstor.repository.volumes.record import DiskState
from testbed.doubles.manifests import make_manifest
from testbed.doubles.memory_preloads import failure

SEAL = b"seal"
LOG = "checkpoint"
"""Name of the file that stands for a local log."""
_OBJECT_BYTES_MAX = 1 << 20
_folded: dict[str, list[str]] = {}
"""Manifest of a fold -> the words that its chunks hold."""
_numbers = itertools.count(1)


def merged(*parts: Iterable[str]) -> list[str]:
    """Return words in the order in which they come first; replaying one twice changes nothing."""
    return list(dict.fromkeys(itertools.chain(*parts)))


def words_of(origin: LogOrigin, disk: DiskState) -> list[str]:
    """Return the words of a disk that is in the origin.

    :raises NotFoundError: when a log object is missing.
    """
    parts = [_folded.get(disk.manifest or "", [])]
    for logs in disk.logs:
        for sequence in range(logs.first, logs.last + 1):
            parts.append(
                origin.get(logs.key(sequence), _OBJECT_BYTES_MAX).decode(errors="ignore").split()
            )
    return merged(*parts)


def check_manifest(path: str, name: str | None) -> None:
    """Refuse a file that is not the manifest of that name, as the runtime does."""
    found = manifest_name(path)
    if found != name:
        raise failure("corrupt", f"{path} is manifest {found} and not {name}")


class MemoryVolume:
    """One open volume; ``clients``, ``is_wanted`` and what was written are set by the test."""

    def __init__(self, volume: str, size_bytes: int) -> None:
        self.volume = volume
        self.size_bytes = size_bytes
        self.state = "standby"
        self.is_wanted = False
        self.head = b""
        """Content of its first sectors."""
        self.head_looks = 0
        """Looks at the owner's first sectors that were begun."""
        self.is_head_wanted = False
        self.is_head_given_up = False
        self.head_answer: bytes | None = None
        self.clients = 0
        self.error: str | None = None
        self.listener: socket.socket | None = None
        self.token: str | None = None
        """Token that clients must know."""
        self.freezes: list[float] = []
        self.limits = (0, 0)
        self.dirty_bytes = 0
        self.is_fold_due = False
        self.manifest_path: str | None = None
        self.manifest: str | None = None
        """Digest of the manifest below the log."""
        self.is_manifest_damaged = False
        self.pushed_ahead = 0
        self.is_log_long = False
        self.may_fold = threading.Event()
        """Set unless folds that are spread over time shall take long."""
        self.may_fold.set()
        self.is_fold_unwanted = threading.Event()
        self.is_folding = False
        self.fold_scope: str | None = None
        self.is_fold_paged: bool | None = None
        """With which the last fold was asked for."""
        self.overlay: list[str] = []
        """Writes in the local log, the oldest first."""
        self.dirty: list[str] = []
        """Writes of it that the origin lacks."""
        self.under_way: list[str] = []
        """Writes that were tried to be stored last, without an answer."""
        self.next: int | None = None
        """Free slot of the log; None until the origin was asked after a restart."""
        self.folded: tuple[str, list[str]] | None = None
        """Manifest and words of a fold that is not installed here."""
        self.on_fold: Callable[[], object] = lambda: None
        """Action while a fold reads."""

    def activate(self, spec: VolumeSpec, origin: LogOrigin) -> None:
        assert self.state == "standby"
        if spec["manifest_path"] is not None:
            check_manifest(spec["manifest_path"], spec["manifest"])
        log = pathlib.Path(spec["directory"], LOG)
        epoch = spec["epoch"]
        if log.exists():
            fields = json.loads(log.read_text())
            epoch, self.dirty_bytes = fields["epoch"], fields["dirty_bytes"]
            self.overlay, self.dirty = fields["overlay"], fields["dirty"]
            # A log that is adopted is one of another epoch: nothing of this one is stored yet.
            self.next = None if epoch == spec["epoch"] else spec["next"]
        else:
            logs = DiskState.from_fields({"manifest": None, "logs": list(spec["logs"])})
            self.overlay, self.dirty, self.dirty_bytes = words_of(origin, logs), [], 0
            self.next = spec["next"]
        if epoch not in {spec["epoch"], spec["adopts"]}:
            raise failure("invalid", f"the local log is of epoch {epoch}")
        self.under_way = []
        self.spec = spec
        self.origin = origin
        self.size_bytes = spec["size_bytes"]
        self.durability = spec["durability"]
        self.limits = (spec["iops"], spec["bytes_per_s"])
        self.manifest_path, self.manifest = spec["manifest_path"], spec["manifest"]
        self.state = "open"
        self.is_wanted = False
        self._log = log
        self._save()

    def fail_sync(self) -> None:
        """Have the disk lose what was written last; nothing is pushed before it is opened anew."""
        self.overlay.pop()
        self.dirty.pop()
        self.state = "failed"
        self._save()

    def _save(self) -> None:
        fields = {
            "epoch": self.epoch,
            "dirty_bytes": self.dirty_bytes,
            "overlay": self.overlay,
            "dirty": self.dirty,
        }
        self._log.write_text(json.dumps(fields))

    @property
    def words(self) -> list[str]:
        """Content as a guest reads it, word by word."""
        return merged(_folded.get(self.manifest or "", []), self.overlay)

    @property
    def epoch(self) -> int:
        return self.spec["epoch"]

    def write(self, size_bytes: int) -> str:
        """Let a guest write and flush; return the word that it wrote."""
        assert self.state == "open"
        word = f"word-{next(_numbers)}"
        self.overlay.append(word)
        self.dirty.append(word)
        self.dirty_bytes += size_bytes
        self._save()
        return word

    def find_next(self) -> int:
        """Return the free slot: behind all others, from the first that may be used on."""
        if self.next is None:
            folder = layout.log_folder(self.volume, self.epoch)
            parsed = (layout.parse_log_key(key) for key in self.origin.list(folder))
            slots = [one[2] for one in parsed if one is not None]
            last = max([self.spec["next"] - 1, *slots])
            if last in slots and self._object(last) == SEAL:
                self.state = "fenced"
                raise failure("fenced", f"epoch {self.epoch} of {self.volume} is sealed")
            self.next = last + 1
        return self.next

    def _object(self, slot: int) -> bytes:
        return self.origin.get(layout.log_key(self.volume, self.epoch, slot), _OBJECT_BYTES_MAX)

    def push(self) -> dict[str, Any]:
        if self.state == "fenced":
            raise failure("fenced", f"{self.volume} is fenced")
        if self.state == "failed":
            raise failure("unavailable", f"the local disk failed to sync the log of {self.volume}")
        slot = self.find_next()
        while self.dirty:
            # What was tried there before goes into the slot, whatever was written since.
            self.under_way = self.under_way or list(self.dirty)
            key = layout.log_key(self.volume, self.epoch, slot)
            content = self.object_of()
            if not self.origin.put_if_absent(key, [content]) and self._object(slot) != content:
                self.state = "fenced"
                raise failure("fenced", f"{key} is sealed")
            self.next = slot = slot + 1
            self.dirty = [word for word in self.dirty if word not in self.under_way]
            self.dirty_bytes, self.under_way = self.dirty_bytes if self.dirty else 0, []
            self._save()
        return {"epoch": self.epoch, "sequence": self.find_next() - 1}

    def fold(self, announce: Callable[[Sequence[str], str | None], object]) -> dict[str, Any]:
        """Make a manifest of the log, which may hold what is written meanwhile as well."""
        last = self.push()
        self.on_fold()
        words = self.words
        manifest = make_manifest(self.volume, max(1, self.size_bytes // 65536), salt=next(_numbers))
        announce([], manifest.digest)
        content = manifest.to_bytes()
        self.origin.put_if_absent(layout.manifest_key(manifest.digest), [content])
        _folded[manifest.digest] = words
        self.push()
        self.folded = manifest.digest, words
        return {
            "manifest": manifest.digest,
            "content": content,
            "folded": {"volume": self.volume, **last},
        }

    def set_base(self, manifest_path: str, manifest: str) -> None:
        """Put a manifest below the log; what a fold of this process has put there goes."""
        check_manifest(manifest_path, manifest)
        self.manifest_path, self.manifest = manifest_path, manifest
        self.is_manifest_damaged = False
        if self.folded is not None and self.folded[0] == self.manifest:
            self.overlay = [word for word in self.overlay if word not in self.folded[1]]
            self.folded = None
            self._save()

    def object_of(self) -> bytes:
        """Return the next log object."""
        return " ".join(self.under_way).encode()

    def stop_serving(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None


class MemoryVolumes:
    """The volumes of a runtime in memory."""

    def __init__(self) -> None:
        self.volumes: dict[str, MemoryVolume] = {}
        self.fail_next_open: str | None = None
        """Kind of the error with which the next opening fails."""
        self.fail_every_open: str | None = None
        """The same of each opening."""
        self.may_open = threading.Event()
        """Set unless openings shall take long: the log lies on a slow disk."""
        self.may_open.set()
        self.is_opening = threading.Event()
        """Set when one was begun."""

    def volume_seal(self, volume: str, epoch: int, first: int, origin: LogOrigin) -> dict[str, Any]:
        at = first
        while not origin.put_if_absent(layout.log_key(volume, epoch, at), [SEAL]):
            if origin.get(layout.log_key(volume, epoch, at), 1 << 20) == SEAL:
                break
            at += 1
        return {"last": at - 1 if at > first else None, "seal": at}

    def volume_open(self, volume: str, spec: VolumeSpec, origin: LogOrigin) -> None:
        self.is_opening.set()
        self.may_open.wait()
        if self.fail_next_open is not None:
            kind, self.fail_next_open = self.fail_next_open, None
            raise failure(kind, f"volume {volume} does not open")
        if self.fail_every_open is not None:
            raise failure(self.fail_every_open, f"volume {volume} does not open")
        if not os.path.isdir(spec["directory"]):
            raise failure("invalid", f"{spec['directory']} is no directory")
        found = self.volumes.setdefault(volume, MemoryVolume(volume, spec["size_bytes"]))
        found.activate(spec, origin)

    def volume_follow(self, volume: str, size_bytes: int) -> None:
        self.volumes[volume] = MemoryVolume(volume, size_bytes)

    def volume_serve(self, volume: str, listener_fd: int, token: str) -> None:
        self._of(volume).stop_serving()
        self._of(volume).listener = socket.socket(fileno=listener_fd)
        self._of(volume).token = token

    def volume_unserve(self, volume: str, force: bool) -> None:
        found = self._of(volume)
        if found.clients and not force:
            raise failure("invalid", f"volume {volume} is in use by {found.clients} clients")
        found.clients = 0
        found.stop_serving()

    def volume_release(self, volume: str) -> dict[str, Any]:
        last = self._owned(volume).push()
        self._of(volume).state = "standby"
        return last

    def volume_push_ahead(self, volume: str) -> bool:
        found = self._owned(volume)
        found.pushed_ahead += 1
        found.push()
        return found.is_log_long

    def volume_begin_head(self, volume: str) -> int | None:
        found = self._of(volume)
        if not found.is_head_wanted:
            return None
        found.head_looks += 1
        return found.head_looks

    def volume_answer_head(self, volume: str, look: int, content: bytes) -> None:
        assert look == self._of(volume).head_looks
        self._of(volume).head_answer = content
        self._of(volume).is_head_wanted = False

    def volume_give_up_head(self, volume: str) -> None:
        self._of(volume).is_head_given_up = True
        self._of(volume).is_head_wanted = False
        self._of(volume).is_wanted = True

    def volume_read_head(self, volume: str) -> bytes:
        return self._owned(volume).head

    def volume_close(self, volume: str) -> None:
        self._of(volume).stop_serving()
        del self.volumes[volume]

    def volume_fence(self, volume: str, why: str) -> None:
        self._of(volume).state = "fenced"
        self._of(volume).error = why

    def volume_list(self) -> list[str]:
        return sorted(self.volumes)

    def volume_status(self, volume: str) -> dict[str, Any]:
        found = self._of(volume)
        common = {
            "state": found.state,
            "epoch": None,
            "size_bytes": found.size_bytes,
            "clients": found.clients,
            "iops": found.limits[0],
            "bytes_per_s": found.limits[1],
            "is_wanted": found.is_wanted,
            "is_head_wanted": found.is_head_wanted,
            "error": found.error,
        }
        if found.state == "standby":
            return common
        return common | {
            "epoch": found.epoch,
            "pushed_sequence": None if found.next is None else found.next - 1,
            "dirty_bytes": found.dirty_bytes,
            "recovery_point_age_s": 1.0 if found.dirty_bytes else 0.0,
            "recovery_point_late_s": 0.0,
            "held_back_s_per_mib": 0.0,
            "waiting_requests": 0,
            "waiting_s": 0.0,
            "log_bytes": found.dirty_bytes,
            "origin_log_bytes": 0,
            "origin_log_objects": (found.next or found.spec["next"]) - found.spec["next"],
            "durability": dict(found.durability),
            "manifest": found.manifest,
            "is_fold_due": found.is_fold_due,
            "is_manifest_damaged": found.is_manifest_damaged,
        }

    def volume_push(self, volume: str) -> dict[str, Any]:
        return self._owned(volume).push()

    def volume_freeze(self, volume: str, timeout: float) -> None:
        self._of(volume).state = "frozen"
        self._of(volume).freezes.append(timeout)

    def volume_thaw(self, volume: str) -> None:
        self._of(volume).state = "open"

    def volume_resize(self, volume: str, size_bytes: int) -> None:
        found = self._of(volume)
        if size_bytes < found.size_bytes:
            raise failure("invalid", f"volume {volume} has {found.size_bytes} bytes already")
        found.size_bytes = size_bytes
        found.clients = 0

    def volume_set_durability(self, volume: str, durability: Mapping[str, Any]) -> None:
        self._of(volume).durability = dict(durability)

    def volume_set_limits(self, volume: str, iops: int, bytes_per_s: int) -> None:
        self._of(volume).limits = (iops, bytes_per_s)

    def volume_fold(
        self,
        volume: str,
        announce: Callable[[Sequence[str], str | None], object],
        spread: float,
        scope: str | None,
        is_paged: bool,
    ) -> dict[str, Any] | None:
        found = self._of(volume)
        found.fold_scope, found.is_fold_paged = scope, is_paged
        found.is_folding = True
        try:
            while spread and not found.may_fold.is_set():
                if found.is_fold_unwanted.wait(0.01):
                    raise failure("unavailable", "the fold was given up")
        finally:
            found.is_folding = False
        if found.find_next() == found.spec["next"]:
            return None
        folded = found.fold(announce)
        found.is_fold_due = False
        return folded

    def volume_set_fold_unwanted(self, volume: str, is_unwanted: bool) -> None:
        event = self._owned(volume).is_fold_unwanted
        event.set() if is_unwanted else event.clear()

    def volume_set_base(self, volume: str, manifest_path: str, manifest: str) -> None:
        self._owned(volume).set_base(manifest_path, manifest)

    def _owned(self, volume: str) -> MemoryVolume:
        found = self._of(volume)
        if found.state == "standby":
            raise failure("fenced", f"volume {volume} is not owned by this host")
        return found

    def _of(self, volume: str) -> MemoryVolume:
        if volume not in self.volumes:
            raise failure("not_found", f"volume {volume} is not open")
        return self.volumes[volume]
