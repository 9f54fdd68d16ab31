"""Things that tests of several packages need."""

import pytest

from testbed.fixtures.file_systems import make_ext4, make_tree


@pytest.fixture(scope="session")
def ext4_disk(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a disk without a table, which has the files of :func:`make_tree`."""
    directory = tmp_path_factory.mktemp("ext4")
    return make_ext4(make_tree(directory), directory / "image")
