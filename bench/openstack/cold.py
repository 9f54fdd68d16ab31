"""Making an image new to every host: under ACStor, and for stock Nova in the same cloud."""

import contextlib
import enum
import os
import subprocess
from collections.abc import Iterator

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.one_box import RunningBox
from testbed.onebox.configuration import acstor

REGISTER_TIMEOUT_S = 300.0


class Way(enum.StrEnum):
    """Delivery of an image to the hosts."""

    ACSTOR = "acstor"
    STOCK = "stock"  #: the image property ``acstor_cache=false`` leaves it to Nova


@contextlib.contextmanager
def fresh_image(box: RunningBox, template: Template, way: Way) -> Iterator[Template]:
    """Within the block there is an image that no host has seen, and no cache holds its bytes."""
    properties = {"acstor_cache": "false"} if way is Way.STOCK else {}
    image = box.api.upload_again(template, f"bench-{way}", **properties)
    try:
        if way is Way.ACSTOR:
            # Content is found by its digest, whatever the image: an earlier run's must go.
            box.wait_planted(image.id, timeout=REGISTER_TIMEOUT_S)
            empty_chunk_stores(box)
            box.wait_planted(image.id, timeout=REGISTER_TIMEOUT_S)
        else:
            box.wait_registry(image.id, {"left"})
            for host in box.hosts:
                if host.base_kind(image.id) != "nothing":
                    raise SystemExit(
                        f"an image that is to be stock: {host.describe_base(image.id)}"
                    )
        drop_page_cache(box, image.id)
        yield image
    finally:
        box.api.delete_image(image.id)
        for host in box.hosts:
            if host.base_kind(image.id) == "file":
                host.path(host.base_path(image.id)).unlink()


def empty_chunk_stores(box: RunningBox) -> None:
    """Make the data planes forget all chunks; no guest may run on them."""
    box.stop_acstor(*box.hosts)
    for host in box.hosts:
        store = host.path(acstor.STORE)
        for path in store.iterdir():
            path.unlink()
    box.start_acstor(*box.hosts)
    for host in box.hosts:
        wait_for(f"the data plane of {host.name} serves", host.serves, 60, 0.2)


def drop_page_cache(box: RunningBox, image_id: str) -> None:
    """Take the image's data in Glance and everything in the origin out of the page cache.

    Only these: what else a boot reads, QEMU for instance, is as warm on a host that never saw an
    image as on one that did.
    """
    subprocess.run(["sync"], check=True, timeout=300)
    origin = box.directory.shared / "origin"
    for path in (box.glance_file(image_id), *origin.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
