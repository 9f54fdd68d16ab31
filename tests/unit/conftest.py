"""Things that tests of several packages need."""

import os
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from testbed.fixtures.file_systems import make_ext4, make_tree


@pytest.fixture(scope="session")
def ext4_disk(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a disk without a table, which has the files of :func:`make_tree`."""
    directory = tmp_path_factory.mktemp("ext4")
    return make_ext4(make_tree(directory), directory / "image")


@pytest.fixture(autouse=True)
def _leaves_no_foreign_configuration() -> Iterator[None]:
    """Blame the test that leaves this process's configuration to another project.

    Which tests come after it in the same process is chance, and theirs to fail. Cinder's suite has
    a process of its own (``test_cinder.py``).
    """
    yield
    assert "ACSTOR_TEST_CINDER" in os.environ or getattr(cfg.CONF, "project", None) in {
        None,
        "acstor",
    }
