"""Write-through volumes whose logs go to a real Ceph past Python, while its OSD comes and goes."""

import pathlib
import uuid
from collections.abc import Iterator

import pytest

from acstor.repository.volumes.durability import Durability, DurabilityClass
from testbed.fixtures.ceph import CephNode
from testbed.fixtures.host_volumes import CheckedWriter, Volumes, content, open_volume
from testbed.fixtures.hosts import MIB, Cloud, cloud_in
from tests.ceph import POOL, REF_POOL
from tests.compliance.origins import RADOS_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(900)]

SIZE = 16 * MIB
REQUESTS = 100
OUTAGES = 3


@pytest.fixture
def cloud(ceph: CephNode, tmp_path: pathlib.Path) -> Iterator[Cloud]:
    url = ceph.origin_url(
        POOL, namespace=uuid.uuid4().hex, ref_pool=REF_POOL, timeout=RADOS_SECONDS
    )
    with cloud_in(tmp_path, url) as cloud:
        yield cloud


def test_written_through_outlives_osds_and_the_host(
    cloud: Cloud, ceph: CephNode, tmp_path: pathlib.Path
) -> None:
    """The next owner has what a guest was told of, and nothing else."""
    control = Volumes(cloud)
    first, second = (cloud.add_host(agent=False) for _ in range(2))
    through = Durability(DurabilityClass.WRITE_THROUGH)
    volume = control.create(SIZE, first, durability=through)
    writer = CheckedWriter(open_volume(first, volume), first=0, length=SIZE, seed=7)
    try:
        for _ in range(OUTAGES):
            writer.wait_requests(REQUESTS)
            osd = ceph.osds[0]
            osd.kill()
            osd.wait(60)
            ceph.start_osd()
            writer.wait_requests(REQUESTS)
    finally:
        writer.stop()
    assert writer.problems == []
    first.kill_dataplane()
    control.move(volume, first, second)
    found = content(open_volume(second, volume), tmp_path / "content")
    assert found == bytes(writer.model)
