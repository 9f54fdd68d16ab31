"""Boots and preloads in memory; a guest boots, and a preload goes on, when the test says so."""

import itertools
import pathlib
import time
from collections.abc import Sequence

from acstor import exception
from acstor.control import rank_list
from acstor.control.chunk_set import ChunkSet
from acstor.control.protocol import PreloadState, PreloadWhat
from acstor.control.rank_list import Order
from acstor.native import DataPlaneError
from acstor.repository.disk_manifest import DiskManifest

DIGEST_BYTES = 32


def failure(kind: str, message: str) -> DataPlaneError:
    error = DataPlaneError(message)
    error.kind = kind
    return error


def digests_in(path: str) -> list[bytes]:
    content = pathlib.Path(path).read_bytes()
    if len(content) % DIGEST_BYTES:
        raise failure("invalid", f"{path} has no whole number of digests")
    return [content[at : at + DIGEST_BYTES] for at in range(0, len(content), DIGEST_BYTES)]


class _Job:
    def __init__(self, what: str, rate: int, pin: bool, total: int, present: int) -> None:
        self.what = what
        self.rate = rate
        self.pin = pin
        self.state = PreloadState.RUNNING
        self.total = total
        self.present = present
        self.fetched = 0
        self.error: str | None = None
        self.started_at = time.time()

    def status(self, disk_id: str) -> dict[str, object]:
        return {
            "image": disk_id,
            "what": self.what,
            "pin": self.pin,
            "state": str(self.state),
            "is_hint": False,
            "total_bytes": self.total,
            "present_bytes": self.present,
            "fetched_bytes": self.fetched,
            "remaining_bytes": self.total - self.present - self.fetched,
            "rate_bytes_per_s": self.rate,
            "recent_bytes_per_s": 0,
            "started_at": self.started_at,
            "error": self.error,
        }


class MemoryPreloads:
    """Runtime in memory, as far as boots and preloads go.

    :param capacity_bytes: of the chunk store; ``held`` is what is in it, by digest.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._manifests: dict[str, DiskManifest] = {}
        self._read: dict[str, set[int]] = {}
        self._boots: dict[str, int] = {}
        self._wanted: dict[str, set[int]] = {}
        self._jobs: dict[str, _Job] = {}
        self.held: set[bytes] = set()
        self.busy: set[bytes] = set()
        """Digests of chunks that somebody reads: they stay, whoever discards them."""

    # What a test does

    def record_boot(self, disk_id: str, chunks: set[int]) -> None:
        """Let a guest boot and read some chunks, which the host then holds."""
        self._boots[disk_id] = self._boots.get(disk_id, 0) + 1
        self._read.setdefault(disk_id, set()).update(chunks)
        self.held |= self._digests(disk_id, chunks)

    def fetch(self, disk_id: str, chunks: int) -> None:
        """Let a preload bring so many chunks; it is done with the last."""
        job = self._jobs[disk_id]
        missing = sorted(self._digests(disk_id, self._chunks(disk_id, job.what)) - self.held)
        self.held.update(missing[:chunks])
        job.fetched += len(missing[:chunks]) * self._manifests[disk_id].chunk_size
        if not missing[chunks:]:
            job.state = PreloadState.DONE

    def set_state(self, disk_id: str, state: PreloadState, error: str | None = None) -> None:
        """Put a preload into a state."""
        self._jobs[disk_id].state = state
        self._jobs[disk_id].error = error

    # What the runtime asks

    def attached(self, manifest: DiskManifest) -> None:
        self._manifests[manifest.disk_id] = manifest

    def detached(self, disk_id: str) -> None:
        for known in (self._manifests, self._read, self._boots, self._wanted, self._jobs):
            known.pop(disk_id, None)

    def working_set(self, disk_id: str) -> dict[str, object]:
        count = self._manifest(disk_id).chunk_count
        return {
            "boots": self._boots.get(disk_id, 0),
            "chunk_count": count,
            "bitmap": ChunkSet.of(self._read.get(disk_id, ()), count).to_bytes(),
        }

    def set_working_set(self, disk_id: str, path: str) -> None:
        count = self._manifest(disk_id).chunk_count
        try:
            wanted = ChunkSet.from_bytes(pathlib.Path(path).read_bytes(), count)
        except exception.CorruptError as error:
            raise failure("invalid", f"{path}: {error}") from error
        self._wanted[disk_id] = set(wanted)

    def held_chunks(self, disk_id: str) -> dict[str, object]:
        manifest = self._manifest(disk_id)
        count = manifest.chunk_count
        held = {index for index, entry in manifest.entries() if entry.digest in self.held}
        return {"chunk_count": count, "bitmap": ChunkSet.of(held, count).to_bytes()}

    def coverage(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for disk_id, chunks in sorted(self._wanted.items()):
            wanted = self._digests(disk_id, chunks)
            present = len(wanted & self.held)
            found.append(
                {"image": disk_id, "wanted_chunks": len(wanted), "present_chunks": present}
            )
        return found

    def start(self, disk_id: str, what: str, rate: int, pin: bool) -> dict[str, object]:
        estimate = self.estimate(disk_id, what)
        job = self._jobs.get(disk_id)
        if job and not job.state.has_ended and (job.what, job.pin) == (what, pin):
            job.rate = rate
            return job.status(disk_id)
        total, missing = estimate["total_bytes"], estimate["missing_bytes"]
        job = self._jobs[disk_id] = _Job(what, rate, pin, total, total - missing)
        room = estimate["free_bytes"] + estimate["evictable_bytes"]
        if missing > room:
            job.state = PreloadState.FAILED
            job.error = f"{missing} bytes are missing, the chunk store has room for {room}"
        elif not missing:
            job.state = PreloadState.DONE
        return job.status(disk_id)

    def status(self) -> list[dict[str, object]]:
        return [job.status(disk_id) for disk_id, job in sorted(self._jobs.items())]

    def stop(self, disk_id: str) -> None:
        job = self._jobs.get(disk_id)
        if job is not None and not job.state.has_ended:
            job.state = PreloadState.STOPPED

    def estimate(self, disk_id: str, what: str) -> dict[str, int]:
        chunk_size = self._manifest(disk_id).chunk_size
        wanted = self._digests(disk_id, self._chunks(disk_id, what))
        used = len(self.held) * chunk_size
        return {
            "total_bytes": len(wanted) * chunk_size,
            "missing_bytes": len(wanted - self.held) * chunk_size,
            "free_bytes": self._capacity - used,
            "evictable_bytes": len(self.held - wanted) * chunk_size,
            "pinnable_bytes": self._capacity // 4,
        }

    def _manifest(self, disk_id: str) -> DiskManifest:
        if disk_id not in self._manifests:
            raise failure("not_found", f"image {disk_id} is not attached")
        return self._manifests[disk_id]

    def _chunks(self, disk_id: str, what: str) -> set[int]:
        if what == PreloadWhat.FULL:
            return set(range(self._manifest(disk_id).chunk_count))
        if disk_id not in self._wanted:
            raise failure("not_found", f"no working set of image {disk_id} is known")
        return self._wanted[disk_id]

    def _digests(self, disk_id: str, chunks: set[int]) -> set[bytes]:
        manifest = self._manifest(disk_id)
        entries = (manifest.entry(chunk) for chunk in chunks)
        return {entry[0] for entry in entries if entry is not None}


class MemoryBoots:
    """Runtime in memory, as far as recorded boots and boot profiles go."""

    def __init__(self) -> None:
        self._chunk_counts: dict[str, int] = {}
        self._numbers = itertools.count(int(time.time() * 1e6))
        self._recorded: list[dict[str, object]] = []
        self.profiles: dict[str, tuple[Order, ...]] = {}
        """By image, the orders that were set."""

    def record(self, disk_id: str, order: Sequence[int]) -> None:
        """Let a guest boot that reads some chunks in an order."""
        self._recorded.append(
            {
                "number": next(self._numbers),
                "image": disk_id,
                "chunk_count": self._chunk_counts[disk_id],
                "order": rank_list.encode([order]),
            }
        )

    def tell_again(self, boots: Sequence[dict[str, object]]) -> None:
        """Tell boots that were acknowledged, as where that was lost."""
        self._recorded = [*boots, *self._recorded]

    # What the runtime asks

    def attached(self, manifest: DiskManifest) -> None:
        self._chunk_counts[manifest.disk_id] = manifest.chunk_count

    def detached(self, disk_id: str) -> None:
        self._chunk_counts.pop(disk_id, None)
        self.profiles.pop(disk_id, None)

    def recorded(self, acknowledged: int) -> list[dict[str, object]]:
        self._recorded = [
            boot for boot in self._recorded if int(str(boot["number"])) > acknowledged
        ]
        return list(self._recorded)

    def set_profile(self, disk_id: str, path: str) -> None:
        if disk_id not in self._chunk_counts:
            raise failure("not_found", f"image {disk_id} is not attached")
        try:
            orders = rank_list.decode(pathlib.Path(path).read_bytes(), self._chunk_counts[disk_id])
        except exception.CorruptError as error:
            raise failure("invalid", f"{path}: {error}") from error
        if orders:
            self.profiles[disk_id] = orders
        else:
            self.profiles.pop(disk_id, None)
