"""Non-cache: every guest reads the image from the origin (ACStor paper, §5.2)."""

from testbed.approaches import base, nbd_export
from testbed.guest.build import GuestImage
from testbed.guest.machine import BackingDisk
from testbed.network import LinkBytes, Namespace
from testbed.testbed import Testbed


class NonCache(base.Approach):
    """A qcow2 overlay on each host, backed by the origin's NBD export; none of our code.

    The paper's backing file is on NFS; NBD is as direct, and needs no kernel module. The bytes
    are those that came over each host's link, headers included.
    """

    name = "non-cache"
    title = "non-cache"
    explanation = "qcow2 overlay on a remote NBD export that qemu-nbd serves at the origin"

    def __init__(self, testbed: Testbed, image: GuestImage) -> None:
        super().__init__(testbed, image)
        self._export = nbd_export.NbdExport(testbed, image)
        self._before: dict[str, LinkBytes] = {}

    def start(self) -> None:
        """Start the export."""
        self._export.start()
        self._before = self.testbed.network.counters()

    def disk(self, host: Namespace) -> BackingDisk:
        """Return the export."""
        return BackingDisk(self._export.uri)

    def stop(self) -> None:
        """Stop the export."""
        self._export.stop()

    def tiers(self) -> dict[str, base.TierBytes]:
        """Return what came over each host's link."""
        now = self.testbed.network.counters()
        return {
            host.name: base.TierBytes(origin=(now[host.name] - self._before[host.name]).received)
            for host in self.testbed.hosts
        }
