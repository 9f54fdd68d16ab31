"""A runtime in memory: real manifests and rings, a socket pair for the mount, no guest."""

import os
import pathlib
import socket

from acstor.dataplane.runtime import OriginReader
from acstor.dataplane.settings import DataPlaneSettings
from acstor.native import Ring, RingHost, StaleDescriptorError, build_ring, manifest_name
from acstor.repository.disk_manifest import parse_manifest
from testbed.doubles.manifests import CHUNK_SIZE, make_manifest
from testbed.doubles.memory_preloads import MemoryBoots, MemoryPreloads, digests_in, failure
from testbed.doubles.memory_volumes import MemoryVolumes


def write_manifest(path: pathlib.Path, disk_id: str, content: int = 0) -> str:
    path.write_bytes(make_manifest(disk_id, content=content).to_bytes())
    return str(path)


def write_ring(path: pathlib.Path, generation: int) -> str:
    hosts = [RingHost("h1", "10.0.0.1:7420", 100)]
    path.write_bytes(build_ring(hosts, 16, generation=generation).encode())
    return str(path)


__all__ = ["CHUNK_SIZE", "MemoryRuntime", "make_manifest", "write_manifest", "write_ring"]


class MemoryRuntime(MemoryVolumes):
    """Keeps what it is told; ``open_handles`` of an image is set by the test.

    What boots read and how far preloads are is up to the test, through ``preloads`` and ``boots``.
    """

    locked_stores: set[str] = set()  # noqa: RUF012 - the store's lock is the whole machine's

    def __init__(self, settings: DataPlaneSettings, reader: OriginReader | None) -> None:
        super().__init__()
        self.settings = settings
        self.reader = reader
        if settings["store_path"] in self.locked_stores:
            raise failure("unavailable", "the store is open in process 1")
        self.locked_stores.add(settings["store_path"])
        self.images: dict[str, dict[str, object]] = {}
        self.open_handles: dict[str, int] = {}
        self.ring: dict[str, object] | None = None
        self.distance_threshold = settings["distance_threshold"]
        self.generations: dict[str, int] = {}
        """Generations that members of the origin have to have, by name; empty: it is one store."""
        self.is_draining = False
        self.free_rates: list[tuple[int | None, int | None, float]] = []
        """Free rates of the link that were told, in and out, and for how long they hold."""
        self.is_connected = True
        self.longest_request_ms = 0
        self.runtime_late_ms = 0
        self.attach_failures: list[str] = []
        self.read_whole = 0
        """Attached images whose manifest was read and checked, not only its header."""
        self.damaged: set[str] = set()
        self.taken_over: bool | None = None
        self.attached_before_start: list[str] = []
        self.log_lines: list[str] = []
        self.stops = 0
        self.preloads = MemoryPreloads(settings["store_capacity_bytes"])
        self.boots = MemoryBoots()
        self._fuse: int | None = None
        self._listener: socket.socket | None = None

    def start(self, fuse_fd: int, is_new: bool, peer_listener_fd: int | None) -> None:
        if peer_listener_fd is None:
            self._listener = socket.create_server((self.settings["peer_listen_address"], 0))
        else:
            self._listener = socket.socket(fileno=peer_listener_fd)
        self.attached_before_start = sorted(self.images)
        self.taken_over = not is_new
        self._fuse = fuse_fd
        if not pathlib.Path(f"/proc/self/fd/{fuse_fd}").is_socket():
            os.close(fuse_fd)
            error = StaleDescriptorError("not connected")
            error.kind = "unavailable"
            raise error

    def fuse_fd(self) -> int:
        assert self._fuse is not None
        return self._fuse

    def peer_listener_fd(self) -> int:
        assert self._listener is not None
        return self._listener.fileno()

    def peer_address(self) -> str:
        assert self._listener is not None
        port = self._listener.getsockname()[1]
        return f"{self.settings['peer_advertise_address']}:{port}"

    def attach_image(
        self, manifest_path: str, hidden: bool = False, digest: str | None = None
    ) -> dict[str, object]:
        if self.attach_failures:
            raise failure(self.attach_failures.pop(0), "injected")
        self.read_whole += digest is None
        name = manifest_name(manifest_path)
        manifest = parse_manifest(name, pathlib.Path(manifest_path).read_bytes())
        disk_id = manifest.disk_id
        known = self.images.get(disk_id)
        if known is not None and known["manifest"] != manifest.digest:
            raise failure("invalid", "another manifest is attached under this id")
        self.images[disk_id] = {
            "id": disk_id,
            "manifest": manifest.digest,
            "size_bytes": manifest.size_bytes,
            "hidden": hidden,
            "pinned_bytes": 0,
        }
        self.damaged.discard(disk_id)
        self.preloads.attached(manifest)
        self.boots.attached(manifest)
        return self.images[disk_id]

    def damaged_images(self) -> list[str]:
        return sorted(self.damaged & self.images.keys())

    def detach_image(self, disk_id: str) -> str:
        if disk_id not in self.images:
            raise failure("not_found", f"image {disk_id} is not attached")
        if self.open_handles.get(disk_id, 0):
            self.images[disk_id]["hidden"] = True
            return "hidden"
        del self.images[disk_id]
        self.preloads.detached(disk_id)
        self.boots.detached(disk_id)
        return "removed"

    def list_images(self) -> list[dict[str, object]]:
        return [
            {
                **image,
                "open_handles": self.open_handles.get(disk_id, 0),
                "manifest_state": "damaged" if disk_id in self.damaged else "on-disk",
            }
            for disk_id, image in sorted(self.images.items())
        ]

    def pin_image(
        self, disk_id: str, head_bytes: int, tail_bytes: int, timeout: float
    ) -> dict[str, object]:
        if disk_id not in self.images:
            raise failure("not_found", f"image {disk_id} is not attached")
        self.images[disk_id]["pinned_bytes"] = head_bytes + tail_bytes
        return {"pinned_bytes": head_bytes + tail_bytes, "missing_bytes": 0}

    def set_member_generation(self, member: str, generation: int) -> None:
        if member not in self.generations:
            raise failure("not_found", f"the origin has no member {member}")
        self.generations[member] = generation

    def set_drain(self, on: bool) -> None:
        self.is_draining = on

    def set_free_rates(
        self, in_bytes_per_s: int | None, out_bytes_per_s: int | None, valid_s: float
    ) -> None:
        self.free_rates.append((in_bytes_per_s, out_bytes_per_s, valid_s))

    def set_ring(self, path: str) -> dict[str, object]:
        ring = Ring.decode(pathlib.Path(path).read_bytes())
        if self.ring is not None and ring.generation < int(str(self.ring["generation"])):
            raise failure("fenced", "the ring is older than the one in use")
        self.ring = {"generation": ring.generation, "vnodes": ring.vnode_count, "hosts": []}
        return self.ring

    def store_sketch(self, count: int) -> dict[str, object]:
        smallest = [1, 2**64 - 1][:count]
        return {"count": 2, "smallest": smallest}

    def set_distance_threshold(self, hops: int | None) -> None:
        given = self.settings["distance_threshold"] if hops is None else hops
        self.distance_threshold = None if given == 255 else given

    def ring_info(self) -> dict[str, object] | None:
        return self.ring

    def status(self) -> dict[str, object]:
        return {
            "state": "draining" if self.is_draining else "running",
            "ring_generation": self.ring["generation"] if self.ring else None,
            "distance_threshold": self.distance_threshold,
            "images": len(self.images),
            "store": {"capacity_bytes": self.settings["store_capacity_bytes"], "used_bytes": 0},
            "fuse": {
                "connected": self.is_connected,
                "taken_over": bool(self.taken_over),
                "longest_request_ms": self.longest_request_ms,
            },
            "runtime_late_ms": self.runtime_late_ms,
        }

    def metrics_text(self) -> str:
        return f"# TYPE acstor_images gauge\nacstor_images {len(self.images)}\n"

    def trace_start(self, disk_id: str, capacity: int) -> None:
        self.images[disk_id]["trace"] = capacity

    def trace_get(self, disk_id: str) -> str:
        if "trace" not in self.images.get(disk_id, {}):
            raise failure("not_found", f"no trace of {disk_id}")
        return '{"at_us":0,"chunk":0}\n'

    def trace_stop(self, disk_id: str) -> None:
        self.images.get(disk_id, {}).pop("trace", None)

    def working_set(self, disk_id: str) -> dict[str, object]:
        return self.preloads.working_set(disk_id)

    def set_working_set(self, disk_id: str, path: str) -> None:
        self.preloads.set_working_set(disk_id, path)

    def held_chunks(self, disk_id: str) -> dict[str, object]:
        return self.preloads.held_chunks(disk_id)

    def count_chunks(self, path: str) -> dict[str, int]:
        digests = digests_in(path)
        return {"asked": len(digests), "held": len(self.preloads.held.intersection(digests))}

    def discard_chunks(self, path: str) -> dict[str, int]:
        digests = digests_in(path)
        held = self.preloads.held.intersection(digests)
        self.preloads.held -= held - self.preloads.busy
        left = len(held & self.preloads.busy)
        return {"asked": len(digests), "held": len(held), "left": left}

    def recorded_boots(self, acknowledged: int) -> list[dict[str, object]]:
        return self.boots.recorded(acknowledged)

    def set_boot_profile(self, disk_id: str, path: str) -> None:
        self.boots.set_profile(disk_id, path)

    def coverage(self) -> list[dict[str, object]]:
        return self.preloads.coverage()

    def preload_start(
        self, disk_id: str, what: str, rate_bytes_per_s: int, pin: bool
    ) -> dict[str, object]:
        return self.preloads.start(disk_id, what, rate_bytes_per_s, pin)

    def preload_status(self) -> list[dict[str, object]]:
        return self.preloads.status()

    def preload_stop(self, disk_id: str) -> None:
        self.preloads.stop(disk_id)

    def preload_estimate(self, disk_id: str, what: str) -> dict[str, object]:
        return dict(self.preloads.estimate(disk_id, what))

    def set_log_level(self, directives: str) -> None:
        self.log_lines.append(f"INFO acstor_log level {directives}")

    def take_log_lines(self, lines_max: int) -> list[str]:
        taken, self.log_lines = self.log_lines[:lines_max], self.log_lines[lines_max:]
        return taken

    def stop(self, timeout: float) -> None:
        self.stops += 1
        self.locked_stores.discard(self.settings["store_path"])
        for volume in self.volume_list():
            self.volume_close(volume)
        if self._listener is not None:
            self._listener.close()
        if self._fuse is not None and not self.is_stale():
            os.close(self._fuse)
        self._fuse = None

    def is_stale(self) -> bool:
        return not pathlib.Path(f"/proc/self/fd/{self._fuse}").exists()
