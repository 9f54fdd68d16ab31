"""In whose scope what is written to a volume is named."""

import dataclasses
import pathlib
import random
import uuid
from unittest import mock

import pytest
from cinder.image import image_utils

from acstor import exception
from acstor.drivers.cinder.back_end import BackEnd, origin_settings
from acstor.drivers.cinder.local_disk import make_clone
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.dedup_scope import DedupScope
from acstor.repository.repository import Format
from acstor.repository.upgrade import upgrade
from testbed.fixtures.cinder_driver import CHUNK_SIZE, H1, PROJECT, DriverHarness

OTHER = "e2b5a1c07f3d4c9a8b6e5d4c3b2a1908"
CONTENT = random.Random(1).randbytes(3 * CHUNK_SIZE)


def set_scope(harness: DriverHarness, scope: DedupScope) -> None:
    harness.back_end.settings = dataclasses.replace(harness.back_end.settings, dedup_scope=scope)


@pytest.fixture
def apart(harness: DriverHarness) -> DriverHarness:
    """The driver where projects share no chunks."""
    set_scope(harness, DedupScope.PROJECT)
    return harness


def test_volume_has_no_scope_where_that_is_the_cloud(harness: DriverHarness) -> None:
    volume = harness.created()
    harness.attach(volume, H1)
    assert harness.record(volume).dedup_scope is None
    assert b"dedup_scope" not in harness.record(volume).encode()


def test_new_volume_has_the_scope_of_its_project(apart: DriverHarness) -> None:
    volume = apart.created()
    assert apart.record(volume).dedup_scope == PROJECT
    apart.attach(volume, H1)
    assert apart.record(volume).dedup_scope == PROJECT


def test_volume_of_an_image_or_snapshot_has_the_scope_of_its_own_project(
    apart: DriverHarness,
) -> None:
    image_id = apart.image(CONTENT)
    volume = apart.volume(project_id=OTHER)
    apart.driver.clone_image(apart.context, volume, None, {"id": image_id}, None)
    assert apart.record(volume).dedup_scope == OTHER
    manifest = apart.back_end.repository.get_image(image_id).record.manifest
    assert apart.record(volume).manifest == manifest, "with the image's names"
    snapshot = apart.snapshot(volume)
    apart.driver.create_snapshot(snapshot)
    restored, cloned = apart.volume(), apart.volume()
    apart.driver.create_volume_from_snapshot(restored, snapshot)
    apart.driver.create_cloned_volume(cloned, volume)
    assert {apart.record(made).dedup_scope for made in (restored, cloned)} == {PROJECT}


@pytest.mark.parametrize("scope", DedupScope)
def test_clone_for_reading_has_the_scope_of_what_is_read(
    harness: DriverHarness, scope: DedupScope
) -> None:
    set_scope(harness, scope)
    volume = harness.created()
    clone = make_clone(harness.back_end, str(volume.id), None)
    found = harness.back_end.volumes.get(clone).record
    assert found.dedup_scope == harness.record(volume).dedup_scope


@pytest.mark.parametrize(
    ("before", "after", "project", "expected"),
    [
        (DedupScope.CLOUD, DedupScope.PROJECT, PROJECT, PROJECT),
        (DedupScope.PROJECT, DedupScope.CLOUD, PROJECT, None),
        (DedupScope.PROJECT, DedupScope.PROJECT, OTHER, OTHER),
    ],
    ids=["configured later", "configured no longer", "transferred"],
)
def test_volume_has_its_scope_from_its_next_attachment_on(
    harness: DriverHarness,
    before: DedupScope,
    after: DedupScope,
    project: str,
    expected: str | None,
) -> None:
    set_scope(harness, before)
    volume = harness.created()
    set_scope(harness, after)
    volume.project_id = project
    harness.attach(volume, H1)
    assert harness.record(volume).dedup_scope == expected


def test_image_that_is_copied_is_named_in_the_scope_of_each_volume(apart: DriverHarness) -> None:
    def fetch(context: object, service: object, image_id: str, path: str, *more: object) -> None:
        pathlib.Path(path).write_bytes(CONTENT)

    origin, packs = apart.back_end.repository.origin, []
    with mock.patch.object(image_utils, "fetch_to_raw", lambda *some, **more: fetch(*some)):
        for project in (PROJECT, OTHER, PROJECT):
            volume = apart.created(project_id=project)
            apart.driver.copy_image_to_volume(apart.context, volume, None, str(uuid.uuid4()))
            record = apart.record(volume)
            assert apart.content(record.manifest, len(CONTENT)) == CONTENT
            assert record.dedup_scope == project
            packs.append(len(list(origin.list(layout.PACK_PREFIX))))
    assert packs == [1, 2, 2], "stored once for each project"


def test_scope_that_the_repository_cannot_have_is_refused(harness: DriverHarness) -> None:
    settings = dataclasses.replace(harness.back_end.settings, dedup_scope=DedupScope.PROJECT)
    origin = MemoryOrigin()
    origin.put_if_absent("format", [Format(str(uuid.uuid4()), CHUNK_SIZE, version=3).encode()])
    BackEnd(harness.back_end.settings, origin, harness.hosts)
    with pytest.raises(exception.UnsupportedError, match="needs 4") as refused:
        BackEnd(settings, origin, harness.hosts)
    assert "acstor repository upgrade" in refused.value.hint
    upgrade(origin)
    BackEnd(settings, origin, harness.hosts)


@pytest.mark.parametrize(
    ("own", "of_conf", "expected"),
    [
        (None, None, DedupScope.CLOUD),
        (None, "project", DedupScope.PROJECT),
        ("project", None, DedupScope.PROJECT),
        ("cloud", "project", DedupScope.CLOUD),
    ],
)
def test_scope_is_that_of_the_back_end_or_of_acstor_conf(
    tmp_path: pathlib.Path, own: str | None, of_conf: str | None, expected: DedupScope
) -> None:
    path = tmp_path / "acstor.conf"
    lines = ["[origin]", "url = posix:///srv/x", "[repository]"]
    path.write_text("\n".join([*lines, f"dedup_scope = {of_conf}" if of_conf else "", ""]))
    configuration = mock.Mock()
    options: dict[str, object] = {"acstor_conf": str(path), "acstor_dedup_scope": own}
    configuration.safe_get = options.get
    found = origin_settings(configuration)
    assert (found.url, found.dedup_scope) == ("posix:///srv/x", expected)
    options |= {"acstor_origin_url": "posix:///srv/y", "acstor_origin_timeout": 1.0}
    found = origin_settings(configuration)
    assert (found.url, found.dedup_scope) == ("posix:///srv/y", DedupScope(own or "cloud"))
