"""Services do not take a backup for the repository, and take what was restored from it."""

import pytest

from acstor import exception
from acstor.origin import memory
from acstor.repository.opening import open_repository
from tests.unit.repository.copying.cloud import Cloud, copy


def test_services_refuse_a_backup() -> None:
    cloud, backup, live = Cloud(memory.MemoryOrigin()), memory.MemoryOrigin(), memory.MemoryOrigin()
    copy(cloud.origin, backup)
    with pytest.raises(exception.UnavailableError, match="is a backup"):
        open_repository(lambda: backup)
    copy(backup, live, is_restore=True)
    assert open_repository(lambda: live).format == cloud.repository.format
