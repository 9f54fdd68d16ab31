"""Captures, merges, deletions and collections, in thousands of orders of their origin calls.

Each run takes versions of two disks of one image on two hosts, merges, deletes and abandons them
beside collections without any grace, and kills some actors. Whatever a version that is shown as a
restore point was taken of is read back, now and after further collections; in the end nothing is
left but what versions need. The same runs find a violation in each of several deliberately broken
variants.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import base, memory
from acstor.repository import layout
from acstor.repository.gc import garbage
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.marking import Marker
from acstor.repository.repository import Repository
from acstor.repository.versions import delta_capture
from acstor.repository.versions.captures import Captures, Stored
from acstor.repository.versions.delta_capture import DeltaCapture, DeltaRequest
from acstor.repository.versions.merges import Merges
from acstor.repository.versions.store import VersionStore
from acstor.versions import merging
from acstor.versions.merging import Merger
from tests.unit.repository import interleaving
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register
from tests.unit.repository.versions.captures import SETTINGS, NumberedDisk, numbers_of, store_of
from tests.unit.repository.versions.records import SERVER, captured, version_id

RUNS = interleaving.ORDERS // 4
BATCHES = 4
BURSTS = (*interleaving.BURSTS, 40, 120)
BASE = (1, 2, 3, 4, 5, 6)
CONTENTS = {
    1: (20, 2, 3, 4, 5, 6),
    2: (20, 21, 3, 4, 5, 6),
    3: (1, 2, 3, 20, 0, 6),
    4: (22, 21, 3, 4, 5, 6),
    5: (1, 20, 21, 4, 0, 6),
}
"""By number of a version the disk that it is taken of."""
PARENTS = {1: None, 2: 1, 3: None, 4: 2, 5: 3}
FAILURES = (exception.FencedError, exception.NotFoundError, exception.UnavailableError)
"""Errors that end an actor whose version is gone, or that has lost against a collection."""


class PromiseError(AssertionError):
    """A promise that was broken."""


def take_action(number: int) -> Callable[[base.Origin], object]:
    """Return the capture of a version: of its parent, or of the image where that is gone."""

    def action(origin: base.Origin) -> None:
        store = store_of(Repository.open(origin))
        parent = PARENTS[number]
        found = store.find(version_id(parent)) if parent else None
        is_usable = found is not None and found.record.is_restorable
        manifest = found.record.manifest if found is not None and is_usable else None
        if manifest is None:
            manifest = store.repository.get_image(image_id(0)).record.manifest
        version, changed = version_id(number), NumberedDisk(CONTENTS[number])
        store.begin(version, captured(size_bytes=changed.size_bytes))
        with contextlib.suppress(*FAILURES):
            request = DeltaRequest(version, "h1", changed, SERVER, manifest)
            store.commit(version, "h1", DeltaCapture(store, SETTINGS).store(request))

    return action


def merge_action(numbers: Sequence[int], alpha: float) -> Callable[[base.Origin], object]:
    def action(origin: base.Origin) -> None:
        store = store_of(Repository.open(origin))
        settings = merging.Settings(alpha=alpha, group_chunks=2, pack_size=4 * CHUNK_SIZE)
        for number in numbers:
            with contextlib.suppress(*FAILURES):
                Merger(store, settings).merge(version_id(number))

    return action


def delete_action(number: int) -> Callable[[base.Origin], object]:
    """Return the deletion of a version; one that is captured is abandoned."""

    def action(origin: base.Origin) -> None:
        store = store_of(Repository.open(origin))
        for call in (store.abandon, store.delete):
            with contextlib.suppress(*FAILURES):
                call(version_id(number))

    return action


def collect_action(host: str, count: int) -> Callable[[base.Origin], object]:
    def action(origin: base.Origin) -> None:
        collector = Collector(Repository.open(origin), host, 0.0, clock=lambda: 1.0)
        for _ in range(count):
            collector.collect()

    return action


def check(repository: Repository) -> None:
    """Compare every restore point with what it was taken of.

    :raises PromiseError: when one is not whole.
    """
    for version in store_of(repository).list():
        if not version.record.is_restorable:
            continue
        number = int(version.id[-1], 16)
        try:
            found = numbers_of(repository.origin, str(version.record.manifest))
        except (exception.AcstorError, AssertionError) as error:
            raise PromiseError(f"version {number}: {error}") from error
        if found != list(CONTENTS[number]):
            raise PromiseError(f"version {number} is {found}")


def check_nothing_is_left(repository: Repository) -> None:
    store = store_of(repository)
    for version in list(store.list()):
        with contextlib.suppress(exception.FencedError):
            store.abandon(version.id)
        with contextlib.suppress(exception.NotFoundError):
            store.delete(version.id)
    repository.remove_image(image_id(0))
    for _ in range(4):
        Collector(repository, "z", 0.0, clock=lambda: 1.0).collect()
    left = [key for key in repository.origin.list() if key != layout.FORMAT_KEY]
    if left or list(repository.origin.list_refs("gc/")):
        raise PromiseError(f"garbage is left: {left}")


def run_once(seed: int, wanted: Sequence[str] = ()) -> None:
    """Run one order; raise PromiseError when a promise is broken.

    :param wanted: names of the actors; empty: the seed chooses.
    """
    with (
        interleaving.repeatable(seed) as source,
        mock.patch.object(garbage, "holders", return_value=[]),
        contextlib.ExitStack() as patches,
    ):

        def salt() -> bytes:
            return source.randbytes(16)

        for module in (delta_capture, merging):
            patches.enter_context(mock.patch.object(module, "random_salt", salt))
        choice = random.Random(seed)
        repository = open_repository(memory.MemoryOrigin())
        register(repository, 0, disk(*BASE))
        for number in (1, 2):
            take_action(number)(repository.origin)
        if choice.random() < 0.5:
            delete_action(choice.choice([1, 2]))(repository.origin)
            Collector(repository, "x", 0.0, clock=lambda: 1.0).collect()
        actions = {
            "take 3": take_action(3),
            "take 4": take_action(4),
            "take 5": take_action(5),
            "merge a": merge_action((2, 4), choice.choice([0, 1])),
            "merge b": merge_action((3, 2), 0.5),
            "delete 1": delete_action(1),
            "delete 2": delete_action(2),
            "delete 3": delete_action(3),
            "collect x": collect_action("x", choice.randint(2, 4)),
            "collect y": collect_action("y", choice.randint(2, 4)),
        }
        names = list(wanted) or sorted(
            {*choice.sample(sorted(actions), choice.randint(3, 7)), "collect x"}
        )
        kills = {name: choice.randint(1, 80) for name in names if choice.random() < 0.2}
        actors = [interleaving.Actor(name, actions[name], repository.origin) for name in names]
        interleaving.run(actors, choice, kills, BURSTS)
        for actor in actors:
            if actor.error is not None:
                raise PromiseError(f"seed {seed}: {actor.name}: {actor.error!r}") from actor.error
        for _ in range(3):
            check(repository)
            Collector(repository, "z", 0.0, clock=lambda: 1.0).collect()
        check(repository)
        check_nothing_is_left(repository)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_order_keeps_every_version_and_nothing_else(batch: int) -> None:
    for seed in range(batch, RUNS, BATCHES):
        run_once(seed)


# Broken variants


def announce_nothing(self: VersionStore, version_id: str, *arguments: object) -> None:
    self.get(version_id)


def claim_nothing(self: Captures, stored: Stored) -> set[bytes]:
    return set()


BROKEN_VARIANTS: dict[str, AbstractContextManager[object]] = {
    "versions are no roots": mock.patch.object(Marker, "_find_version", return_value=None),
    "captures name nothing": mock.patch.object(Captures, "announce", announce_nothing),
    "merges name nothing": mock.patch.object(Merges, "announce_merge", return_value=None),
    "nothing is claimed": mock.patch.object(Captures, "find_lost", claim_nothing),
}
SUFFERERS = {
    "versions are no roots": ("take 4", "collect x", "collect y"),
    "captures name nothing": ("take 3", "take 5", "collect x", "collect y"),
    "merges name nothing": ("merge a", "merge b", "collect x", "collect y"),
    "nothing is claimed": ("take 4", "delete 1", "delete 2", "collect x", "collect y"),
}
"""Actors that notice a variant."""


FOUND_BY = {"captures name nothing": 47, "merges name nothing": 10}
"""Seeds that found a variant before: tried first. Orders without claims are not repeatable."""


@pytest.mark.parametrize("variant", sorted(BROKEN_VARIANTS))
def test_broken_variants_are_found_out(variant: str) -> None:
    with BROKEN_VARIANTS[variant]:
        interleaving.find_out(
            lambda seed: run_once(seed, SUFFERERS[variant]),
            PromiseError,
            orders=40 * RUNS,
            found_by=FOUND_BY.get(variant),
        )
