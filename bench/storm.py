"""Eight servers of one cold 2 GiB image at once on two hosts: ACStor beside stock Nova.

Stock is the same cloud in the same run: an image with ``acstor_cache=false``, which each host
downloads. Turns alternate; each uploads a fresh image, empties the chunk stores, and takes
Glance's and the origin's files out of the page cache.

  bytes out     stock: of the image's data out of Glance to compute hosts (its access log);
                ACStor: that, and chunks out of the origin (the data planes' counters)
  latencies     of API calls, and of a call to nova-compute of a server that runs there already
                (its console), from the first request until the last login prompt

What the registrar reads once for the whole cloud when an image is uploaded is before the storm
and no part of it. Needs root and a running one-box.
One command: ``python -m bench.storm [--runs N] [--json FILE]``.
"""

import concurrent.futures
import dataclasses
import functools
import itertools
import operator
import re
import sys
from collections.abc import Callable

from bench import comparison
from bench.comparison import Row, Series
from bench.openstack import cold, latency, servers
from bench.openstack.cold import Way
from testbed.fixtures.cloud_api import CloudApi, Template
from testbed.fixtures.one_box import RunningBox, attached, connect

SERVERS = 8
REQUESTS_AT_ONCE = 4
_SENT = re.compile(r"GET /v2/images/[^ ]+/file => generated (\d+) bytes")


@dataclasses.dataclass
class Storm:
    """Result of one storm."""

    glance_bytes: int
    origin_bytes: float
    spawn_s: list[float]
    active_s: list[float]
    login_s: list[float]
    latencies_s: dict[str, list[float]]
    failures: list[str]


class Storms:
    """Storms in turns."""

    def __init__(self, box: RunningBox, template: Template) -> None:
        self._box = box
        self._template = template
        self.residents: list[str] = []  #: servers whose consoles nova-compute is asked for
        self.storms: dict[Way, list[Storm]] = {way: [] for way in Way}

    def turn(self) -> None:
        """One storm each way."""
        measured: dict[Way, Storm] = {}
        for way in (Way.STOCK, Way.ACSTOR):
            with cold.fresh_image(self._box, self._template, way) as image:
                storm = self._storm(image)
            measured[way] = storm
            print(f"{way}: {summary(storm)}", file=sys.stderr)
        for way, storm in measured.items():
            self.storms[way].append(storm)

    def _storm(self, image: Template) -> Storm:
        box = self._box
        box.begin("bench-storm")
        origin_before = self._origin_bytes()
        made: list[servers.TimedServer] = []
        with latency.Probes(self._calls()) as probes:
            try:
                with concurrent.futures.ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
                    ask = functools.partial(servers.request, box, image, "bench-storm")
                    made += pool.map(ask, itertools.islice(itertools.cycle(box.hosts), SERVERS))
                servers.watch(box, made, image.guest.login_prompt)
            finally:
                origin = self._origin_bytes() - origin_before
                servers.delete(box, made)
        sent = sum(int(found) for line in box.nova_downloads(image.id)
                   for found in _SENT.findall(line))  # fmt: skip
        latencies = {name: probe.latencies_s for name, probe in probes.probes.items()}
        latencies["POST server"] = [server.post_s for server in made]
        return Storm(
            glance_bytes=sent,
            origin_bytes=origin,
            spawn_s=[server.spawn_s or 0.0 for server in made],
            active_s=[server.active_s or 0.0 for server in made],
            login_s=[server.login_s or 0.0 for server in made],
            latencies_s=latencies,
            failures=probes.failures,
        )

    def _calls(self) -> dict[str, Callable[[], object]]:
        # A session each: what one waits for must not be another's connection.
        def session() -> CloudApi:
            return connect()

        def get(api: CloudApi, path: str) -> None:
            api.compute.get(path).raise_for_status()

        calls: dict[str, Callable[[], object]] = {
            "GET servers/detail": functools.partial(get, session(), "/servers/detail"),
            "GET flavors": functools.partial(get, session(), "/flavors"),
        }
        for resident in self.residents:
            host = self._box.api.server(resident)
            assert host is not None
            api = session()
            calls[f"nova-compute on {host.compute_host}"] = functools.partial(api.console, resident)
        return calls

    def _origin_bytes(self) -> float:
        return sum(host.metric("acstor_origin_bytes") for host in self._box.hosts)

    def rows(self) -> list[Row]:
        """Return the table's rows."""
        ours, stock = self.storms[Way.ACSTOR], self.storms[Way.STOCK]

        def bytes_out(storms: list[Storm]) -> list[float]:
            return [(storm.glance_bytes + storm.origin_bytes) / 1e6 for storm in storms]

        rows = [
            Row(
                f"out of Glance and origin, {SERVERS} servers",
                Series("acstor", "MB", bytes_out(ours)),
                Series("stock", "MB", bytes_out(stock)),
            )
        ]
        for name, figure in (("spawn", "spawn_s"), ("ACTIVE", "active_s"), ("login", "login_s")):
            get: Callable[[Storm], list[float]] = operator.attrgetter(figure)
            rows.append(self._row(f"{name}, median of {SERVERS}", get, 0.5, "s"))
            rows.append(self._row(f"{name}, slowest of {SERVERS}", get, 0.99, "s"))
        for call in ours[0].latencies_s:
            get = functools.partial(latencies_ms, call=call)
            for percentile, share in (("p50", 0.5), ("p99", 0.99)):
                row = self._row(f"{call}, {percentile}", get, share, "ms")
                met = comparison.at_most(1.0)
                rows.append(dataclasses.replace(row, target="<= 1x", is_met=met))
        return rows

    def _row(
        self, what: str, values: Callable[[Storm], list[float]], share: float, unit: str
    ) -> Row:
        ours, stock = (
            Series(
                way, unit, [latency.quantile(values(storm), share) for storm in self.storms[way]]
            )
            for way in (Way.ACSTOR, Way.STOCK)
        )
        return Row(what, ours, stock)


def summary(storm: Storm) -> str:
    """Return a line of a storm's figures, as they come."""
    parts = [
        f"{storm.glance_bytes / 1e6:.0f} MB out of Glance",
        f"{storm.origin_bytes / 1e6:.0f} MB out of the origin",
    ]
    for name, values in (("spawn", storm.spawn_s), ("login", storm.login_s)):
        parts.append(f"{name} {latency.quantile(values, 0.5):.1f} (max {max(values):.1f}) s")
    for call in storm.latencies_s:
        values = latencies_ms(storm, call)
        median, slow = latency.quantile(values, 0.5), latency.quantile(values, 0.99)
        parts.append(f"{call} p50 {median:.0f} p99 {slow:.0f} ms (n={len(values)})")
    return ", ".join(parts)


def latencies_ms(storm: Storm, call: str) -> list[float]:
    return [1e3 * seconds for seconds in storm.latencies_s[call]]


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    options = parser.parse_args()
    guest = servers.debian()
    with attached() as box:
        box.api.flavor(servers.FLAVOR, servers.MEMORY_MIB, servers.DISK_GIB)
        # Stock: the residents' disks must not come from the data planes that a turn empties.
        template = box.api.upload_guest(guest, "bench-debian", acstor_cache="false")
        residents: list[servers.TimedServer] = []
        storms = Storms(box, template)
        try:
            # These also bring kernel and ramdisk to every host.
            residents += [
                servers.request(box, template, f"resident-{host.name}", host) for host in box.hosts
            ]
            servers.watch(box, residents, guest.login_prompt)
            storms.residents = [resident.id for resident in residents]
            for _ in range(options.runs):
                storms.turn()
        except KeyboardInterrupt:
            if not storms.storms[Way.ACSTOR]:
                raise
            print("interrupted: the complete turns are reported", file=sys.stderr)
        finally:
            servers.delete(box, residents)
            for image_id in (template.id, template.kernel_id, template.ramdisk_id):
                box.api.delete_image(image_id)
    for way, found in storms.storms.items():
        for storm in found:
            for failure in storm.failures:
                print(f"{way}: {failure}", file=sys.stderr)
    title = f"{SERVERS} servers of a cold 2 GiB image at once on two hosts"
    comparison.report(title, storms.rows(), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
