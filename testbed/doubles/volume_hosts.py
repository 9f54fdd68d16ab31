"""Hosts that have volumes open, as the Cinder driver sees them, with real records."""

import threading
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import VolumeStore


class OpenVolume:
    """A volume that a host owns."""

    def __init__(self, host: str, epoch: int, first: int) -> None:
        self.host = host
        self.epoch = epoch
        self.first = first
        self.next = first
        self.unpushed = 0
        self.holders: set[str] = set()
        self.size_bytes = 0
        self.durability: object = None
        self.limits: tuple[int, int] | None = None

    @property
    def is_frozen(self) -> bool:
        """True if somebody holds its writes."""
        return bool(self.holders)


class MemoryVolumeHosts:
    """Answers what agents answer; implements :class:`acstor.drivers.cinder.hosts.Hosts`.

    What guests write is one log object per write, stored when the volume is pushed.
    """

    def __init__(self, repository: Repository) -> None:
        self._origin = repository.origin
        self._store = VolumeStore(repository)
        self._lock = threading.Lock()
        self.open_volumes: dict[str, OpenVolume] = {}
        self.down: set[str] = set()
        """Hosts whose agents do not answer."""
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.on_call: Callable[[str, str], None] = lambda method, volume: None
        """Called before each call is answered."""

    def open(self, volume: str, host: str) -> None:
        """Have a host open a volume, as its data plane does."""
        record = self._store.acquire(volume, host).after
        if record.unsealed is not None:
            seal = record.next
            self._put(volume, record.unsealed, seal)
            record = self._store.record_takeover(
                volume, host, record.epoch, last=seal - 1, seal=seal
            ).after
        opened = OpenVolume(host, record.epoch, record.next)
        opened.size_bytes = record.size_bytes
        self.open_volumes[volume] = opened

    def write(self, volume: str, count: int = 1) -> None:
        """Have the guest write; a frozen volume takes nothing."""
        opened = self.open_volumes[volume]
        assert not opened.is_frozen
        opened.unpushed += count

    def release(self, volume: str) -> None:
        """Have the host close a volume."""
        opened = self.open_volumes.pop(volume)
        self._push(volume, opened)
        last = opened.next - 1 if opened.next > opened.first else None
        self._store.release(volume, opened.host, opened.epoch, last)

    def call(
        self, host: str, method: str, *, timeout: float | None = None, **arguments: Any
    ) -> Any:
        """Answer one call."""
        with self._lock:
            self.calls.append((host, method, arguments))
        if host in self.down:
            raise exception.UnavailableError(
                f"no agent listens on host {host}", hint="check that acstor-agent runs there"
            )
        volume = arguments.pop("volume")
        self.on_call(method, volume)
        opened = self.open_volumes.get(volume)
        if opened is None or opened.host != host:
            raise exception.NotFoundError(f"volume {volume} is not open here")
        return getattr(self, f"_{method.removeprefix('volume_')}")(volume, opened, **arguments)

    def methods(self) -> list[str]:
        """Return the methods that were called, in their order."""
        return [method for _, method, _ in self.calls]

    def _status(self, volume: str, opened: OpenVolume) -> dict[str, Any]:
        return {"epoch": opened.epoch, "size_bytes": opened.size_bytes, "role": "owner"}

    def _push(self, volume: str, opened: OpenVolume) -> Any:
        for _ in range(opened.unpushed):
            self._put(volume, opened.epoch, opened.next)
            opened.next += 1
        opened.unpushed = 0
        record = self._store.get(volume).record
        state = record.pushed_disk(volume, opened.next - 1)
        return {
            "epoch": opened.epoch,
            "sequence": opened.next - 1,
            "size_bytes": opened.size_bytes,
            **state.to_fields(),
        }

    def _freeze(self, volume: str, opened: OpenVolume, timeout_s: float, holder: str) -> object:
        assert 0 < timeout_s <= 60
        opened.holders.add(holder)
        return {"done": True}

    def _thaw(self, volume: str, opened: OpenVolume, holder: str) -> object:
        was_held = holder in opened.holders
        opened.holders.discard(holder)
        return {"done": True, "was_held": was_held}

    def _resize(self, volume: str, opened: OpenVolume, size_bytes: int) -> object:
        opened.size_bytes = size_bytes
        return {"done": True}

    def _set_durability(self, volume: str, opened: OpenVolume, durability: object) -> object:
        opened.durability = durability
        return {"done": True}

    def _set_limits(self, volume: str, opened: OpenVolume, iops: int, bytes_per_s: int) -> object:
        opened.limits = (iops, bytes_per_s)
        return {"done": True}

    def _put(self, volume: str, epoch: int, sequence: int) -> None:
        self._origin.put_if_absent(layout.log_key(volume, epoch, sequence), [b"log object"])
