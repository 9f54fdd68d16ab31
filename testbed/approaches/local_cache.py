"""Local-cache: a cache on each host between its guests and the origin (ACStor paper, §5.2)."""

import pathlib
import re

from testbed import processes
from testbed.approaches import base, nbd_export
from testbed.guest.build import GuestImage
from testbed.guest.machine import BackingDisk
from testbed.network import LinkBytes, Namespace
from testbed.testbed import Testbed

CACHE_BLOCK = "64k"
READY_TIMEOUT_S = 20.0
_READ_BYTES = re.compile(r"^read:.*?([\d.]+) (bytes|KiB|MiB|GiB)", re.MULTILINE)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class LocalCache(base.Approach):
    """nbdkit's cache filter on each host over the origin's NBD export; none of our code.

    As in the paper the cache holds half of the disk, in blocks of 64 KiB. The paper's is replaced
    in FIFO order, nbdkit's in an approximation of LRU; a boot fills neither.
    """

    name = "local-cache"
    title = "local cache"
    explanation = (
        "nbdkit's cache filter on every host, half the size of the disk, over the NBD export"
    )

    def __init__(self, testbed: Testbed, image: GuestImage) -> None:
        super().__init__(testbed, image)
        self._export = nbd_export.NbdExport(testbed, image)
        self._caches: dict[str, processes.RunningProcess] = {}
        self._before: dict[str, LinkBytes] = {}

    def start(self) -> None:
        """Start the export and a cache on each host."""
        self._export.start()
        for host in self.testbed.hosts:
            self._caches[host.name] = self._start_cache(host)
        for host in self.testbed.hosts:
            socket_path = self._directory(host) / "cache.sock"
            processes.wait_until(
                socket_path.exists,
                f"the cache of {host.name} answers",
                timeout_s=READY_TIMEOUT_S,
                processes=[self._caches[host.name]],
            )
        self._before = self.testbed.network.counters()

    def disk(self, host: Namespace) -> BackingDisk:
        """Return the host's cache."""
        return BackingDisk(f"nbd+unix:///?socket={self._directory(host)}/cache.sock")

    def stop(self) -> None:
        """Stop the caches and the export."""
        self.testbed.table.stop(*self._caches.values())
        self._caches.clear()
        self._export.stop()

    def tiers(self) -> dict[str, base.TierBytes]:
        """Return what came over the link, and what of the guests' reads did not.

        The guests' reads are known when the caches have ended: nbdkit writes them then.
        """
        now = self.testbed.network.counters()
        tiers = {}
        for host in self.testbed.hosts:
            origin = (now[host.name] - self._before[host.name]).received
            guest = self._guest_bytes(host)
            local = None if guest is None else max(0, guest - origin)
            tiers[host.name] = base.TierBytes(local=local, origin=origin)
        return tiers

    def _start_cache(self, host: Namespace) -> processes.RunningProcess:
        directory = self._directory(host)
        command = ["nbdkit", "--foreground", "--readonly", f"--unix={directory}/cache.sock"]
        command += ["--filter=stats", "--filter=cache", "nbd", f"uri={self._export.uri}"]
        command += [f"statsfile={directory}/stats", "cache-on-read=true"]
        command += [f"cache-min-block-size={CACHE_BLOCK}"]
        command += [f"cache-max-size={self.image.disk_size_bytes // 2}"]
        return self.testbed.table.spawn(
            f"cache-{host.name}", command, namespace=host, env={"TMPDIR": str(directory)}
        )

    def _directory(self, host: Namespace) -> pathlib.Path:
        return self.testbed.run.directory(self.name, host.name)

    def _guest_bytes(self, host: Namespace) -> int | None:
        path = self._directory(host) / "stats"
        return read_bytes(path.read_text()) if path.exists() else None


def read_bytes(statistics: str) -> int | None:
    """Return the bytes read that a file of nbdkit's stats filter tells, None where it does not."""
    match = _READ_BYTES.search(statistics)
    return None if match is None else int(float(match[1]) * _UNITS[match[2]])
