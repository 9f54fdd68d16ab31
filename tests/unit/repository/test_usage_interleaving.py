"""Hosts that attach and detach, removals and collections, in thousands of orders of their calls.

Each run steps real agents' looks, on data planes in memory, against removals of images and
collections without any grace, and kills some. Nothing of what a data plane has attached may ever
be deleted: the expectation follows from what was attached, not from any record. The same runs find
a violation in each of several deliberately broken variants.
"""

import contextlib
import os
import pathlib
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from acstor import exception
from acstor.agent.reconcilers import usage_publication
from acstor.agent.reconcilers.image_following import ImageFollower
from acstor.agent.reconcilers.image_records import ImageRecords
from acstor.agent.reconcilers.seen_records import SeenRecords
from acstor.agent.reconcilers.usage_publication import UsagePublisher
from acstor.native import manifest_name
from acstor.origin import base, memory
from acstor.repository import layout, pack_filler
from acstor.repository.disk_manifest import parse_manifest
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.marking import Marker
from acstor.repository.images import registration
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Repository
from acstor.repository.signing.trusted_keys import TrustedKeys
from tests.unit.repository import interleaving
from tests.unit.repository.images import disk, image_id, open_repository, register

RUNS = interleaving.ORDERS // 4
BATCHES = 4
CONTENTS = {0: disk(1, 2, 3, 4, 5, 6), 1: disk(5, 6, 7, 8)}


class PromiseError(AssertionError):
    """A promise that was broken."""


class AttachedImages:
    """The admin calls of a data plane that an agent's look at the images makes."""

    def __init__(self, choice: random.Random) -> None:
        self._choice = choice
        self._images: dict[str, dict[str, Any]] = {}
        self.needed: dict[str, frozenset[str]] = {}
        """By digest of each attached manifest, the keys of all that its guests may read."""

    def user(self) -> int | None:
        """Return whose the process is: nobody else's than the agent's."""
        return None

    def call(self, method: str, **arguments: Any) -> Any:
        """Do what the data plane does."""
        if method == "image.list":
            # Guests come and go between any two looks.
            for image in self._images.values():
                image["open_handles"] = self._choice.randint(0, 1)
            return [dict(image) for image in self._images.values()]
        if method == "image.attach":
            return self._attach(arguments["path"])
        assert method == "image.detach"
        image = self._images[arguments["image"]]
        if image["open_handles"]:
            image["hidden"] = True
            return {"state": "hidden"}
        del self._images[arguments["image"]], self.needed[image["manifest"]]
        return {"state": "removed"}

    def _attach(self, path: str) -> None:
        manifest = parse_manifest(manifest_name(path), pathlib.Path(path).read_bytes())
        fields = {"id": manifest.disk_id, "manifest": manifest.digest, "hidden": False}
        self._images[manifest.disk_id] = {**fields, "open_handles": 0}
        packs = {layout.pack_key(pack.hex()) for pack in manifest.packs()}
        self.needed[manifest.digest] = frozenset(packs | {layout.manifest_key(manifest.digest)})


class WatchedOrigin(memory.MemoryOrigin):
    """Refuses to delete what a data plane has attached."""

    def __init__(self) -> None:
        super().__init__()
        self.data_planes: dict[str, AttachedImages] = {}

    def delete(self, key: str) -> bool:
        for host, data_plane in self.data_planes.items():
            for digest, keys in data_plane.needed.items():
                if key in keys:
                    raise PromiseError(f"{key} of manifest {digest}, attached on {host}, deleted")
        return super().delete(key)

    def check(self) -> None:
        """Check that everything that is attached is there."""
        for host, data_plane in self.data_planes.items():
            for digest, keys in data_plane.needed.items():
                if missing := [key for key in sorted(keys) if not self.exists(key)]:
                    raise PromiseError(f"manifest {digest} on {host} lacks {missing}")


def look_action(
    host: str, origin: WatchedOrigin, folder: str, looks: int
) -> Callable[[base.Origin], object]:
    def action(stepped: base.Origin) -> object:
        publisher = UsagePublisher(stepped, host)
        data_plane: Any = origin.data_planes[host]
        verifier = RecordVerifier("", TrustedKeys(None), require_signatures=False)
        seen = SeenRecords(os.path.join(folder, f"{host}.json"), "")
        records = ImageRecords(stepped, verifier, seen)
        follower = ImageFollower(stepped, data_plane, folder, publisher, records)
        for _ in range(looks):
            with contextlib.suppress(exception.AcstorError):
                follower.reconcile()
                origin.check()
        return None

    return action


def collect_action(host: str, count: int) -> Callable[[base.Origin], object]:
    def action(stepped: base.Origin) -> object:
        collector = Collector(Repository.open(stepped), host, 0.0, clock=lambda: 1.0)
        for _ in range(count):
            collector.collect()
        return None

    return action


def remove_action(number: int) -> Callable[[base.Origin], object]:
    def action(stepped: base.Origin) -> object:
        return Repository.open(stepped).remove_image(image_id(number))

    return action


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Let salts and nonces follow from the seed, so that a run can be repeated exactly."""
    source = random.Random(seed)

    def pack_salt() -> bytes:
        return source.randbytes(16)

    def manifest_salt() -> int:
        return source.getrandbits(64)

    def nonce(size: int) -> str:
        return source.randbytes(size).hex()

    with (
        mock.patch.object(pack_filler, "random_salt", pack_salt),
        mock.patch.object(registration, "random_salt", manifest_salt),
        mock.patch.object(secrets, "token_hex", nonce),
    ):
        yield


def run_once(
    seed: int, folder: str, version: int = INDEX_VERSION, wanted: Sequence[str] = ()
) -> None:
    """Run one order; raise PromiseError when a promise is broken.

    :param version: of the repository; the seeds of broken variants are of the calls of one.
    :param wanted: names of the actors; empty: all.
    """
    with repeatable(seed):
        run_repeatably(seed, folder, version, wanted)


def run_repeatably(seed: int, folder: str, version: int, wanted: Sequence[str]) -> None:
    choice = random.Random(seed)
    origin = WatchedOrigin()
    repository = open_repository(origin, version)
    for number, content in CONTENTS.items():
        register(repository, number, content)
    for host in ("h1", "h2"):
        origin.data_planes[host] = AttachedImages(random.Random(f"{seed} {host}"))
    if choice.random() < 0.3:
        repository.remove_image(image_id(1))
        Collector(repository, "x", 0.0, clock=lambda: 1.0).collect()
        register(repository, 1, CONTENTS[1])
    actions = {
        "h1": look_action("h1", origin, folder, choice.randint(1, 4)),
        "h2": look_action("h2", origin, folder, choice.randint(1, 4)),
        "collect x": collect_action("x", choice.randint(1, 4)),
        "collect y": collect_action("y", choice.randint(1, 3)),
        "remove 0": remove_action(0),
        "remove 1": remove_action(1),
    }
    names = sorted(wanted or actions)
    kills = {name: choice.randint(1, 60) for name in names if choice.random() < 0.15}
    actors = [interleaving.Actor(name, actions[name], origin) for name in names]
    interleaving.run(actors, choice, kills)
    # A host whose agent is away keeps what it has for ever; the collections go on.
    for actor in actors:
        if actor.error is not None:
            raise PromiseError(f"seed {seed}: {actor.name}: {actor.error!r}") from actor.error
    for _ in range(3):
        Collector(repository, "z", 0.0, clock=lambda: 1.0).collect()
    origin.check()


@pytest.fixture(autouse=True)
def without_lingering() -> Iterator[None]:
    with mock.patch.object(usage_publication, "LINGER_SECONDS", 0.0):
        yield


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_order_collects_what_is_attached(batch: int, tmp_path: pathlib.Path) -> None:
    for seed in range(batch, RUNS, BATCHES):
        run_once(seed, str(tmp_path), (INDEX_VERSION, COMPRESSED_VERSION)[seed % 2])


def test_what_nobody_has_attached_any_more_is_collected(tmp_path: pathlib.Path) -> None:
    origin = WatchedOrigin()
    repository = open_repository(origin)
    register(repository, 0, CONTENTS[0])
    data_plane = origin.data_planes["h1"] = AttachedImages(random.Random(0))
    look_action("h1", origin, str(tmp_path), 1)(origin)
    assert data_plane.needed
    repository.remove_image(image_id(0))
    while data_plane.needed:
        look_action("h1", origin, str(tmp_path), 1)(origin)
    look_action("h1", origin, str(tmp_path), 1)(origin)
    for _ in range(2):
        Collector(repository, "z", 0.0, clock=lambda: 1.0).collect()
    assert {layout.name_of(key) for key in origin.list()} == {None}


def attach_unseen(
    self: ImageFollower, image: str, known: Any, report: Any, *, is_replaced: bool
) -> None:
    self._attach(image, known.manifest, is_replaced=is_replaced)


def nothing(*arguments: Any) -> None:
    return None


BROKEN_VARIANTS: Sequence[tuple[str, AbstractContextManager[object]]] = (
    ("hosts are no roots", mock.patch.object(Marker, "_mark_hosts", nothing)),
    ("nothing is announced", mock.patch.object(UsagePublisher, "announce", nothing)),
    (
        "nobody looks after announcing",
        mock.patch.object(ImageFollower, "_attach_announced", attach_unseen),
    ),
)


SUFFERERS = {
    "nobody looks after announcing": ("collect x", "collect y", "h1", "remove 0", "remove 1")
}
"""Actors that notice a variant; those of a variant that is not here are all."""
FOUND_BY = {"nobody looks after announcing": 314}
"""Seeds that found a variant before, where the search for one takes long: tried first."""


@pytest.mark.parametrize(("name", "variant"), BROKEN_VARIANTS)
def test_broken_variants_are_found_out(
    name: str, variant: AbstractContextManager[object], tmp_path: pathlib.Path
) -> None:
    def run(seed: int) -> None:
        run_once(seed, str(tmp_path), wanted=SUFFERERS.get(name, ()))

    with variant:
        interleaving.find_out(run, PromiseError, orders=40 * RUNS, found_by=FOUND_BY.get(name))
