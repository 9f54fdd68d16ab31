"""Compactions against registrations and collections, in many orders of their origin calls.

As in test_garbage_interleaving.py each run steps all actors in an order that its seed decides,
kills some, and checks the promises (RFD 23): every image that a registration reported has its
content, now and after any further compaction and collection; nothing else is left in the end. The
same runs find a violation in each of several deliberately broken variants.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from acstor import exception, native
from acstor.origin import base, memory
from acstor.repository import layout, moved_packs, pack_filler, pack_reader
from acstor.repository.gc import claim, compaction_record, condemnation
from acstor.repository.gc.compaction import Compactor
from acstor.repository.gc.compaction_plan import Candidate, Limits
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.marking import Marked, Marker
from acstor.repository.images import registration
from acstor.repository.repository import Repository
from acstor.repository.verification import Verifier
from tests.unit.repository import interleaving
from tests.unit.repository.images import (
    CHUNK_SIZE,
    disk,
    image_id,
    open_repository,
    read_back,
    register,
)

RUNS = interleaving.ORDERS // 2
BATCHES = 8
LIMITS = Limits(pack_size=4 * CHUNK_SIZE)

CONTENTS = {
    0: disk(1, 2, 3, 4, 5, 6, 7, 8),
    1: disk(1, 5, 9),
    2: disk(1, 2, 9, 0, 3),
    3: disk(5, 1),
    4: disk(1, 9),
    5: disk(1, 5, 9),
}

LONG_BURSTS = (1, 5, 40, 400)
"""Numbers of steps with which some actors stand still while others do all that they have to."""


class PromiseError(AssertionError):
    """A promise that was broken."""


def start(choice: random.Random) -> Repository:
    """Return a repository with one image that needs little of two packs, compacted or not."""
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, CONTENTS[0])
    register(repository, 1, CONTENTS[1])
    repository.remove_image(image_id(0))
    if choice.random() < 0.5:
        collect(repository, "x")
    if choice.random() < 0.5:
        Compactor(repository, "a", LIMITS).compact()
        for _ in range(choice.randint(0, 2)):
            collect(repository, "x")
    if choice.random() < 0.3:
        repository.remove_image(image_id(1))
        for _ in range(choice.randint(0, 1)):
            collect(repository, "x")
    return repository


def collect(repository: Repository, host: str) -> None:
    Collector(repository, host, 0.0, clock=lambda: 1.0).collect()


def register_action(number: int) -> Callable[[base.Origin], object]:
    return lambda origin: register(Repository.open(origin), number, CONTENTS[number])


def collect_action(host: str, count: int) -> Callable[[base.Origin], object]:
    def action(origin: base.Origin) -> object:
        for _ in range(count):
            # See test_garbage_interleaving.py: refusing is safe.
            with contextlib.suppress(exception.CorruptError):
                collect(Repository.open(origin), host)
        return None

    return action


def compact_action(host: str, count: int) -> Callable[[base.Origin], object]:
    def action(origin: base.Origin) -> object:
        for _ in range(count):
            # Another one of the host has begun; or as for collections.
            with contextlib.suppress(exception.ConflictError, exception.CorruptError):
                Compactor(Repository.open(origin), host, LIMITS).compact()
        return None

    return action


def clone_action(number: int) -> Callable[[base.Origin], object]:
    """Publish the manifest of image 1 once more, claim it, and take it back where that fails."""

    def action(origin: base.Origin) -> object:
        repository = Repository.open(origin)
        image = repository.find_image(image_id(1))
        if image is None:
            return None
        name = layout.image_ref(image_id(number))
        try:
            manifest = repository.load_manifest(image.record.manifest)
            token = origin.swap_ref(name, None, image.content)
            lost = claim.claim(origin, manifest, is_of_hosts=False)
        except exception.NotFoundError:
            return None
        if not lost:
            return number
        origin.swap_ref(name, token, None)
        return None

    return action


def remove_action(number: int) -> Callable[[base.Origin], object]:
    def action(origin: base.Origin) -> object:
        with contextlib.suppress(exception.NotFoundError):
            Repository.open(origin).remove_image(image_id(number))
        return None

    return action


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Let salts and nonces follow from the seed, so that a run can be repeated exactly."""
    source = random.Random(seed)

    def pack_salt() -> bytes:
        return source.randbytes(16)

    def manifest_salt() -> int:
        return source.getrandbits(64)

    def nonce() -> str:
        return source.randbytes(16).hex()

    with (
        mock.patch.object(pack_filler, "random_salt", pack_salt),
        mock.patch.object(registration, "random_salt", manifest_salt),
        mock.patch.object(condemnation, "random_nonce", nonce),
        mock.patch.object(compaction_record, "random_nonce", nonce),
        # Calls from threads of their own would not be steps.
        mock.patch.object(pack_reader, "READERS", 1 << 10),
    ):
        yield


def run_once(seed: int) -> None:
    """Run one order; raise PromiseError when a promise is broken."""
    with repeatable(seed):
        run_repeatably(seed)


def run_repeatably(seed: int) -> None:
    choice = random.Random(seed)
    repository = start(choice)
    is_there = repository.find_image(image_id(1)) is not None
    actions = {
        "register 2": register_action(2),
        "register 3": register_action(3),
        "register 4": register_action(4),
        "clone 5": clone_action(5),
        "compact a": compact_action("a", choice.randint(1, 2)),
        "compact b": compact_action("b", choice.randint(1, 2)),
        "compact c": compact_action("a", 1),
        "collect x": collect_action("x", choice.randint(1, 3)),
        "collect y": collect_action("y", choice.randint(1, 3)),
        "collect z": collect_action("x", choice.randint(1, 2)),
        "remove 1": remove_action(1),
    }
    others = sorted(actions.keys() - {"compact a", "collect x"})
    names = ["compact a", "collect x", *choice.sample(others, choice.randint(1, 4))]
    killable = [name for name in names if choice.random() < 0.2]
    kills = {name: choice.randint(1, 120) for name in killable}
    actors = [interleaving.Actor(name, actions[name], repository.origin) for name in names]
    interleaving.run(actors, choice, kills, choice.choice((interleaving.BURSTS, LONG_BURSTS)))
    reported = ({1} if is_there else set()) - {1 for name in names if name == "remove 1"}
    for actor in actors:
        if actor.error is not None:
            raise PromiseError(f"seed {seed}: {actor.name}: {actor.error!r}") from actor.error
        if isinstance(actor.result, registration.Report) or actor.result == 5:
            reported.add(int(actor.name.split()[1]))
    check(repository, reported, seed)


def check_content(repository: Repository, numbers: set[int], seed: int) -> None:
    for number in sorted(numbers):
        try:
            content = read_back(repository, number)
        except exception.AcstorError as error:
            raise PromiseError(f"seed {seed}: image {number}: {error}") from error
        if content[: len(CONTENTS[number])] != CONTENTS[number]:
            raise PromiseError(f"seed {seed}: image {number} has other content")


def check(repository: Repository, reported: set[int], seed: int) -> None:
    """Check the promises after all actors have ended."""
    repository = Repository.open(repository.origin)
    check_content(repository, reported, seed)
    # What a killed registration has published may need repair, as RFD 5 says.
    present = {next(n for n in CONTENTS if image_id(n) == i) for i in repository.list_image_ids()}
    for number in sorted(present):
        register(repository, number, CONTENTS[number])
    for _ in range(2):
        for host in ("a", "b"):
            Compactor(repository, host, LIMITS).compact()
        for _ in range(3):
            collect(repository, "w")
        check_content(repository, present, seed)
    if Verifier(repository).verify().damages:
        raise PromiseError(f"seed {seed}: damage")
    left = set(repository.origin.list()) - {layout.FORMAT_KEY}
    if left - reachable(repository) or list(repository.origin.list_refs("gc/")):
        raise PromiseError(f"seed {seed}: garbage is left")
    if list(repository.origin.list_refs(layout.COMPACTION_PREFIX)):
        raise PromiseError(f"seed {seed}: a record of a compaction is left")


def reachable(repository: Repository) -> set[str]:
    """Return the keys of everything that images refer to, whether or not that is moved."""
    found = set()
    packs = set()
    for image in repository.list_images():
        manifest = repository.load_manifest(image.record.manifest)
        found.add(layout.manifest_key(manifest.digest))
        packs.update(manifest.packs())
    waiting = list(packs)
    while waiting:
        pack = waiting.pop()
        found.add(layout.pack_key(pack.hex()))
        moved = moved_packs.find_moved(repository.origin, pack)
        if moved is not None:
            found.add(layout.moved_key(pack.hex()))
            waiting.extend(set(moved.targets()) - packs)
            packs.update(moved.targets())
    return found


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_order_keeps_every_reported_image(batch: int) -> None:
    for seed in range(batch, RUNS, BATCHES):
        run_once(seed)


publish = Compactor._publish
mark = Marker.mark


def delete_before_moved(self: Compactor, one: Candidate, *rest: object) -> None:
    self._origin.delete(layout.pack_key(one.pack.hex()))
    publish(self, one, *rest)  # type: ignore[arg-type]


def mark_nothing_moved(self: Marker) -> Marked:
    marked = mark(self)
    marked.names = {name for name in marked.names if layout.pack_of_moved_name(name) is None}
    return marked


class EverythingMoved:
    """A list of moved chunks that claims to be all that anybody needs."""

    def __init__(self, moved: native.MovedPack) -> None:
        self._moved = moved

    def follow(self, runs: moved_packs.Runs) -> object:
        return self._moved.follow(runs)[0], []

    def __getattr__(self, name: str) -> object:
        return getattr(self._moved, name)


find_moved = moved_packs.find_moved


def find_everything_moved(objects: base.ObjectStore, pack: bytes) -> EverythingMoved | None:
    moved = find_moved(objects, pack)
    return None if moved is None else EverythingMoved(moved)


# Copies that are taken and not claimed: ten thousand orders do not find that. It is staged in
# test_compaction.py, test_claim_takes_the_copies_of_a_pack_that_is_being_deleted.
BROKEN_VARIANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "a pack goes before it is moved": lambda: mock.patch.object(
        Compactor, "_publish", delete_before_moved
    ),
    "what was moved is not marked": lambda: mock.patch.object(Marker, "mark", mark_nothing_moved),
    "a pack goes although not all of it was moved": lambda: mock.patch.object(
        moved_packs, "find_moved", find_everything_moved
    ),
}


@pytest.mark.parametrize("variant", sorted(BROKEN_VARIANTS))
def test_broken_variants_are_found_out(variant: str) -> None:
    # A collection or a registration at the end may find what is lost.
    violations = (PromiseError, exception.AcstorError)
    with BROKEN_VARIANTS[variant]():
        interleaving.find_out(run_once, violations, orders=40 * RUNS)
