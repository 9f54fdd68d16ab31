"""The registrar as a program: images over HTTP, children that register, an origin on a disk."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from testbed.doubles.registrar_cloud import content_of
from testbed.fixtures import poisoned_registrar
from testbed.fixtures.registrar_deployment import Deployment

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")

MEMORY_MAX_KIB = 300 << 10
"""Most memory of the registrar itself, whatever images describe; its start takes a third of it."""


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Iterator[Deployment]:
    with contextlib.closing(Deployment(tmp_path)) as made:
        made.start()
        yield made


def test_size_of_disks_costs_the_registrar_nothing(deployment: Deployment) -> None:
    huge = {size: deployment.create(number, size) for number, size in enumerate(("1T", "1P"))}
    raw = deployment.upload(7, content_of(7), "raw")
    small = deployment.create(8, "64M")
    for image in (raw, small):
        entry = deployment.wait(image, "registered", "failed", "left")
        assert entry.state == "registered", entry.reason
    assert deployment.repository.get_image(small).record.size_bytes == 64 << 20
    for size, image in huge.items():
        entry = deployment.wait(image, "registered", "failed", "left")
        assert entry.state == "left", (size, entry.reason)
        assert "more than disk_size_max = 274877906944" in entry.reason
    assert deployment.peak_kib() < MEMORY_MAX_KIB
    deployment.program.terminate()
    assert deployment.program.wait(60) == 0


def test_projects_wait_neither_for_a_queue_nor_for_an_image_that_kills(
    tmp_path: pathlib.Path,
) -> None:
    """One project uploads many, one of which no process survives; two others upload a few."""
    counts = {"greedy": 8, "modest": 2, "other": 2}
    poison = "00000000-0000-4000-8000-000000000000"
    deployment = Deployment(
        tmp_path,
        program=(poisoned_registrar.__file__, poison),
        options="interval = 3600\nretry_delay = 0.5\nretry_delay_max = 0.5\n",
    )
    with contextlib.closing(deployment):
        owners = {
            deployment.upload(number, content_of(number), "raw", owner=owner): owner
            for number, owner in enumerate(
                owner for owner, count in counts.items() for _ in range(count)
            )
        }
        assert owners[poison] == "greedy"
        deployment.start()
        for image in owners.keys() - {poison}:
            entry = deployment.wait(image, "registered", "failed", "left")
            assert entry.state == "registered", entry.reason
        entry = deployment.wait(poison, "failed")
        assert "was killed by SIGSEGV" in entry.reason
    downloads = [path.split("/")[3] for path in deployment.glance.paths if path.endswith("/file")]
    assert downloads.count(poison) > 1, "it was not tried again"
    for owner in ("modest", "other"):
        theirs = [place for place, image in enumerate(downloads) if owners[image] == owner]
        # Three projects take turns, so that the n-th image of one is among the first 3 n.
        assert all(place < 3 * (nth + 1) for nth, place in enumerate(theirs)), downloads
