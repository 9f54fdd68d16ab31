"""Locations of images in RBD: those of Glance's own store are believed, and no others."""

import pytest

from acstor.repository.source.rbd.location import RbdLocation, find_location

IMAGE = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
FSID = "11111111-0000-4000-8000-000000000000"


def location(image: str = IMAGE, pool: str = "images", snapshot: str = "snap") -> str:
    return f"rbd://{FSID}/{pool}/{image}/{snapshot}"


def test_location_of_glance_is_found_among_others() -> None:
    told = ["https://elsewhere/file", location(pool="volumes"), location()]
    assert find_location(IMAGE, told, ["images"]) == RbdLocation(FSID, "images", IMAGE, "snap")


def test_parts_are_unquoted() -> None:
    found = RbdLocation.parse("rbd://a%20b/p%2Fq/i/s")
    assert found == RbdLocation("a b", "p/q", "i", "s")


@pytest.mark.parametrize(
    "told",
    [
        location(image=OTHER),
        location(pool="volumes"),
        location(snapshot="later"),
        location(pool="images%2F"),
        "rbd://" + IMAGE,
        "rbd:///images/" + IMAGE + "/snap",
        location() + "/more",
        "rbd://a/images/%00/snap",
        "file:///images/" + IMAGE,
        location(snapshot="s" * 1024),
    ],
)
def test_location_that_users_may_have_written_is_not_believed(told: str) -> None:
    assert find_location(IMAGE, [told], ["images"]) is None


def test_nothing_is_believed_without_pools() -> None:
    assert find_location(IMAGE, [location()], []) is None


def test_endless_locations_are_not_all_looked_at() -> None:
    assert find_location(IMAGE, ["rbd://x"] * 64 + [location()], ["images"]) is None
