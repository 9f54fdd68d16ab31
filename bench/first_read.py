"""The first read of an image after its attachment, over a link of 40 Mbit/s to the origin.

A real data plane; the origin is a directory behind HTTP, and every byte from it passes one link.
The image is dense: its manifest has 49 bytes for each chunk, and its chunks are in one small pack.
Each run attaches it to an empty host in two ways, in turns, and reads one chunk in its middle:

  whole     all of the manifest is fetched, checked and handed over, as releases before did
  pages     the front of the manifest is handed over; the data plane fetches the pages that it needs

The time is from the first request for the manifest to the guest's bytes.

One command: ``python -m bench.first_read [--gib N ...] [--json FILE]``. Needs root.
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable

from acstor.agent.handing_over import hand_over
from acstor.agent.reconcilers.manifest_fetching import FetchedManifest, fetch_front, fetch_whole
from acstor.control.client import AdminClient
from acstor.origin.base import Origin
from acstor.origin.opening import open_origin
from acstor.repository import layout, upgrade
from acstor.repository.repository import COMPRESSED_VERSION
from bench import comparison
from bench.comparison import Row, Series
from testbed.doubles.manifests import CHUNK_SIZE, dense_chunk, store_dense_disk
from testbed.fixtures.hosts import Cloud, Host, cloud_in
from testbed.fixtures.throttled_origin import ThrottledOrigin
from testbed.origin_server import OriginServer

LINK_BYTES_PER_S = 40e6 / 8
SIZES_GIB = (4, 16)
TARGET_S = 1.0
_TIMES_PER_GIB = 16
"""Of the 1,024 chunks that lie one after the other."""


class Deployment:
    """A host, and an origin behind a link."""

    def __init__(self, cloud: Cloud) -> None:
        self.plain = open_origin(cloud.origin_url, 30)
        upgrade.upgrade(self.plain, COMPRESSED_VERSION)
        throttled = ThrottledOrigin(self.plain, LINK_BYTES_PER_S)
        self.server = OriginServer(("127.0.0.1", 0), throttled)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.host: Host = cloud.add_host(agent=False, origin={"url": url})
        self.origin: Origin = open_origin(url, 600)
        self.path = cloud.path / "handed.manifest"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def first_read(self, fetch: Callable[[Origin, str], FetchedManifest], gib: int) -> float:
        """Attach a new image and read a chunk; return the seconds until its bytes are there."""
        image = str(uuid.uuid4())
        times = gib * _TIMES_PER_GIB
        manifest, _ = store_dense_disk(self.plain, image, times)
        client = AdminClient(str(self.host.admin_socket), timeout=600)
        chunk = times * 1024 // 2
        begin = time.monotonic()
        fetched = fetch(self.origin, manifest)
        hand_over(client, str(self.path), fetched.content, fetched.size)
        client.call("image.attach", path=str(self.path), partial=fetched.is_partial)
        with open(self.host.file(image), "rb", buffering=0) as file:
            found = os.pread(file.fileno(), CHUNK_SIZE, chunk * CHUNK_SIZE)
        taken = time.monotonic() - begin
        if found != dense_chunk(chunk):
            raise SystemExit("the guest read other bytes")
        client.call("image.detach", image=image)
        self.plain.delete(layout.manifest_key(manifest))
        return taken


def rows_of(deployment: Deployment, gib: int, runs: int) -> Row:
    values = comparison.interleave(
        {
            "whole": lambda: deployment.first_read(fetch_whole, gib),
            "pages": lambda: deployment.first_read(fetch_front, gib),
        },
        runs,
    )
    return Row(
        f"{gib} GiB dense: first read",
        Series("pages", "s", values["pages"]),
        Series("whole", "s", values["whole"]),
        target=f"under {TARGET_S:g} s",
    )


def main() -> int:
    parser = comparison.arguments(__doc__ or "")
    parser.add_argument(
        "--gib", type=int, nargs="+", default=list(SIZES_GIB),
        help="sizes of the images (default: 4 16)",
    )  # fmt: skip
    options = parser.parse_args()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        path = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acf-")))
        deployment = Deployment(stack.enter_context(cloud_in(path)))
        stack.callback(deployment.close)
        for gib in options.gib:
            rows.append(rows_of(deployment, gib, options.runs))
            print(f"{rows[-1].what:48} {rows[-1].ours.text()}", file=sys.stderr)
    comparison.report("First read after attachment, 40 Mbit/s", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
