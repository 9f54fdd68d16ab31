"""Boots: warm through ACStor beside a local file; cold on several hosts at once.

  warm   one guest, everything it reads in the chunk store (not in the page cache). Peer: the same
         guest on a local file, which is not in the page cache either.
  cold   guests on N hosts at once with empty chunk stores: bytes of chunks out of the origin, over
         those of the distinct chunks that the guests read (as QEMU logs them).

Needs root. One command: ``python -m bench.boot [--hosts N] [--json FILE]``.
"""

import pathlib
import sys
import time

from bench import comparison, served_disk
from bench.comparison import Row, Series
from testbed import accelerator, boot_storm, processes
from testbed.approaches.collaborative import Acstor
from testbed.guest import build
from testbed.guest.machine import BackingDisk, GuestMachine, GuestRequest
from testbed.guest.recipe import GuestRecipe
from testbed.run_directory import DEFAULT_ROOT
from testbed.testbed import Testbed, TestbedSettings

BOOT_TIMEOUT_S = 300.0


class WarmBoots:
    """Boots of one guest, in turns from ACStor and from a local file."""

    def __init__(
        self, approach: Acstor, image: build.GuestImage, chosen: accelerator.Accelerator
    ) -> None:
        self._approach = approach
        self._image = image
        self._chosen = chosen
        self._count = 0

    def acstor(self) -> float:
        host = self._approach.testbed.hosts[0]
        return self.boot(self._approach.disk(host))

    def local(self) -> float:
        return self.boot(BackingDisk(str(self._image.disk)))

    def boot(self, disk: BackingDisk) -> float:
        """Seconds from the request to the login prompt."""
        testbed = self._approach.testbed
        self._count += 1
        directory = testbed.run.directory("warm", str(self._count))
        served_disk.drop_pages(pathlib.Path(disk.location))
        request = GuestRequest(
            f"warm-{self._count}", self._image, disk, self._chosen, testbed.hosts[0], directory
        )
        guest = GuestMachine(request, testbed.table)
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        try:
            while not guest.is_settled and time.monotonic() < deadline:
                guest.poll()
                time.sleep(processes.POLL_INTERVAL_S)
        finally:
            guest.stop()
        if guest.boot_time_s is None:
            raise SystemExit(f"the guest did not boot: {guest.failure or guest.serial_tail()}")
        return guest.boot_time_s


def warm_row(image: build.GuestImage, chosen: accelerator.Accelerator, runs: int) -> Row:
    with Testbed.create(TestbedSettings(host_count=1)) as testbed:
        approach = Acstor(testbed, image)
        try:
            approach.start()
            boots = WarmBoots(approach, image, chosen)
            boots.acstor()  # fills the chunk store
            values = comparison.interleave({"acstor": boots.acstor, "local": boots.local}, runs)
        finally:
            approach.stop()
    return Row(
        "warm boot, one guest",
        Series("acstor", "s", values["acstor"]),
        Series("local file", "s", values["local"]),
        "<= 1.05x",
        comparison.at_most(1.05),
    )


def cold_rows(
    image: build.GuestImage, chosen: accelerator.Accelerator, host_count: int, runs: int
) -> list[Row]:
    chunks, union, times = [], [], []
    for _ in range(runs):
        with Testbed.create(TestbedSettings(host_count=host_count)) as testbed:
            approach = Acstor(testbed, image)
            try:
                approach.start()
                storm = boot_storm.run_storm(
                    approach, boot_storm.StormSettings(chosen), lambda _: None
                )
                approach.measure()
            finally:
                approach.stop()
            result = boot_storm.result(approach, storm)
        if not result.is_complete:
            raise SystemExit(f"a guest did not boot: {result.guests}")
        chunks.append((result.origin_chunk_bytes or 0) / 1e6)
        union.append((result.union_bytes or 0) / 1e6)
        times.append(result.boot_time_median_s or 0.0)
    return [
        Row(
            f"cold, {host_count} hosts at once: out of the origin",
            Series("chunks out", "MB", chunks),
            Series("distinct chunks read", "MB", union),
            "<= 1.10x",
            comparison.at_most(1.10),
        ),
        Row(f"cold, {host_count} hosts at once: median boot time", Series("acstor", "s", times)),
    ]


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--hosts", type=int, default=4, help="of the cold boots (%(default)s)")
    parser.add_argument("--cold-runs", type=int, default=comparison.RUNS_DEFAULT)
    options = parser.parse_args()
    guests = DEFAULT_ROOT / "guests"
    image = build.build_guest(GuestRecipe(), guests)
    chosen = accelerator.choose(image.kernel, guests)
    rows = [warm_row(image, chosen, options.runs)]
    rows += cold_rows(image, chosen, options.hosts, options.cold_runs)
    comparison.report(f"Boots ({chosen.name})", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
