"""Copies that are killed at every call, and copies beside collections without any grace."""

import contextlib
import random
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.origin import base, memory
from acstor.repository.copying.copier import Verify
from acstor.repository.copying.report import CopyReport
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.marking import Marker
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import VolumeStore
from tests.unit.repository import interleaving
from tests.unit.repository.copying.cloud import (
    FOLDED,
    IMAGES,
    IN_USE,
    SNAPSHOT,
    TEXTS,
    TRANSIENT,
    Cloud,
    check_content,
    copy,
    volume_text,
)
from tests.unit.repository.images import disk, image_id, read_back, register
from tests.unit.repository.interleaving import Actor, Killed, SteppedOrigin, repeatable
from tests.unit.repository.volumes.hosts import Owner, content_of

SEEDS = range(40)


class Life:
    """Calls that are left to a process, to both of its origins."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def pause(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise Killed


def mortal(inner: base.Origin, life: Life) -> base.Origin:
    return SteppedOrigin(inner, life)  # type: ignore[arg-type]


def killed_copy(
    source: base.Origin, destination: base.Origin, calls: int, **settings: object
) -> bool:
    """Copy until so many calls were made; return whether it was killed."""
    life = Life(calls)
    with contextlib.suppress(Killed):
        copy(mortal(source, life), mortal(destination, life), **settings)
        return False
    return True


def is_openable(origin: base.Origin) -> bool:
    with contextlib.suppress(exception.NotFoundError):
        Repository.open(origin)
        return True
    return False


@pytest.mark.parametrize("is_restore", [False, True], ids=["backup", "restore"])
def test_copy_killed_anywhere_is_none_and_is_gone_on_with(is_restore: bool) -> None:
    cloud = Cloud(memory.MemoryOrigin())
    calls, is_killed = 0, True
    while is_killed:
        destination = memory.MemoryOrigin()
        is_killed = killed_copy(cloud.origin, destination, calls, is_restore=is_restore)
        if is_openable(destination):
            check_content(destination)
        if is_killed and not (is_restore and is_openable(destination)):
            assert copy(cloud.origin, destination, is_restore=is_restore).is_complete
        check_content(destination)
        calls += 1
    assert calls > 100


def test_former_copy_is_whole_until_the_refs_are_written() -> None:
    cloud = Cloud(memory.MemoryOrigin())
    calls, is_killed, whole = 0, True, 0
    former = memory.MemoryOrigin()
    copy(cloud.origin, former)
    cloud.writer.write("more ")
    cloud.writer.fold()
    cloud.repository.remove_image(image_id(0))
    register(cloud.repository, 0, disk(11, 12, 13))
    while is_killed:
        destination = memory.MemoryOrigin()
        destination._objects.update(former._objects)
        destination._refs.update(former._refs)
        is_killed = killed_copy(cloud.origin, destination, calls, prunes=True)
        if is_openable(destination):
            whole += 1
            assert volume_text(destination, IN_USE).startswith(TEXTS[IN_USE])
            found = read_back(Repository.open(destination), 0)
            assert found in (IMAGES[0], disk(11, 12, 13))
        assert copy(cloud.origin, destination, prunes=True).is_complete
        assert volume_text(destination, IN_USE) == TEXTS[IN_USE] + "more "
        assert read_back(Repository.open(destination), 0) == disk(11, 12, 13)
        calls += 1
    assert whole > calls // 2, "most of the time the former copy is there"


# Collections beside


def collect(origin: base.Origin) -> None:
    for _ in range(12):
        with contextlib.suppress(exception.CorruptError):
            Collector(Repository.open(origin), "x", 0.0, clock=lambda: 1.0).collect()


def change_images(origin: base.Origin) -> None:
    repository = Repository.open(origin)
    for number, content in ((0, disk(31, 32)), (1, disk(21, 22, 23))):
        repository.remove_image(image_id(number))
        register(repository, number, content)


def serve(salt: random.Random) -> Callable[[base.Origin], object]:
    def action(origin: base.Origin) -> None:
        store = VolumeStore(Repository.open(origin), wait=lambda seconds: None)
        owner = Owner(store, origin, IN_USE, "a", salt)
        owner.acquire()
        for number in range(4):
            owner.write(f"w{number} ")
            if number % 2:
                owner.fold()
        store.delete_snapshot(SNAPSHOT)

    return action


def run_beside(seed: int, *, holds: bool) -> CopyReport | None:
    """Copy beside changes and collections; return the report, None where the copy gave up."""
    choice = random.Random(seed)
    with repeatable(seed) as salt:
        cloud = Cloud(memory.MemoryOrigin())
        for name in TRANSIENT:
            ref = cloud.origin.get_ref(name)
            assert ref is not None
            cloud.origin.swap_ref(name, ref.token, None)
        destination = memory.MemoryOrigin()

        def copying(origin: base.Origin) -> CopyReport:
            return copy(origin, destination, holds=holds, verify=Verify.NONE)

        actors = [
            Actor("copy", copying, cloud.origin),
            Actor("collect", collect, cloud.origin),
            Actor("images", change_images, cloud.origin),
            Actor("serve", serve(salt), cloud.origin),
        ]
        interleaving.run(actors, choice, {})
    for actor in actors[1:]:
        if actor.error is not None:
            raise actor.error
    copied = actors[0]
    if isinstance(copied.error, exception.ConflictError):
        return None
    if copied.error is not None:
        raise copied.error
    assert isinstance(copied.result, CopyReport)
    if copied.result.is_complete and not copied.result.damages:
        check_moment(destination)
    return copied.result


def check_moment(origin: base.Origin) -> None:
    """Check that a copy has states of the volumes that there were, and whole images."""
    Marker(Repository.open(origin)).mark()
    repository = Repository.open(origin)
    for image in repository.list_image_ids():
        number = 0 if image == image_id(0) else 1
        known = (IMAGES[0], disk(31, 32)) if number == 0 else (IMAGES[1], disk(21, 22, 23))
        assert read_back(repository, number) in known
    written = TEXTS[IN_USE] + "w0 w1 w2 w3 "
    text = volume_text(origin, IN_USE)
    assert written.startswith(text)
    assert len(text) >= len(TEXTS[IN_USE])
    assert volume_text(origin, FOLDED) == TEXTS[FOLDED]
    store = VolumeStore(repository)
    for snapshot_id in store.list_snapshot_ids():
        assert content_of(origin, store.get_snapshot(snapshot_id).record.disk) == "five "


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_a_copy_needs_is_collected(seed: int) -> None:
    report = run_beside(seed, holds=True)
    assert report is not None
    assert (report.damages, report.refs_read_again) == ({}, 0)
    assert report.is_complete


def test_without_a_hold_it_is() -> None:
    reports = [run_beside(seed, holds=False) for seed in SEEDS]
    assert any(report is None or report.damages or report.refs_read_again for report in reports)
