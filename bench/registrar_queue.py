"""A queue of 200 images of three projects at one registrar: how long each project waits.

The registrar is the program, with one worker (the default), Glance is served over HTTP from memory,
the origin is on a disk. All images are there when it starts; each is 512 KiB of its own content. A
wait is the time from the registrar's first question to Glance to the publication of an image, in
seconds: the median and the longest of each project.

  even              67, 67 and 66 images.
  one has most      180, 10 and 10.
  crash             the same two, and the first project has one image whose child dies (SIGSEGV)
                    each time: it is tried again as configured by default.
  expand            the same two, and the first project's first image is a qcow2 file of 320 KiB
                    that expands to a disk of 8 GiB; any project can make one.

The peer is the same queue without the poison, in the same run. Needs qemu-utils. One command:
``python -m bench.registrar_queue [--runs N] [--json FILE]``.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import random
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench import comparison
from testbed import processes
from testbed.fixtures import poisoned_registrar
from testbed.fixtures.registrar_deployment import PROGRAM, Deployment
from testbed.measurement import machine

IMAGE_SIZE = 512 << 10
CHUNK_SIZE = 64 << 10
QUEUE_TIMEOUT_S = 3600.0
POLL_S = 0.05
EVEN = {"a": 67, "b": 67, "c": 66}
MOST = {"a": 180, "b": 10, "c": 10}
POISON_NUMBER = 0
"""Number of the harmful image, of the first project whose turn comes first."""
EXPANDED_SIZE = 8 << 30
CLUSTER = 64 << 10
L2_SPAN = CLUSTER // 8 * CLUSTER
"""Bytes of a disk that one table of the second level describes."""
SIZE_AT, L1_SIZE_AT, L1_AT = 24, 36, 40
"""Offsets in the header of a qcow2 file: docs/interop/qcow2.txt of QEMU."""
OFFSET_MASK = 0x00FFFFFFFFFFFE00
OPTIONS = "interval = 60\nworkers = 1\nniceness = 0\n"


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A queue."""

    name: str
    counts: dict[str, int]
    poison: str = ""


SCENARIOS = tuple(
    Scenario(f"{name}{', ' if poison else ''}{poison}", counts, poison)
    for name, counts in (("even", EVEN), ("one has most", MOST))
    for poison in ("", "crash", "expand")
)


def expanding(folder: pathlib.Path) -> bytes:
    """Return a small qcow2 file of a large disk: each cluster of it is the same compressed one."""
    path = folder / "expanding.qcow2"
    create = ["qemu-img", "create", "-q", "-f", "qcow2", str(path), str(L2_SPAN)]
    processes.run(create)
    processes.run(["qemu-io", "-f", "qcow2", "-c", f"write -q -c -P 7 0 {CLUSTER}", str(path)])
    content = bytearray(path.read_bytes())
    tables = EXPANDED_SIZE // L2_SPAN
    struct.pack_into(">Q", content, SIZE_AT, EXPANDED_SIZE)
    struct.pack_into(">I", content, L1_SIZE_AT, tables)
    (l1_at,) = struct.unpack_from(">Q", content, L1_AT)
    (first,) = struct.unpack_from(">Q", content, l1_at)
    content[l1_at : l1_at + 8 * tables] = struct.pack(">Q", first) * tables
    l2_at = first & OFFSET_MASK
    content[l2_at : l2_at + CLUSTER] = bytes(content[l2_at : l2_at + 8]) * (CLUSTER // 8)
    return bytes(content)


class Queue:
    """One registrar and its images."""

    def __init__(self, scenario: Scenario, deployment: Deployment) -> None:
        self._deployment = deployment
        self._owners: dict[str, str] = {}
        self._poison = ""
        self._began = 0.0
        deployment.glance.before = self._note_request
        rng = random.Random(scenario.name)
        for number, owner in enumerate(
            owner for owner, count in scenario.counts.items() for _ in range(count)
        ):
            is_poison = bool(scenario.poison) and number == POISON_NUMBER
            if is_poison and scenario.poison == "expand":
                content, disk_format = expanding(deployment.folder), "qcow2"
                assert len(content) < IMAGE_SIZE, f"{len(content)} bytes: it would be last"
            else:
                content, disk_format = rng.randbytes(IMAGE_SIZE), "raw"
            image = deployment.upload(number, content, disk_format, owner=owner)
            if is_poison:
                self._poison = image
            self._owners[image] = owner

    def _note_request(self, request: Any) -> bool:
        self._began = self._began or time.monotonic()
        return False

    def measure(self) -> dict[str, Any]:
        """Return the waits of each project's images, and apart from them what the poison did."""
        self._deployment.start()
        waits: dict[str, float] = {}
        wanted = self._owners.keys() - {self._poison}
        deadline = time.monotonic() + QUEUE_TIMEOUT_S
        while not wanted <= waits.keys():
            if time.monotonic() > deadline or self._deployment.program.poll() is not None:
                raise SystemExit(f"it does not end:\n{self._deployment.log()[-3000:]}")
            for image in self._deployment.repository.list_image_ids():
                waits.setdefault(image, time.monotonic() - self._began)
            time.sleep(POLL_S)
        by_project: dict[str, list[float]] = {owner: [] for owner in self._owners.values()}
        for image in wanted:
            by_project[self._owners[image]].append(waits[image])
        return {"waits": by_project, "poison": self._fate(waits)}

    def _fate(self, waits: dict[str, float]) -> dict[str, Any] | None:
        if not self._poison:
            return None
        entry = self._deployment.entry(self._poison)
        assert entry is not None
        tries = sum(f"/{self._poison}/file" in path for path in self._deployment.glance.paths)
        wait = waits.get(self._poison)
        return {"state": entry.state.value, "reason": entry.reason, "tries": tries, "wait_s": wait}


@contextlib.contextmanager
def queue_of(scenario: Scenario) -> Iterator[Queue]:
    """Within the block there is a queue, whose registrar does not run yet."""
    poison = f"00000000-0000-4000-8000-{POISON_NUMBER:012}"
    poisoned = (poisoned_registrar.__file__, poison)
    program = poisoned if scenario.poison == "crash" else PROGRAM
    with tempfile.TemporaryDirectory(prefix="acstor-queue-") as folder:
        deployment = Deployment(
            pathlib.Path(folder),
            program=program,
            page_size=1000,
            chunk_size=CHUNK_SIZE,
            options=OPTIONS,
        )
        with contextlib.closing(deployment):
            yield Queue(scenario, deployment)


def measure(scenario: Scenario) -> dict[str, Any]:
    """Run one queue to its end."""
    with queue_of(scenario) as queue:
        return queue.measure()


def table(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a line for each project of each scenario: medians of the runs."""
    lines = []
    for scenario in SCENARIOS:
        runs = results.get(scenario.name, [])
        for owner, count in scenario.counts.items():
            waits: Sequence[list[float]] = [run["waits"][owner] for run in runs]
            if not waits:
                continue
            lines.append(
                {
                    "queue": scenario.name,
                    "project": owner,
                    "images": count,
                    "p50_s": statistics.median(statistics.median(one) for one in waits),
                    "max_s": statistics.median(max(one) for one in waits),
                    "max_s_of_runs": [min(map(max, waits)), max(map(max, waits))],
                }
            )
    return lines


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--only", metavar="TEXT", default="", help="queues with this in their name")
    parser.set_defaults(runs=1)
    options = parser.parse_args()
    cases = {
        scenario.name: functools.partial(measure, scenario)
        for scenario in SCENARIOS
        if options.only in scenario.name
    }
    about = machine()
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for _ in range(options.runs):
        for name, case in cases.items():
            results[name].append(case())
            print(f"{name}: {results[name][-1]['poison'] or 'no poison'}", flush=True)
            # Each takes minutes: what is there is kept.
            if options.json is not None:
                found = {"machine": about, "rows": table(results), "runs": results}
                options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\n{'queue':24} {'project':>7} {'images':>7} {'p50 s':>8} {'max s':>8}")
    for line in table(results):
        print(
            f"{line['queue']:24} {line['project']:>7} {line['images']:7} "
            f"{line['p50_s']:8.1f} {line['max_s']:8.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
