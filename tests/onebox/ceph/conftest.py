"""A one-box whose origin is in Ceph, for every module of this folder."""

import pytest

from testbed.fixtures.one_box import RunningBox
from testbed.onebox.configuration.acstor import Origin


@pytest.fixture(scope="package")
def ceph_box(whole_box: RunningBox) -> RunningBox:
    """The one-box that runs on this machine, if its origin is in Ceph."""
    if whole_box.origin is not Origin.CEPH:
        pytest.skip("the one-box has its origin elsewhere; see tools/onebox up --origin ceph")
    return whole_box


@pytest.fixture
def box(ceph_box: RunningBox, box: RunningBox) -> RunningBox:
    """The one-box; the test must leave every service of it running, Ceph's among them."""
    return box
