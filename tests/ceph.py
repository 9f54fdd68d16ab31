"""One Ceph for all tests of a process that run over it."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from acstor.origin.rados import binding
from testbed.fixtures.ceph import CephNode, ceph_node

POOL, ERASURE_POOL, REF_POOL = "acstor", "acstor-stripes", "acstor-refs"
OSD_BYTES = 4 << 30
OSDS_ERASURE = 3
"""OSDs that an erasure-coded pool of two and one needs; runs that are not extended have one."""


@pytest.fixture(scope="session")
def ceph(request: pytest.FixtureRequest) -> Iterator[CephNode]:
    is_extended = request.config.getoption("--extended")
    if os.geteuid() != 0 or shutil.which("ceph-osd") is None or binding.find() is None:
        pytest.skip("needs root, ceph-mon, ceph-osd, ceph-mgr, ceph-common and python3-rados")
    with (
        tempfile.TemporaryDirectory(prefix="ceph-", dir="/tmp") as directory,
        ceph_node(
            pathlib.Path(directory, "node"), OSD_BYTES, OSDS_ERASURE if is_extended else 1
        ) as node,
    ):
        node.make_pool(POOL)
        node.make_pool(REF_POOL)
        if is_extended:
            profile = ["k=2", "m=1", "crush-failure-domain=osd"]
            node.run("ceph", "osd", "erasure-code-profile", "set", "two-and-one", *profile)
            node.make_pool(ERASURE_POOL, "erasure", "two-and-one")
        yield node
