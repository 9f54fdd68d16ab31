"""Reads of a host that follows the registered images: with the index of images and without.

An origin in memory holds many images, of which none changes; what a host reads in ten minutes of
looks every five seconds is counted, and its processor time measured. One command:
``python -m bench.image_looks [--json FILE]``.
"""

import sys
import time

from acstor.agent.reconcilers.registered_images import RegisteredImages
from acstor.origin.base import Ref
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.images.image_index import ImageIndexWriter
from acstor.repository.images.image_registry import registry_ref
from bench import comparison
from bench.comparison import Row, Series

COUNTS = (100, 1_000, 10_000)
INTERVAL_S = 5.0
DURATION_S = 600.0
READS_MAX = 1.0
"""Reads a second and host, at most, whatever the number of images."""


class CountingOrigin(MemoryOrigin):
    """Counts the calls that a server would answer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def get_ref(self, name: str) -> Ref | None:
        self.calls += 1
        return super().get_ref(name)

    def list_refs(self, prefix: str = "") -> object:  # type: ignore[override]
        self.calls += 1
        return super().list_refs(prefix)


class Follower:
    """A host's look at the images, as its agent makes it."""

    def __init__(self, origin: CountingOrigin, *, has_index: bool) -> None:
        self._origin = origin
        self.now = 0.0
        self._images = RegisteredImages(origin, has_index=has_index, clock=lambda: self.now)

    def look(self) -> None:
        for image_id in self._images.refresh():
            if self._images.is_stale(image_id):
                for name in (layout.image_ref(image_id), registry_ref(image_id)):
                    self._origin.get_ref(name)
                self._images.note_read(image_id, is_registered=True)


def image_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def measure(count: int, *, has_index: bool) -> tuple[float, float]:
    """Return calls a second, and milliseconds of a processor a look."""
    origin = CountingOrigin()
    for number in range(count):
        origin.swap_ref(layout.image_ref(image_id(number)), None, b"{}")
    ImageIndexWriter(origin, is_kept=has_index).ensure()
    follower = Follower(origin, has_index=has_index)
    follower.look()
    origin.calls = 0
    looks = int(DURATION_S / INTERVAL_S)
    started = time.thread_time()
    for _ in range(looks):
        follower.now += INTERVAL_S
        follower.look()
    return origin.calls / DURATION_S, (time.thread_time() - started) / looks * 1e3


def main() -> int:
    options = comparison.arguments(__doc__ or "").parse_args()
    rows = []
    for count in COUNTS:
        indexed, listed = (
            [measure(count, has_index=has_index) for _ in range(options.runs)]
            for has_index in (True, False)
        )
        for place, unit, bound in ((0, "calls/s", READS_MAX), (1, "ms/look", None)):
            rows.append(
                Row(
                    f"{count} images",
                    Series("index", unit, [each[place] for each in indexed]),
                    Series("listing", unit, [each[place] for each in listed]),
                    target=f"<= {bound:g} calls/s" if bound else "",
                    is_met=comparison.at_most(bound) if bound else None,
                )
            )
    comparison.report("A host's looks at images of which none changes", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
