"""Life of local files: when they are made, linked, moved back and made again."""

import pytest

from acstor.agent.reconcilers.local_files.reconciler import TEND_INTERVAL
from acstor.agent.reconcilers.local_files.room import Budget
from acstor.agent.reconcilers.local_files.work import ROOM_RETRY, JobKind
from acstor.conf.types import GIB, MIB
from acstor.drivers.nova.image_links.local_directory import file_name, partial_name
from testbed.doubles.local_files.local_image import CHUNK_SIZE, make_local_image
from tests.unit.agent.local_files.conftest import (
    IMAGE,
    OTHER,
    VERIFY_INTERVAL,
    LocalFilesHost,
)

PINNED = {"whole": frozenset({IMAGE.id}), "whole_pinned": frozenset({IMAGE.id})}


def test_preloaded_image_becomes_a_local_file(host: LocalFilesHost) -> None:
    assert host.settle() == {}
    assert host.maker.files == {}
    host.preloaded = frozenset({IMAGE.id})
    assert host.settle() == {}
    assert host.state() == "linked"
    assert host.content() == IMAGE.disk
    assert host.links.leading == {IMAGE.id}
    assert host.outcomes == ["made"]
    known = host.table.files[IMAGE.id]
    assert (known.size_bytes, known.data_bytes) == (len(IMAGE.disk), 4 * CHUNK_SIZE)
    assert known.is_sealed


def test_file_is_made_once_every_chunk_is_pinned(host: LocalFilesHost) -> None:
    host.settle(whole=PINNED["whole"])
    assert (host.state(), host.maker.files) == ("waiting", {})
    host.settle(**PINNED)
    assert host.state() == "linked"


def test_link_is_moved_when_nova_lets_it(host: LocalFilesHost) -> None:
    host.links.is_busy = True
    host.settle(**PINNED)
    assert host.state() == "ready"
    host.links.is_busy = False
    host.settle(**PINNED)
    assert host.state() == "linked"


def test_file_goes_after_its_link(host: LocalFilesHost) -> None:
    """The preload is stopped: first the link leads back to the mount, then the file is removed."""
    host.settle(**PINNED)
    host.links.is_busy = True
    host.reconcile()
    assert host.state() == "unlinking"
    assert host.work() == []
    assert host.content() == IMAGE.disk, "a link leads to it"
    host.links.is_busy = False
    host.settle()
    assert host.state() is None
    assert host.maker.files == {}


@pytest.mark.parametrize("field", ["closed", "unverified"])
def test_image_that_is_withdrawn_loses_its_file(host: LocalFilesHost, field: str) -> None:
    host.settle(**PINNED)
    host.settle(**PINNED, **{field: frozenset({IMAGE.id})})
    assert (host.state(), host.links.leading, host.maker.files) == (None, frozenset(), {})


def test_data_plane_and_origin_that_are_away_change_nothing(host: LocalFilesHost) -> None:
    host.settle(**PINNED)
    host.settle(status=None, registered=None, offered={}, origin=None)
    assert host.state() == "linked"
    # A new data plane has pinned nothing yet, and has not attached the image.
    host.settle(whole=PINNED["whole"], offered={})
    assert host.state() == "linked"
    assert host.outcomes == ["made"]


def test_replaced_manifest_means_another_file(host: LocalFilesHost) -> None:
    host.settle(**PINNED)
    replaced = make_local_image(IMAGE.id, "data zero data zero data", salt=1)
    host.images[IMAGE.id] = replaced
    host.maker.disks[IMAGE.id] = replaced.disk
    host.reconcile(**PINNED)
    assert host.state() == "unlinking"
    host.settle(**PINNED)
    assert (host.state(), host.content()) == ("linked", replaced.disk)


def test_image_that_is_not_what_its_manifest_says_never_gets_a_link(host: LocalFilesHost) -> None:
    damaged = bytearray(IMAGE.disk)
    damaged[3 * CHUNK_SIZE] ^= 1
    host.maker.disks[IMAGE.id] = bytes(damaged)
    problems = host.settle(**PINNED)
    assert "manifest" in problems[f"local file of image {IMAGE.id}"]
    assert (host.links.leading, host.maker.files, host.outcomes) == (frozenset(), {}, ["failed"])
    host.maker.disks[IMAGE.id] = IMAGE.disk
    host.clock.now += 3600
    assert host.settle(**PINNED) == {}
    assert host.state() == "linked"


def test_disk_that_holds_something_else_than_was_written_is_noticed(host: LocalFilesHost) -> None:
    host.settle()
    is_right = host.maker.is_right

    def forgetful(name: str, *rest: object) -> bool:
        host.maker.files[name] = bytes(len(IMAGE.disk))
        return is_right(name, *rest)  # type: ignore[arg-type]

    host.maker.is_right = forgetful  # type: ignore[method-assign, assignment]
    problems = host.settle(**PINNED)
    assert "does not hold" in problems[f"local file of image {IMAGE.id}"]
    assert host.maker.files == {}


def test_damaged_file_is_moved_back_and_made_again(host: LocalFilesHost) -> None:
    host.settle(**PINNED)
    host.maker.files[file_name(IMAGE.id)] = bytes(len(IMAGE.disk))
    host.clock.now += VERIFY_INTERVAL
    host.work()
    assert host.state() == "unlinking"
    assert IMAGE.id not in host.files.linkable()
    host.settle(**PINNED)
    assert (host.state(), host.content()) == ("linked", IMAGE.disk)
    assert host.outcomes == ["made", "damaged", "removed", "made"]


def test_sound_file_is_compared_and_stays(host: LocalFilesHost) -> None:
    host.settle(**PINNED)
    host.clock.now += VERIFY_INTERVAL
    assert JobKind.COMPARE in [job.kind for job in host.work()]
    assert host.table.files[IMAGE.id].verified_at == host.clock.now
    assert host.work() == []
    assert host.outcomes == ["made"]


def test_file_that_somebody_removed_is_made_again(host: LocalFilesHost) -> None:
    host.settle(**PINNED)
    del host.maker.files[file_name(IMAGE.id)]
    host.clock.now += TEND_INTERVAL
    host.settle(**PINNED)
    assert (host.state(), host.content()) == ("linked", IMAGE.disk)


def test_no_file_beyond_the_capacity(host: LocalFilesHost) -> None:
    host.budget = Budget(6 * CHUNK_SIZE, 0.1)
    host.start()
    host.preloaded = frozenset({IMAGE.id, OTHER.id})
    problems = host.settle()
    assert (host.state(IMAGE), host.state(OTHER)) == ("linked", "waiting")
    assert "capacity" in problems[f"local file of image {OTHER.id}"]
    host.preloaded = frozenset({OTHER.id})
    host.settle()
    host.clock.now += ROOM_RETRY
    host.settle()
    assert (host.state(IMAGE), host.state(OTHER)) == (None, "linked")


def test_room_of_others_is_left_to_them(host: LocalFilesHost) -> None:
    host.maker.total_bytes = 100 * MIB
    host.maker.others_bytes = 90 * MIB
    problems = host.settle(**PINNED)
    assert "stay free" in problems[f"local file of image {IMAGE.id}"]
    assert host.maker.files == {}


def test_file_gives_its_room_back(host: LocalFilesHost) -> None:
    host.maker.total_bytes = 100 * MIB
    host.settle(**PINNED)
    assert host.state() == "linked"
    host.maker.others_bytes = 96 * MIB
    host.clock.now += TEND_INTERVAL
    host.settle(**PINNED)
    assert (host.state(), host.maker.files) == ("waiting", {})
    host.maker.others_bytes = 0
    host.clock.now += ROOM_RETRY
    host.settle(**PINNED)
    assert host.state() == "linked"


def test_others_who_take_the_room_meanwhile_get_it(host: LocalFilesHost) -> None:
    host.maker.total_bytes = 100 * MIB

    def take() -> None:
        host.maker.others_bytes = 99 * MIB

    image = make_local_image(IMAGE.id, " ".join(["data zero"] * 4))
    host.images[IMAGE.id] = image
    host.maker.disks[IMAGE.id] = image.disk
    host.maker.on_piece = take
    problems = host.settle(**PINNED)
    assert "room" in problems[f"local file of image {IMAGE.id}"]
    assert host.maker.files == {}


def test_preload_that_is_stopped_while_the_file_is_written(host: LocalFilesHost) -> None:
    host.settle()

    def stop_the_preload() -> None:
        host.files.reconcile(host.snapshot())

    host.maker.on_piece = stop_the_preload
    host.settle(**PINNED)
    host.maker.on_piece = lambda: None
    host.settle()
    assert (host.state(), host.maker.files) == (None, {})


def test_turned_off_moves_links_back_and_removes_files(host: LocalFilesHost) -> None:
    host.settle(**PINNED)
    host.is_enabled = False
    host.start()
    assert host.files.linkable() == {IMAGE.id}, "until the first pass"
    assert host.settle(**PINNED) == {}
    assert (host.links.leading, host.maker.files) == (frozenset(), {})


def test_restart_changes_nothing_that_guests_notice(host: LocalFilesHost) -> None:
    host.settle(**PINNED)
    host.start()
    assert host.files.linkable() == {IMAGE.id}
    host.settle(**PINNED)
    assert host.state() == "linked"
    assert host.outcomes == ["made"]


def test_file_that_nobody_knows_goes(host: LocalFilesHost) -> None:
    host.maker.files = {
        file_name(OTHER.id): OTHER.disk,
        partial_name(IMAGE.id): b"half",
        "notes": b"",
    }
    host.settle(**PINNED)
    assert set(host.maker.files) == {file_name(IMAGE.id)}


def test_directory_that_fails_for_a_while_is_told_until_it_is_well(host: LocalFilesHost) -> None:
    host.settle(**PINNED)
    refresh = host.maker.refresh

    def fail(image_id: str, size_bytes: int) -> bool:
        raise OSError(5, "Input/output error")

    host.maker.refresh = fail  # type: ignore[method-assign]
    host.clock.now += TEND_INTERVAL
    assert "Input/output" in host.settle(**PINNED)["local files"]
    assert host.state() == "linked"
    host.maker.refresh = refresh  # type: ignore[method-assign]
    host.clock.now += 3600
    assert host.settle(**PINNED) == {}


def test_large_image_is_written_in_many_pieces(host: LocalFilesHost) -> None:
    image = make_local_image(IMAGE.id, " ".join(["data"] * 70 + ["zero"] * 3 + ["data"] * 9))
    host.images[IMAGE.id] = image
    host.maker.disks[IMAGE.id] = image.disk
    runs = list(image.content.runs())
    assert [run.offset // CHUNK_SIZE for run in runs] == [0, 64, 73]
    assert sum(len(run.digests) // 32 for run in runs) == 79
    host.settle(**PINNED)
    assert host.content() == image.disk
    assert host.budget.capacity_bytes == GIB
