"""Distribution of tests over processes: by file, the longest first, and Ceph in one process."""

import pytest
from xdist.scheduler import LoadFileScheduling

LONGEST = (
    "tests/unit/versions/flows/test_restore_server_faults.py",
    "tests/unit/versions/flows/test_create_version.py",
    "tests/unit/versions/flows/test_preload_image.py",
    "tests/unit/versions/flows/test_export_version.py",
    "tests/unit/versions/flows/test_restore_volume.py",
    "tests/unit/drivers/test_cinder.py",
    "tests/unit/repository/test_garbage_interleaving.py",
    "tests/unit/repository/test_volume_interleaving.py",
    "tests/unit/repository/test_compaction_interleaving.py",
    "tests/unit/repository/test_version_interleaving.py",
    "tests/unit/dataplane/test_ownership_interleaving.py",
    "tests/unit/versions/flows/test_make_image.py",
    "tests/unit/versions/flows/test_delete_and_expire.py",
    "tests/unit/api/test_openapi.py",
    "tests/unit/repository/copying/test_copies_cut_off.py",
)
"""Files that take longest: what begins last is what the other processes wait for at the end."""
CEPH = "what is parametrized with Ceph"


def longest_first(items: list[pytest.Item]) -> None:
    """Put the longest files first, and after them what Ceph has to come up for."""
    places = {file: place for place, file in enumerate(LONGEST)}

    def place_of(item: pytest.Item) -> int:
        unit = unit_of(item.nodeid)
        return len(places) if unit == CEPH else places.get(unit, len(places) + 1)

    items.sort(key=place_of)


def unit_of(nodeid: str) -> str:
    """Return what runs in one process, in order: the tests of a file, or those over Ceph.

    Each process that has one of these starts a cluster of its own, which takes a good part of a
    processor for as long as the process lives.
    """
    file, _, test = nodeid.partition("::")
    _, _, parameters = test.partition("[")
    return CEPH if file.startswith("tests/compliance/") and "rados" in parameters else file


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """The distribution of ``--dist loadfile``, with these units in the order of the items."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        """Keep the order that the processes have collected their items in."""
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
