"""A Ceph for the suites that run over it, too."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from acstor.origin.rados import binding
from testbed.fixtures.ceph import CephNode, ceph_node
from tests.compliance.origins import ERASURE_POOL, POOL

OSD_BYTES = 4 << 30
OSDS = 3
"""As many as an erasure-coded pool of two and one needs."""


@pytest.fixture(scope="session")
def ceph() -> Iterator[CephNode]:
    if os.geteuid() != 0 or shutil.which("ceph-osd") is None or binding.find() is None:
        pytest.skip("needs root, ceph-mon, ceph-osd, ceph-mgr, ceph-common and python3-rados")
    with (
        tempfile.TemporaryDirectory(prefix="ceph-", dir="/tmp") as directory,
        ceph_node(pathlib.Path(directory, "node"), OSD_BYTES, OSDS) as node,
    ):
        node.make_pool(POOL)
        profile = ["k=2", "m=1", "crush-failure-domain=osd"]
        node.run("ceph", "osd", "erasure-code-profile", "set", "two-and-one", *profile)
        node.make_pool(ERASURE_POOL, "erasure", "two-and-one")
        yield node
