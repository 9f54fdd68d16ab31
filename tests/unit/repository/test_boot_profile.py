"""Boot profiles, merged in the origin."""

import json
import pathlib
import threading
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.control import bitmap, rank_list
from acstor.origin.memory import MemoryOrigin
from acstor.repository.gc.garbage import Collector
from acstor.repository.images import boot_profile
from acstor.repository.images.boot_kinds import Boot, Kind
from acstor.repository.images.boot_profile import (
    CONTENT_SIZE_MAX,
    VERSION,
    BootProfile,
    add,
    boot_profile_ref,
    forget,
    read,
)
from acstor.repository.repository import Repository

GOLDEN = pathlib.Path(__file__).parents[3] / "tests" / "golden" / "boot-profile-v1.json"
IMAGE = str(uuid.UUID(int=1))
CHUNKS = 1000
ORDER = (0, 999, *range(100, 130))


def boot(host: str = "h1", number: int = 1, order: tuple[int, ...] = ORDER) -> Boot:
    return Boot(host, number, order)


def golden_profile() -> BootProfile:
    profile = BootProfile(CHUNKS)
    for one in (boot(), boot("h2", 7, (0, 999, *range(102, 130), 100)), boot("h2", 8, ORDER[::-1])):
        profile = profile.merged(one)
    return profile.merged(boot("h1", 2, tuple(range(500, 540))))


def test_boot_profile_version_requires_update() -> None:
    assert VERSION == 1
    golden = GOLDEN.read_bytes()
    found = BootProfile.parse(golden, IMAGE)
    assert found == golden_profile()
    # Not compared byte by byte: how zlib compresses is not ours to promise.
    assert json.loads(found.encode()).keys() == json.loads(golden).keys()
    assert BootProfile.parse(found.encode(), IMAGE) == found


def test_first_profile_of_one_host_alone_is_used_and_then_what_two_agree_on() -> None:
    origin = MemoryOrigin()
    lone = add(origin, IMAGE, CHUNKS, [boot()])
    assert read(origin, IMAGE) == lone
    assert [kind.order() for kind in lone.used] == [ORDER]
    other = add(origin, IMAGE, CHUNKS, [boot("h2", 1, tuple(range(500, 540)))])
    assert other.used == ()
    agreed = add(origin, IMAGE, CHUNKS, [boot("h3", 1)])
    assert [kind.order() for kind in agreed.used] == [ORDER]


def test_boot_that_is_told_twice_counts_once() -> None:
    origin = MemoryOrigin()
    first = add(origin, IMAGE, CHUNKS, [boot()])
    ref = origin.get_ref(boot_profile_ref(IMAGE))
    assert add(origin, IMAGE, CHUNKS, [boot()]) == first
    assert origin.get_ref(boot_profile_ref(IMAGE)) == ref, "nothing was written"
    assert add(origin, IMAGE, CHUNKS, [boot("h2")]).reports == 2
    assert add(origin, IMAGE, CHUNKS, [boot(), boot("h2"), boot("h2", 2)]).reports == 3


def test_what_is_no_boot_of_the_disk_is_left_out() -> None:
    origin = MemoryOrigin()
    assert add(origin, IMAGE, CHUNKS, [boot(order=tuple(range(15)))]).kinds == ()
    (kind,) = add(origin, IMAGE, CHUNKS, [boot(order=(*ORDER, CHUNKS, -1))]).kinds
    assert kind.order() == ORDER
    longest = tuple(range(rank_list.CHUNKS_MAX + 9))
    (kind,) = add(origin, str(uuid.UUID(int=2)), 1 << 20, [boot(order=longest)]).kinds
    assert len(kind.boots[0].order) == rank_list.CHUNKS_MAX


def test_hosts_that_report_at_once_lose_nothing() -> None:
    origin = MemoryOrigin()
    threads = [
        threading.Thread(target=add, args=(origin, IMAGE, CHUNKS, [boot(f"h{number}")]))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = read(origin, IMAGE)
    assert found is not None
    assert [len(kind.boots) for kind in found.kinds] == [8]


def test_longest_profile_fits() -> None:
    profile = BootProfile(1 << 30)
    for kind in range(3):
        step = (1 << 30) // rank_list.CHUNKS_MAX - 1
        order = tuple(kind + step * chunk for chunk in range(rank_list.CHUNKS_MAX))
        order = (*order[::2], *order[1::2])
        boots = [Boot(f"h{number}", number, order) for number in range(16)]
        profile = BootProfile(
            profile.chunk_count,
            (*profile.kinds, Kind(tuple(boots), kind, 16)),
            16 * (kind + 1),
            "h0",
            False,
        )
    content = profile.encode()
    assert len(content) < CONTENT_SIZE_MAX
    assert BootProfile.parse(content, IMAGE) == profile


def order_text(*orders: tuple[int, ...]) -> str:
    return bitmap.encode(rank_list.encode(orders))


def with_boot(**fields: Any) -> list[dict[str, Any]]:
    one = {"host": "h1", "number": 1, "order": order_text(ORDER)} | fields
    return [{"matched": 1, "total": 1, "boots": [one]}]


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 0},
        {"version": "1"},
        {"chunk_count": -1},
        {"chunk_count": (1 << 30) + 1},
        {"reports": None},
        {"first_host": 5},
        {"first_host": "x" * 256},
        {"is_lone": 1},
        {"kinds": None},
        {"kinds": [{}] * 4},
        {"kinds": [{"matched": 1, "total": 0, "boots": []}]},
        {"kinds": [{"matched": 5, "total": 1, "boots": with_boot()[0]["boots"]}]},
        {"kinds": [{"matched": 1, "total": 17, "boots": with_boot()[0]["boots"] * 17}]},
        {"kinds": with_boot(host="")},
        {"kinds": with_boot(host="a\nb")},
        {"kinds": with_boot(number=-1)},
        {"kinds": with_boot(order=None)},
        {"kinds": with_boot(order="!")},
        {"kinds": with_boot(order=order_text((CHUNKS,)))},
        {"kinds": with_boot(order=order_text(ORDER, ORDER))},
        {"kinds": with_boot(order=bitmap.encode(bytes(64 << 20)))},
    ],
)
def test_malformed_content_is_corrupt_and_learnt_again(fields: dict[str, object]) -> None:
    origin = MemoryOrigin()
    content = json.loads(golden_profile().encode()) | {"reports": 4} | fields
    origin.swap_ref(boot_profile_ref(IMAGE), None, json.dumps(content).encode())
    with pytest.raises(exception.CorruptError):
        read(origin, IMAGE)
    assert add(origin, IMAGE, CHUNKS, [boot()]).reports == 1
    assert read(origin, IMAGE) is not None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b"[" * 5000, b"\xff"])
def test_content_that_is_no_profile_is_corrupt(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        BootProfile.parse(content, IMAGE)


def test_content_that_is_too_long_is_not_looked_at() -> None:
    with pytest.raises(exception.CorruptError):
        BootProfile.parse(b" " * (CONTENT_SIZE_MAX + 1), IMAGE)


def test_profile_of_a_newer_release_stays() -> None:
    origin = MemoryOrigin()
    origin.swap_ref(boot_profile_ref(IMAGE), None, b'{"version": 2}')
    with pytest.raises(exception.UnsupportedError):
        add(origin, IMAGE, CHUNKS, [boot()])
    ref = origin.get_ref(boot_profile_ref(IMAGE))
    assert ref is not None
    assert ref.content == b'{"version": 2}'


def test_profile_of_a_disk_of_another_length_is_replaced() -> None:
    origin = MemoryOrigin()
    add(origin, IMAGE, 2 * CHUNKS, [boot("h1"), boot("h2")])
    profile = add(origin, IMAGE, CHUNKS, [boot("h3")])
    assert (profile.chunk_count, profile.reports) == (CHUNKS, 1)


def test_removed_image_takes_its_profile_along() -> None:
    origin = MemoryOrigin()
    repository = Repository.init(origin)
    add(origin, IMAGE, CHUNKS, [boot()])
    origin.swap_ref(f"images/{IMAGE}", None, b"{}")
    repository.remove_image(IMAGE)
    assert read(origin, IMAGE) is None
    assert not forget(origin, IMAGE)


def test_garbage_collection_removes_profiles_of_images_that_are_gone() -> None:
    origin = MemoryOrigin()
    repository = Repository.init(origin)
    add(origin, IMAGE, CHUNKS, [boot()])
    origin.swap_ref(f"{boot_profile.PREFIX}not-ours", None, b"{}")
    assert Collector(repository, "h1", 0.0).collect().boot_profiles == 1
    assert list(origin.list_refs(boot_profile.PREFIX)) == [f"{boot_profile.PREFIX}not-ours"]
