"""Volumes in memory: writes are counted, log objects have the right names and no records."""

import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acstor.dataplane_host.volume_runtime import LogOrigin, VolumeSpec
from acstor.repository import layout
from tests.doubles.manifests import make_manifest
from tests.doubles.memory_preloads import failure

SEAL = b"seal"


class MemoryVolume:
    """One open volume; ``clients``, ``is_wanted`` and what was written are set by the test."""

    def __init__(self, volume: str, size_bytes: int) -> None:
        self.volume = volume
        self.size_bytes = size_bytes
        self.state = "standby"
        self.is_wanted = False
        self.clients = 0
        self.error: str | None = None
        self.listener: socket.socket | None = None
        self.freezes: list[float] = []
        self.limits = (0, 0)
        self.dirty_bytes = 0
        self.is_fold_due = False
        self.may_fold = threading.Event()
        """Set unless folds that are spread over time shall take long."""
        self.may_fold.set()
        self.is_fold_unwanted = threading.Event()
        self.is_folding = False

    def activate(self, spec: VolumeSpec, origin: LogOrigin) -> None:
        assert self.state == "standby"
        self.spec = spec
        self.origin = origin
        self.size_bytes = spec["size_bytes"]
        self.next = spec["next"]
        self.durability = spec["durability"]
        self.limits = (spec["iops"], spec["bytes_per_s"])
        self.manifest_path = spec["manifest_path"]
        self.state = "open"
        self.is_wanted = False

    @property
    def epoch(self) -> int:
        return self.spec["epoch"]

    def write(self, size_bytes: int) -> None:
        """Let a guest write."""
        assert self.state == "open"
        self.dirty_bytes += size_bytes

    def push(self) -> dict[str, Any]:
        if self.state == "fenced":
            raise failure("fenced", f"{self.volume} is fenced")
        if self.dirty_bytes:
            key = layout.log_key(self.volume, self.epoch, self.next)
            if not self.origin.put_if_absent(key, [b"%d bytes" % self.dirty_bytes]):
                self.state = "fenced"
                raise failure("fenced", f"{key} is sealed")
            self.next += 1
            self.dirty_bytes = 0
        return {"epoch": self.epoch, "sequence": self.next - 1}

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

    def volume_seal(self, volume: str, epoch: int, first: int, origin: LogOrigin) -> dict[str, Any]:
        at = first
        while not origin.put_if_absent(layout.log_key(volume, epoch, at), [SEAL]):
            if origin.get(layout.log_key(volume, epoch, at), 100) == SEAL:
                break
            at += 1
        return {"last": at - 1 if at > first else None, "seal": at}

    def volume_open(self, volume: str, spec: VolumeSpec, origin: LogOrigin) -> None:
        if self.fail_next_open is not None:
            kind, self.fail_next_open = self.fail_next_open, None
            raise failure(kind, f"volume {volume} does not open")
        if not os.path.isdir(spec["directory"]):
            raise failure("invalid", f"{spec['directory']} is no directory")
        found = self.volumes.setdefault(volume, MemoryVolume(volume, spec["size_bytes"]))
        found.activate(spec, origin)

    def volume_follow(self, volume: str, size_bytes: int) -> None:
        self.volumes[volume] = MemoryVolume(volume, size_bytes)

    def volume_serve(self, volume: str, listener_fd: int) -> None:
        self._of(volume).stop_serving()
        self._of(volume).listener = socket.socket(fileno=listener_fd)

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
            "error": found.error,
        }
        if found.state == "standby":
            return common
        return common | {
            "epoch": found.epoch,
            "pushed_sequence": found.next - 1,
            "dirty_bytes": found.dirty_bytes,
            "recovery_point_age_s": 1.0 if found.dirty_bytes else 0.0,
            "log_bytes": found.dirty_bytes,
            "origin_log_bytes": 0,
            "origin_log_objects": found.next - found.spec["next"],
            "durability": dict(found.durability),
            "is_fold_due": found.is_fold_due,
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
    ) -> dict[str, Any] | None:
        found = self._of(volume)
        found.is_folding = True
        try:
            while spread and not found.may_fold.is_set():
                if found.is_fold_unwanted.wait(0.01):
                    raise failure("unavailable", "the fold was given up")
        finally:
            found.is_folding = False
        if found.next == found.spec["next"]:
            return None
        manifest = make_manifest(volume, max(1, found.size_bytes // 65536), salt=found.next)
        announce([], manifest.digest)
        content = manifest.to_bytes()
        found.origin.put_if_absent(layout.manifest_key(manifest.digest), [content])
        folded = {"volume": volume, "epoch": found.epoch, "sequence": found.next - 1}
        found.is_fold_due = False
        return {"manifest": manifest.digest, "content": content, "folded": folded}

    def volume_set_fold_unwanted(self, volume: str, is_unwanted: bool) -> None:
        event = self._owned(volume).is_fold_unwanted
        event.set() if is_unwanted else event.clear()

    def volume_set_base(self, volume: str, manifest_path: str) -> None:
        assert os.path.isfile(manifest_path)
        self._of(volume).manifest_path = manifest_path

    def _owned(self, volume: str) -> MemoryVolume:
        found = self._of(volume)
        if found.state == "standby":
            raise failure("fenced", f"volume {volume} is not owned by this host")
        return found

    def _of(self, volume: str) -> MemoryVolume:
        if volume not in self.volumes:
            raise failure("not_found", f"volume {volume} is not open")
        return self.volumes[volume]
