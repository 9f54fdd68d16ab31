"""Upgrading a repository: whenever it is killed, and however late a deletion comes."""

import dataclasses
import random
import uuid
from collections.abc import Sequence

import pytest

from acstor import exception
from acstor.origin import base, memory
from acstor.repository.repository import (
    COMPRESSED_VERSION,
    FORMAT_VERSION,
    INDEX_VERSION,
    Format,
    Repository,
)
from acstor.repository.upgrade import upgrade
from tests.unit.repository import interleaving

OLDER = Format(str(uuid.UUID(int=1)), 4096, version=1)


def older_repository() -> memory.MemoryOrigin:
    origin = memory.MemoryOrigin()
    origin.put_if_absent("format", [OLDER.encode()])
    return origin


def check(origin: base.Origin, versions: set[int]) -> None:
    found = Repository.open(origin).format
    assert (found.id, found.chunk_size) == (OLDER.id, 4096)
    assert found.version in versions
    assert Format.parse(origin.get("format", 1 << 16)) == found


@pytest.mark.parametrize("steps", range(1, 9))
def test_killed_upgrade_leaves_a_repository_that_is_the_same(steps: int) -> None:
    origin = older_repository()
    actor = interleaving.Actor("upgrade", upgrade, origin)
    for _ in range(steps):
        if not actor.is_done:
            actor.step()
    if not actor.is_done:
        actor.kill()
    check(origin, {1, FORMAT_VERSION})
    upgrade(origin)
    check(origin, {FORMAT_VERSION})


def test_upgrades_and_openings_in_any_order_agree() -> None:
    for seed in range(300):
        choice = random.Random(seed)
        origin = older_repository()
        actors = [
            interleaving.Actor("one", upgrade, origin),
            interleaving.Actor("two", upgrade, origin),
            interleaving.Actor("open", Repository.open, origin),
            interleaving.Actor("init", lambda inner: Repository.init(inner, 4096), origin),
        ]
        kills = {"one": choice.randint(1, 8)} if choice.random() < 0.5 else {}
        interleaving.run(actors, choice, kills)
        for actor in actors:
            assert actor.error is None, f"seed {seed}: {actor.name}"
        check(origin, {FORMAT_VERSION})


def test_upgrades_to_different_versions_end_at_the_newer_one() -> None:
    for seed in range(300):
        choice = random.Random(seed)
        origin = older_repository()
        actors = [
            interleaving.Actor("one", upgrade, origin),
            interleaving.Actor("two", lambda inner: upgrade(inner, INDEX_VERSION), origin),
            interleaving.Actor("three", upgrade, origin),
            interleaving.Actor("open", Repository.open, origin),
        ]
        kills = {"one": choice.randint(1, 8)} if choice.random() < 0.5 else {}
        interleaving.run(actors, choice, kills)
        for actor in actors:
            assert actor.error is None, f"seed {seed}: {actor.name}"
        check(origin, {FORMAT_VERSION})


def test_deletion_that_comes_late_is_repaired_by_whoever_opens() -> None:
    origin = older_repository()
    upgrade(origin)
    origin.delete("format")
    check(origin, {FORMAT_VERSION})


class ReadOnlyOrigin(memory.MemoryOrigin):
    """As a host has it, whose key does not allow to store what controllers do."""

    is_read_only = False

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Refuse it as a store does that looks at keys."""
        if self.is_read_only:
            raise exception.InvalidError("give this client the capabilities that it needs")
        return super().put_if_absent(key, buffers)


def test_whoever_may_only_read_opens_what_an_upgrade_has_left() -> None:
    origin = ReadOnlyOrigin()
    made = Repository.init(origin, 4096, INDEX_VERSION)
    upgrade(origin, COMPRESSED_VERSION)
    origin.delete("format")
    origin.is_read_only = True
    assert Repository.open(origin).format == dataclasses.replace(
        made.format, version=COMPRESSED_VERSION
    )
    made.check_there()
    origin.is_read_only = False
    check_format = Repository.open(origin).format
    assert Format.parse(origin.get("format", 1 << 16)) == check_format


def test_upgraded_repository_is_left_alone() -> None:
    origin = memory.MemoryOrigin()
    made = Repository.init(origin, 4096)
    assert upgrade(origin).format == made.format
    assert list(origin.list_refs()) == []


def test_no_repository_is_upgraded_to_none() -> None:
    with pytest.raises(exception.NotFoundError, match="no repository"):
        upgrade(memory.MemoryOrigin())
