"""Pages at 10 000 versions: as many calls and rows as at ten."""

import re
import uuid

import pytest

from acstor.repository.versions.record import DiskKind, DiskName
from acstor.versions.database.tables import VERSIONS
from acstor.versions.database.version_index import IndexedVersion
from tests.unit.api.setting import SERVER
from tests.unit.dashboard.site import Site, text_of
from tests.unit.repository.versions.records import committed

PANEL = "/project/acstor_versions/"
DISK = DiskName(DiskKind.INSTANCE, SERVER, "vda")


def fill(site: Site, count: int) -> None:
    """Have the index list versions: copies of a row; nobody asks for their records."""
    record = committed(project=site.setting.project, disk=DISK)
    index, database = site.setting.stores.versions, site.setting.database
    index.put(IndexedVersion.of(str(uuid.UUID(int=0)), record))
    (row,) = database.read(lambda one: one.execute(VERSIONS.select()).mappings().all())
    rows = [
        {
            **row,
            "id": str(uuid.UUID(int=number)),
            "name": f"v{number}",
            "created_at": row["created_at"] + 1000 * number,
        }
        for number in range(1, count)
    ]
    database.write(lambda one: one.execute(VERSIONS.insert(), rows))


@pytest.mark.parametrize("count", [10, 10_000])
def test_calls_and_rows_do_not_grow(site: Site, count: int) -> None:
    fill(site, count)
    text = text_of(site.get(PANEL))
    assert [call.path for call in site.take_calls()] == ["/v1/versions", "/v1/usage"]
    assert len(re.findall(r"data-object-id", text)) == min(count, 20)
    assert len(text) < 200_000
    timeline = text_of(site.get(f"{PANEL}servers/{SERVER}/"))
    assert len(site.take_calls()) == (1 if count <= 20 else 2)
    assert timeline.count("<circle") == min(count, 200)
