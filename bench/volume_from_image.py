"""A volume of a 2 GiB raw image, and a server that boots from it: ACStor beside stock Cinder.

Stock is the NFS driver of the same cloud, whose volumes are made on Cinder's generic path: the
image is downloaded, converted and written. Each turn uploads fresh images, empties the chunk
stores, takes Glance's and the origin's files out of the page cache, and alternates the host.

  available  from the request for the volume until Cinder says that it is
  ACTIVE     from the request for a server that boots from it until Nova says so
  login      from that request until the login prompt is on the serial console
  in all     from the request for the volume until the login prompt, without the look in between

Needs root and a running one-box. One command:
``python -m bench.volume_from_image [--runs N] [--json FILE]``.
"""

import contextlib
import sys
import time
from collections.abc import Iterator

from bench import comparison
from bench.comparison import Row, Series
from bench.openstack import cold, servers
from bench.openstack.cold import Way
from bench.openstack.servers import TimedServer
from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.one_box import RunningBox, attached
from testbed.fixtures.volume_api import VolumeApi
from testbed.fixtures.volumes import ACSTOR, STOCK

TYPES = {Way.ACSTOR: ACSTOR, Way.STOCK: STOCK}
FIGURES = ("available", "ACTIVE", "login", "in all")
POLL_S = 0.05
VOLUME_TIMEOUT_S = 300.0


class VolumeBoots:
    """Volumes and their servers one at a time, in turns; the figures of each by way."""

    def __init__(self, box: RunningBox, template: Template) -> None:
        self._box = box
        self._api = VolumeApi(box.api.connection)
        self._template = template
        self.values: dict[Way, dict[str, list[float]]] = {}

    def turn(self, host: ComputeHost) -> None:
        """One cold volume each way; only a turn that is complete is kept."""
        measured = {way: self.boot(way, host) for way in (Way.STOCK, Way.ACSTOR)}
        for way, taken in measured.items():
            figures = self.values.setdefault(way, {figure: [] for figure in FIGURES})
            for figure, value in taken.items():
                figures[figure].append(value)

    def boot(self, way: Way, host: ComputeHost) -> dict[str, float]:
        """Make a volume of an image that is new to the cloud and boot a server from it."""
        with (
            cold.fresh_image(self._box, self._template, way) as image,
            self._volume(way, image) as (volume_id, available_s),
        ):
            server = self._server(volume_id, host)
            try:
                servers.watch(self._box, [server], image.guest.login_prompt)
            finally:
                servers.delete(self._box, [server])
                self._api.wait("volumes", volume_id)  # detached
        if server.active_s is None or server.login_s is None:
            raise SystemExit(f"server {server.id} was not there: {server}")
        taken = (available_s, server.active_s, server.login_s, available_s + server.login_s)
        figures = dict(zip(FIGURES, taken, strict=True))
        text = "  ".join(f"{figure} {value:6.2f} s" for figure, value in figures.items())
        print(f"{way:8} {text}", file=sys.stderr)
        return figures

    @contextlib.contextmanager
    def _volume(self, way: Way, image: Template) -> Iterator[tuple[str, float]]:
        """Within the block there is a volume of an image; its id, and the seconds it took."""
        size_gib = -(-image.guest.disk.stat().st_size >> 30)
        requested_at = time.monotonic()
        volume_id = self._api.create(
            "volumes",
            name=f"bench-{way}",
            size=size_gib,
            volume_type=TYPES[way],
            imageRef=image.id,
        )
        try:
            self._wait_available(volume_id, requested_at)
            yield volume_id, time.monotonic() - requested_at
        finally:
            self._api.delete("volumes", volume_id)
            self._api.wait_gone("volumes", volume_id)

    def _wait_available(self, volume_id: str, requested_at: float) -> None:
        while (status := self._api.show("volumes", volume_id)["status"]) != "available":
            is_late = time.monotonic() - requested_at > VOLUME_TIMEOUT_S
            if status.startswith("error") or is_late:
                said = self._api.messages(volume_id)
                raise SystemExit(f"volume {volume_id} is {status}: {said}")
            time.sleep(POLL_S)

    def _server(self, volume_id: str, host: ComputeHost) -> TimedServer:
        """Ask for a server that boots from a volume."""
        started = time.monotonic()
        server = self._box.api.compute.create_server(
            name="bench-volume",
            flavor_id=servers.FLAVOR,
            networks="none",
            host=host.name,
            block_device_mapping=[
                {
                    "boot_index": 0,
                    "uuid": volume_id,
                    "source_type": "volume",
                    "destination_type": "volume",
                    "delete_on_termination": False,
                }
            ],
        )
        return TimedServer(server.id, started, time.monotonic() - started)

    def rows(self) -> list[Row]:
        """Return the table's rows."""
        ours, stock = (self.values[way] for way in (Way.ACSTOR, Way.STOCK))
        return [
            Row(figure, Series("acstor", "s", ours[figure]), Series("stock", "s", stock[figure]))
            for figure in FIGURES
        ]


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    options = parser.parse_args()
    guest = servers.debian()
    with attached() as box:
        box.api.flavor(servers.FLAVOR, servers.MEMORY_MIB, servers.DISK_GIB)
        template = box.api.upload_guest(guest, "bench-debian", acstor_cache="false")
        boots = VolumeBoots(box, template)
        try:
            for host in box.hosts:
                boots.boot(Way.STOCK, host)  # kernel and ramdisk are on every host from now on
            for turn in range(options.runs):
                boots.turn(box.hosts[turn % len(box.hosts)])
        except KeyboardInterrupt:
            if not boots.values:
                raise
            print("interrupted: the complete turns are reported", file=sys.stderr)
        finally:
            for image_id in (template.id, template.kernel_id, template.ramdisk_id):
                box.api.delete_image(image_id)
    comparison.report("A volume of a 2 GiB image, and a server from it", boots.rows(), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
