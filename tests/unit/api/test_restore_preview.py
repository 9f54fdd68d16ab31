"""Previews of restores of servers."""

import dataclasses
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import DiskKind, DiskName
from testbed.fixtures.api_callers import first_error
from tests.unit.api.setting import IMAGE, SERVER, VOLUME, Setting
from tests.unit.repository.images import CHUNK_SIZE, disk, register
from tests.unit.repository.versions.records import HOUR, NOON

DISK = DiskName(DiskKind.INSTANCE, SERVER, "vda")


def preview(api: Setting, version: str) -> Any:
    answer = api.member.get(f"/v1/versions/{version}/restore-preview?server_id={SERVER}")
    assert answer.status_code == 200, answer.text
    shown = answer.json["restore_preview"]
    assert (shown["version_id"], shown["server_id"]) == (version, SERVER)
    return shown


def change(api: Setting, **fields: Any) -> None:
    known = api.user_services.servers
    known[SERVER] = dataclasses.replace(known[SERVER], **fields)


def test_server_with_one_disk_is_rebuilt(api: Setting) -> None:
    shown = preview(api, api.add_version(disk=DISK))
    assert (shown["method"], shown["hint"], shown["losses"]) == ("rebuild", None, [])
    assert shown["reason"].startswith("0 to 0 bytes")
    rebuild, in_place = shown["methods"]
    assert (rebuild["method"], in_place["method"]) == ("rebuild", "in_place")
    assert (rebuild["is_possible"], in_place["is_possible"]) == (True, True)
    assert (rebuild["bytes"], in_place["bytes"], shown["compared_with"]) == (0, 0, None)


def stored(api: Setting, number: int, *chunks: int, **fields: Any) -> str:
    """Have a version with content."""
    content = disk(*chunks)
    manifest = register(api.versions.repository, number, content).manifest
    known = {"disk": DISK, "size_bytes": len(content), "manifest": manifest, "base_image": IMAGE}
    return api.add_version(**{**known, **fields})


def test_bytes_of_both_methods_are_told(api: Setting) -> None:
    old = stored(api, 1, 1, 2, 3, 4)
    newest = stored(api, 2, 1, 2, 5, 6, created_at=NOON + HOUR)
    shown = preview(api, old)
    rebuild, in_place = shown["methods"]
    assert shown["compared_with"] == newest
    assert rebuild["bytes"] == 4 * CHUNK_SIZE
    assert rebuild["bytes_at_most"] == 8 * CHUNK_SIZE
    assert 0 < in_place["bytes"] < in_place["bytes_at_most"]
    assert "compared version" in in_place["bytes_of"]
    assert "image store" in rebuild["bytes_of"]
    assert shown["method"] == "in_place"
    moved = f"{in_place['bytes']} to {in_place['bytes_at_most']} bytes are moved, by a rebuild "
    assert shown["reason"].startswith(moved)
    assert shown["hint"] is None


def test_image_that_is_there_is_told(api: Setting) -> None:
    stored(api, 2, 5, 6, created_at=NOON + HOUR)
    old = stored(api, 1, 1, 2, uses=(f"image/{VOLUME}",))
    shown = preview(api, old)
    rebuild, in_place = shown["methods"]
    assert (shown["method"], rebuild["bytes"]) == ("rebuild", 0)
    assert "which has the version" in rebuild["bytes_of"]
    assert in_place["bytes"] > 0


def test_disk_that_was_resized_is_rebuilt(api: Setting) -> None:
    change(api, disk_gib=1)
    shown = preview(api, stored(api, 1, 1, 2))
    rebuild, in_place = shown["methods"]
    assert (shown["method"], rebuild["is_possible"], in_place["is_possible"]) == (
        "rebuild",
        True,
        False,
    )
    assert "resized" in in_place["reason"]
    assert "resized" in shown["reason"]


def test_bytes_that_nobody_knows_are_null(api: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Any:
        raise exception.UnavailableError("the origin is away")

    monkeypatch.setattr("acstor.versions.moved_bytes.estimate", away)
    shown = preview(api, stored(api, 1, 1, 2))
    assert [each["bytes"] for each in shown["methods"]] == [None, None]
    assert shown["method"] == "rebuild"
    assert "not known: the origin is away" in shown["reason"]


def test_broken_server_is_rebuilt_without_a_version_of_its_disk(api: Setting) -> None:
    change(api, status="ERROR")
    shown = preview(api, api.add_version(disk=DISK))
    assert shown["method"] == "rebuild"
    assert "keep_current false" in shown["hint"]


@pytest.mark.parametrize(
    ("fields", "properties", "losses"),
    [
        ({"ephemeral_gib": 1}, {}, ["ephemeral_disk"]),
        ({"swap_mib": 1}, {"hw_firmware_type": "uefi"}, ["uefi_variables", "swap_disk"]),
        ({"flavor_specs": {"hw:tpm_version": "2.0"}}, {}, ["vtpm"]),
    ],
)
def test_losses_are_told(
    api: Setting, fields: dict[str, Any], properties: dict[str, str], losses: list[str]
) -> None:
    change(api, **fields)
    api.user_services.properties[IMAGE] = properties
    shown = preview(api, api.add_version(disk=DISK))
    assert (shown["method"], shown["losses"]) == ("in_place", losses)
    assert "would destroy" in shown["reason"]
    rebuild, in_place = shown["methods"]
    assert (rebuild["is_possible"], rebuild["losses"]) == (False, losses)
    assert (in_place["is_possible"], in_place["losses"]) == (True, [])
    change(api, disk_gib=1)
    shown = preview(api, api.add_version(disk=DISK))
    assert shown["method"] is None
    assert "version boot" in shown["hint"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"status": "SHELVED_OFFLOADED"}, "SHELVED_OFFLOADED"),
        ({"image": None}, "boots from a volume"),
        ({"is_locked": True}, "is locked"),
    ],
)
def test_server_that_cannot_be_rebuilt(api: Setting, fields: dict[str, Any], text: str) -> None:
    change(api, **fields)
    shown = preview(api, api.add_version(disk=DISK))
    assert shown["method"] is None
    assert text in shown["reason"]


@pytest.mark.parametrize(
    "disk",
    [DiskName(DiskKind.VOLUME, VOLUME), DiskName(DiskKind.INSTANCE, VOLUME, "vda")],
)
def test_version_of_something_else(api: Setting, disk: DiskName) -> None:
    assert preview(api, api.add_version(disk=disk))["method"] is None


def test_server_that_took_the_place_of_another(api: Setting) -> None:
    other = dataclasses.replace(DISK, owner=VOLUME)
    version = api.add_version(disk=other)
    api.user_services.properties[IMAGE] = {"acstor_exported_version": version}
    assert preview(api, version)["method"] == "rebuild"
    assert all(each["is_possible"] for each in preview(api, version)["methods"])
    foreign = api.add_version(disk=other, project=api.stranger.project)
    api.user_services.properties[IMAGE] = {"acstor_exported_version": foreign}
    assert preview(api, version)["method"] is None


def test_server_of_another_project_is_unknown(api: Setting) -> None:
    version = api.add_version(disk=DISK)
    api.user_services.owners[SERVER] = str(api.stranger.project)
    answer = api.member.get(f"/v1/versions/{version}/restore-preview?server_id={SERVER}")
    assert (answer.status_code, first_error(answer)["code"]) == (400, "acstor.server.unknown")


def test_glance_that_is_away_is_no_refusal(api: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Any:
        raise exception.UnavailableError("Glance is away")

    monkeypatch.setattr(api.user_services, "image_properties", away)
    version = api.add_version(disk=DISK)
    answer = api.member.get(f"/v1/versions/{version}/restore-preview?server_id={SERVER}")
    assert answer.status_code == 503
