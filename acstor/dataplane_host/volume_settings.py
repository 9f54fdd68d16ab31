"""Size, limits and durability of a volume that is open."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from acstor.dataplane import translated
from acstor.dataplane_host.kept_volume import KeptVolume
from acstor.dataplane_host.local_volume import LocalVolume
from acstor.dataplane_host.volume_mending import VolumeMending


class VolumeSettings(VolumeMending):
    """How the settings of a volume change while it is open."""

    def resize(self, volume: str, size_bytes: int) -> None:
        """Grow a volume; clients are disconnected once idle and find the new size."""
        local = self._in_runtime(volume)
        with local.lock, translated(f"resizing volume {volume}"):
            self._runtime().volume_resize(volume, size_bytes)
            self._change(local, size_bytes=size_bytes)

    def set_durability(self, volume: str, durability: Mapping[str, Any]) -> None:
        """Change when writes are on the origin."""
        local = self._in_runtime(volume)
        with local.lock, translated(f"durability of volume {volume}"):
            self._runtime().volume_set_durability(volume, durability)
            self._change(local, durability=durability)

    def set_limits(self, volume: str, iops: int, bytes_per_s: int) -> None:
        """Change the limits of a volume's requests; 0: none."""
        local = self._in_runtime(volume)
        with local.lock, translated(f"limits of volume {volume}"):
            self._runtime().volume_set_limits(volume, iops, bytes_per_s)
            self._change(local, iops=iops, bytes_per_s=bytes_per_s)

    def _change(self, local: LocalVolume, **changes: Any) -> KeptVolume:
        """Keep what has changed of a volume that is open, other than its manifest."""
        kept = dataclasses.replace(self._kept(local.volume), **changes)
        self._files.change(kept)
        return kept
