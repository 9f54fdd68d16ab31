"""The agent is killed and started again."""

import pytest

from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]


def test_agent_killed_guests_do_not_notice(cloud: Cloud) -> None:
    """Reads go on without it; the next one takes up where it was."""
    host = cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    with CheckedReader(host.file(image), image.content, seed=10) as reader:
        reader.wait_reads(50)
        host.kill("agent")
        reader.wait_reads(100)
        host.start_agent()
        later = cloud.register(8 * MIB)
        wait_for("the new agent offers a new image", host.file(later).exists)
        reader.wait_reads(50)
    assert reader.errors == []
    assert host.file(later).read_bytes() == later.content
