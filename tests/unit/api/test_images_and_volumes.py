"""Images and volumes over the API."""

import dataclasses
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.api.user_services import Kind, SeenThing
from acstor.repository import layout
from acstor.repository.volumes.durability import Durability, DurabilityClass, Region
from acstor.repository.volumes.record import VolumeRecord
from testbed.fixtures.api_callers import first_error
from tests.unit.api.setting import IMAGE, VOLUME, Setting
from tests.unit.api.test_cluster import state
from tests.unit.api.versions.test_versions import all_of

RECORD = VolumeRecord(
    1 << 30, owner="h1", hosts=("h1",), epoch=1,
    durability=Durability(DurabilityClass.WRITE_BACK, 30.0),
)  # fmt: skip


def add_images(api: Setting, count: int) -> list[str]:
    """Have the project see images, the first of which is registered."""
    ids = [IMAGE, *(str(uuid.UUID(int=number)) for number in range(1, count))]
    api.user_services.seen[Kind.IMAGE] = [SeenThing(each, f"i{each[-1]}", 7) for each in ids]
    api.user_services.owners |= dict.fromkeys(ids, api.project)
    api.origin.swap_ref(layout.image_ref(IMAGE), None, b"a record")
    return ids


def add_volume(api: Setting, record: VolumeRecord = RECORD) -> None:
    """Have the project see a volume of ACStor, and one of another back-end."""
    other = str(uuid.UUID(int=9))
    api.user_services.seen[Kind.VOLUME] = [
        SeenThing(VOLUME, "data", 1 << 30),
        SeenThing(other, "other", 1 << 30),
    ]
    api.user_services.owners[other] = api.project
    api.origin.swap_ref(layout.volume_ref(VOLUME), None, record.encode())


def test_images_tell_how_many_hosts_have_them(api: Setting) -> None:
    ids = add_images(api, 2)
    api.watch.note(state("cmp-1", coverage={IMAGE: 1.0}))
    api.watch.note(state("cmp-2", coverage={IMAGE: 0.5}))
    shown = api.member.get(f"/v1/images/{IMAGE}").json["image"]
    assert shown["coverage"] == {"hosts": 2, "hosts_whole": 1}
    assert (shown["state"], shown["size_bytes"]) == ("ready", 7)
    found = all_of(api.member, "/v1/images", "images")
    assert [each["id"] for each in found] == ids
    assert found[0] == shown
    assert found[1]["state"] == "absent"


def test_pages_have_every_image_once(api: Setting) -> None:
    ids = add_images(api, 7)
    found = all_of(api.member, "/v1/images?limit=3", "images")
    assert [each["id"] for each in found] == ids
    named = all_of(api.member, "/v1/images?name=i3", "images")
    assert [each["id"] for each in named] == [ids[3]]


def test_volumes_of_other_back_ends_are_left_out(api: Setting) -> None:
    add_volume(api)
    (found,) = all_of(api.member, "/v1/volumes?limit=1", "volumes")
    assert (found["id"], found["durability"]) == (VOLUME, "write-back")
    assert (found["interval_seconds"], found["recovery_point"]) == (30.0, None)
    assert "host" not in found
    (found,) = all_of(api.member.as_role("admin"), "/v1/volumes", "volumes")
    assert found["host"] == "h1"


def test_owner_tells_the_recovery_point(api: Setting) -> None:
    add_volume(api)
    api.told["h1", VOLUME] = {"recovery_point_age_s": 12, "dirty_bytes": 3145728}
    found = api.member.get(f"/v1/volumes/{VOLUME}").json["volume"]
    assert found["recovery_point"] == {"at": "2026-11-26T11:59:48Z", "age_seconds": 12}
    assert found["dirty_bytes"] == 3145728


@pytest.mark.parametrize(
    "told", [None, {}, {"recovery_point_age_s": -1, "dirty_bytes": "x"}, {"dirty_bytes": True}]
)
def test_owner_that_is_silent_or_tells_nonsense_hides_nothing_else(api: Setting, told: Any) -> None:
    add_volume(api)
    if told is not None:
        api.told["h1", VOLUME] = told
    found = api.member.get(f"/v1/volumes/{VOLUME}").json["volume"]
    assert (found["recovery_point"], found["dirty_bytes"]) == (None, None)
    assert found["size_bytes"] == 1 << 30


def test_volume_without_owner_is_all_in_the_origin(api: Setting) -> None:
    add_volume(api, dataclasses.replace(RECORD, owner=None))
    found = api.member.get(f"/v1/volumes/{VOLUME}").json["volume"]
    assert (found["recovery_point"], found["dirty_bytes"]) == (None, 0)


@pytest.mark.parametrize("kind", ["image", "volume"])
def test_unknown_ones_are_not_found(api: Setting, kind: str) -> None:
    add_volume(api)
    for each in (str(uuid.UUID(int=77)), str(uuid.UUID(int=9))):
        answer = api.member.get(f"/v1/{kind}s/{each}")
        assert (answer.status_code, first_error(answer)["code"]) == (
            404,
            f"acstor.{kind}.not_found",
        )


def test_service_that_is_away_is_told(api: Setting) -> None:
    api.user_services.error = exception.UnavailableError("Glance is away")
    assert api.member.get("/v1/images").status_code == 503


def change(api: Setting, **wanted: Any) -> Any:
    """Have a member change the volume."""
    return api.member.as_role("manager").ask("PATCH", f"/v1/volumes/{VOLUME}", {"volume": wanted})


def durability_of(api: Setting) -> Durability:
    """Return the durability that the record of the volume has."""
    found = api.origin.get_ref(layout.volume_ref(VOLUME))
    assert found is not None
    return VolumeRecord.parse(found.content, VOLUME).durability


def test_durability_is_changed_in_the_record_and_on_the_owner(api: Setting) -> None:
    regions = (Region(DurabilityClass.NONE, partition="swap"),)
    add_volume(
        api,
        dataclasses.replace(
            RECORD, durability=Durability(DurabilityClass.WRITE_THROUGH, regions=regions)
        ),
    )
    api.told["h1", VOLUME] = {"recovery_point_age_s": 12, "dirty_bytes": 5}
    answer = change(api, durability="write-back", interval_seconds=10)
    assert answer.status_code == 200, answer.text
    shown = answer.json["volume"]
    assert (shown["durability"], shown["interval_seconds"]) == ("write-back", 10)
    assert shown["dirty_bytes"] == 5
    wanted = Durability(DurabilityClass.WRITE_BACK, 10, regions=regions)
    assert durability_of(api) == wanted
    assert api.orders == [("h1", VOLUME, wanted)]


def test_interval_alone_leaves_the_durability(api: Setting) -> None:
    add_volume(api, dataclasses.replace(RECORD, owner=None))
    assert change(api, interval_seconds=2.5).status_code == 200
    assert durability_of(api) == Durability(DurabilityClass.WRITE_BACK, 2.5)
    assert api.orders == []


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"durability": "write-through", "interval_seconds": 10},
        {"durability": "eventual"},
        {"interval_seconds": 0.01},
        {"interval_seconds": 1e6},
        {"size_bytes": 5},
    ],
)
def test_durability_that_makes_no_sense_is_refused(api: Setting, wanted: dict[str, Any]) -> None:
    add_volume(api, dataclasses.replace(RECORD, owner=None))
    assert change(api, **wanted).status_code == 400
    assert durability_of(api) == RECORD.durability


def test_durability_none_is_refused_during_a_live_migration(api: Setting) -> None:
    add_volume(api, dataclasses.replace(RECORD, hosts=("h1", "h2"), is_standby_allowed=True))
    api.told["h1", VOLUME] = {}
    answer = change(api, durability="none")
    assert answer.status_code == 409
    assert "live migration" in first_error(answer)["detail"]
    assert durability_of(api) == RECORD.durability
    assert api.orders == []


def test_nothing_is_changed_while_the_owner_is_silent(api: Setting) -> None:
    add_volume(api)
    assert change(api, durability="write-through").status_code == 503
    assert durability_of(api) == RECORD.durability


def test_change_is_repeated_where_the_owner_did_not_hear_of_it(api: Setting) -> None:
    add_volume(api)
    api.told["h1", VOLUME] = {}
    api.tell_error = exception.DeadlineError("host h1 does not answer")
    assert change(api, durability="write-through").status_code == 503
    api.tell_error = None
    assert change(api, durability="write-through").status_code == 200
    assert api.orders == [("h1", VOLUME, Durability(DurabilityClass.WRITE_THROUGH, 30.0))]


def test_owner_that_has_closed_the_volume_finds_it_in_the_record(api: Setting) -> None:
    add_volume(api)
    api.told["h1", VOLUME] = {}
    api.tell_error = exception.NotFoundError("it is not open there")
    assert change(api, durability="write-through").status_code == 200


def test_reader_does_not_change_the_durability(api: Setting) -> None:
    add_volume(api)
    body = {"volume": {"durability": "none"}}
    answer = api.member.ask("PATCH", f"/v1/volumes/{VOLUME}", body)
    assert answer.status_code == 403
