"""The first server of a 2 GiB raw image on a host that never saw it: ACStor beside stock Nova.

Stock is the same cloud in the same run: an image with ``acstor_cache=false``, which Nova downloads.
Each turn uploads fresh images, empties the chunk stores, takes Glance's and the origin's files out
of the page cache, and alternates the host. Also the login prompt of a second server on stock's
then warm image cache.

  spawn   as nova-compute logs it: "Took N seconds to spawn the instance on the hypervisor"
  ACTIVE  from the request until the API says so
  login   from the request until the login prompt is on the serial console

Needs root and a running one-box. One command: ``python -m bench.spawn [--runs N] [--json FILE]``.
"""

import sys

from bench import comparison
from bench.comparison import Row, Series
from bench.openstack import cold, servers
from bench.openstack.cold import Way
from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.one_box import RunningBox, attached

WARM = "stock, warm cache"
FIGURES = ("spawn", "active", "login")


class Spawns:
    """Servers one at a time, in turns; the figures of each by way."""

    def __init__(self, box: RunningBox, template: Template) -> None:
        self._box = box
        self._template = template
        self.values: dict[str, dict[str, list[float]]] = {}

    def turn(self, host: ComputeHost) -> None:
        """One cold server each way, and one on what stock has cached."""
        measured: dict[str, servers.TimedServer] = {}
        with cold.fresh_image(self._box, self._template, Way.STOCK) as image:
            measured[Way.STOCK] = self._measure(Way.STOCK, image, host)
            measured[WARM] = self._measure(WARM, image, host)
        with cold.fresh_image(self._box, self._template, Way.ACSTOR) as image:
            measured[Way.ACSTOR] = self._measure(Way.ACSTOR, image, host)
            if host.base_kind(image.id) != "link":
                raise SystemExit(f"not through ACStor: {host.describe_base(image.id)}")
        for way, server in measured.items():
            self._keep(way, server)

    def _measure(self, way: str, image: Template, host: ComputeHost) -> servers.TimedServer:
        server = self.boot(image, host)
        print(f"{way:18} spawn {server.spawn_s:6.2f}  ACTIVE {server.active_s:6.2f}  "
              f"login {server.login_s:6.2f} s", file=sys.stderr)  # fmt: skip
        return server

    def _keep(self, way: str, server: servers.TimedServer) -> None:
        """Keep the figures of a turn that is complete: only such can be compared."""
        figures = self.values.setdefault(way, {figure: [] for figure in FIGURES})
        taken = (server.spawn_s, server.active_s, server.login_s)
        for figure, value in zip(FIGURES, taken, strict=True):
            assert value is not None
            figures[figure].append(value)

    def boot(self, image: Template, host: ComputeHost) -> servers.TimedServer:
        """Boot one server and delete it."""
        server = servers.request(self._box, image, "bench-spawn", host)
        try:
            servers.watch(self._box, [server], image.guest.login_prompt)
        finally:
            servers.delete(self._box, [server])
        return server

    def rows(self) -> list[Row]:
        """Return the table's rows."""
        ours, stock, warm = (self.values[way] for way in (Way.ACSTOR, Way.STOCK, WARM))

        def row(what: str, figure: str, peer: str, values: list[float], target: str = "",
                bound: float | None = None) -> Row:  # fmt: skip
            met = None if bound is None else comparison.at_most(bound)
            return Row(
                what, Series("acstor", "s", ours[figure]), Series(peer, "s", values), target, met
            )

        return [
            row("time in spawn", "spawn", "stock", stock["spawn"], "<= 0.1x", 0.1),
            row("time in spawn", "spawn", WARM, warm["spawn"]),
            row("request to ACTIVE", "active", "stock", stock["active"]),
            row("request to login", "login", "stock", stock["login"]),
            row("request to login", "login", WARM, warm["login"], "<= 1.10x", 1.10),
        ]


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    options = parser.parse_args()
    guest = servers.debian()
    with attached() as box:
        box.api.flavor(servers.FLAVOR, servers.MEMORY_MIB, servers.DISK_GIB)
        template = box.api.upload_guest(guest, "bench-debian", acstor_cache="false")
        spawns = Spawns(box, template)
        try:
            for host in box.hosts:
                spawns.boot(template, host)  # kernel and ramdisk are on every host from now on
            for turn in range(options.runs):
                spawns.turn(box.hosts[turn % len(box.hosts)])
        except KeyboardInterrupt:
            if not spawns.values:
                raise
            print("interrupted: the complete turns are reported", file=sys.stderr)
        finally:
            for image_id in (template.id, template.kernel_id, template.ramdisk_id):
                box.api.delete_image(image_id)
    comparison.report("First server of a 2 GiB image on a host", spawns.rows(), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
