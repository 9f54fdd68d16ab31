"""Garbage collections of a repository with many images: what each reads, and how long it takes.

An origin in memory holds generated images, each with a manifest of its own; packs are named and not
stored (a collection reads none). The first collection knows nothing, the second has read all
manifests before, and before the third one in a hundred images was replaced. One command:
``python -m bench.collection [--images N] [--json FILE]``.
"""

import sys
import tempfile
import time

from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.remembered_packs import remembered
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.repository import Repository
from bench import comparison
from bench.comparison import Row, Series
from testbed.doubles.manifests import make_manifest

CHUNK_COUNT = 512
CHANGED_SHARE = 0.01
READ_SHARE_MAX = 0.02


class CountingOrigin(MemoryOrigin):
    """Counts the bytes that are read of manifests."""

    def __init__(self) -> None:
        super().__init__()
        self.manifest_bytes = 0

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        count = super().readinto(key, offset, buffer)
        if key.startswith(layout.MANIFEST_PREFIX):
            self.manifest_bytes += count
        return count


def put_image(repository: Repository, number: int, version: int) -> None:
    """Publish an image with a manifest, and a pack, of its own."""
    image_id = f"00000000-0000-4000-8000-{number:012x}"
    manifest = make_manifest(image_id, CHUNK_COUNT, salt=version, content=1)
    repository.origin.put_if_absent(layout.manifest_key(manifest.digest), [manifest.to_bytes()])
    record = ImageRecord(
        manifest.digest, manifest.digest, f"image {number}", manifest.size_bytes,
        manifest.chunk_size, CHUNK_COUNT, 1, CHUNK_COUNT - 1, "raw", "2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    name = layout.image_ref(image_id)
    ref = repository.origin.get_ref(name)
    repository.origin.swap_ref(name, ref.token if ref else None, record.encode())


def collect(origin: CountingOrigin, directory: str) -> tuple[float, float]:
    """Return the bytes of manifests read, and the seconds that it took."""
    repository = Repository.open(origin)
    before, started = origin.manifest_bytes, time.monotonic()
    with remembered(directory, repository) as known:
        Collector(repository, "bench", 3600.0, remembered=known).collect()
    return origin.manifest_bytes - before, time.monotonic() - started


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument("--images", type=int, default=10_000, help="(default: %(default)s)")
    options = parser.parse_args()
    origin = CountingOrigin()
    repository = Repository.init(origin)
    for number in range(options.images):
        put_image(repository, number, 1)
    changed = max(1, int(CHANGED_SHARE * options.images))
    shares: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for run in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="acstor-marks-") as directory:
            total = 0.0
            for what in ("first", "nothing changed", "1 % changed"):
                if what == "1 % changed":
                    for number in range(changed):
                        put_image(repository, number, 2 + run)
                read, took = collect(origin, directory)
                total = total or read
                shares.setdefault(what, []).append(100 * read / total)
                seconds.setdefault(what, []).append(took)
    rows = []
    for what, values in shares.items():
        is_bound = what == "1 % changed"
        rows.append(
            Row(
                f"{what}: of the manifests' bytes",
                Series("acstor", "%", values),
                target=f"< {100 * READ_SHARE_MAX:g} %" if is_bound else "",
                is_met=comparison.at_most(100 * READ_SHARE_MAX) if is_bound else None,
            )
        )
        rows.append(Row(f"{what}: time", Series("acstor", "s", seconds[what])))
    comparison.report(f"Collections of {options.images} images", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
