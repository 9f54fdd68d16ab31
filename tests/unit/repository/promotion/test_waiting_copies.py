"""Copies of refs that wait for the objects which the refs name, and what does not wait for them."""

from typing import Any
from unittest import mock

import pytest

from acstor.origin.replicated import ref_copy
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberEvent
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.registrar.member_upkeep import check_readable, manifests_of
from acstor.repository import layout
from acstor.repository.volumes.store import NewVolume
from tests.unit.repository.copying.cloud import FOLDED, volume_text
from tests.unit.repository.promotion.members import NOW, Members, lost_names
from tests.unit.repository.promotion.test_misfortunes import OTHER, home_volumes, owner_of
from tests.unit.repository.volumes.hosts import CHUNK_SIZE, Owner


def fold(owner: Owner, text: str) -> None:
    owner.write(text)
    owner.fold()


def manifest_key(members: Members, volume_id: str) -> str:
    return layout.manifest_key(str(home_volumes(members).get(volume_id).record.manifest))


def leading(members: Members) -> MemberKeeping:
    return members.keeping(members.open("home", "near", "far"))


def test_manifest_comes_after_its_packs(members: Members) -> None:
    """The home is lost while a pack is on its way: the volume is there as it was before."""
    keeping = MemberKeeping(
        members.open("home", "near", "far"), check_readable, 2, "r",
        needed=manifests_of, clock=members.clock, now=lambda: NOW,
    )  # fmt: skip
    keeping.run()
    home, near = members.stores["home"], members.stores["near"]
    before = set(home.list("packs/"))
    owner = owner_of(members, FOLDED, "b")
    fold(owner, "fresh ")
    owner.release()
    (pack,) = set(home.list("packs/")) - before
    for _ in range(30):
        members.clock.now += 61
        keeping.run()
        keeping._sync._copy._wait = lambda seconds: None
        assert near.exists(pack) or not near.exists(manifest_key(members, FOLDED))
    assert near.exists(pack)
    assert layout.volume_ref(FOLDED) not in lost_names(members.promotion("near", "far").survey())


@pytest.mark.parametrize("why", ["rotten", "draining"])
def test_ref_that_waits_in_vain_delays_no_other(members: Members, why: str) -> None:
    home_volumes(members).create(NewVolume(OTHER, CHUNK_SIZE))
    other = owner_of(members, OTHER, "o")
    fold(other, "old ")
    keeping = leading(members)
    for _ in range(10):
        members.clock.now += 61
        keeping.run()
    if why == "draining":
        Membership("home", members.stores).change("far", MemberEvent.DRAIN)
        members.clock.now += 61
        keeping.run()
    owner = owner_of(members, FOLDED, "b")
    fold(owner, "fresh ")
    owner.release()
    if why == "rotten":
        store, key = members.stores["home"], manifest_key(members, FOLDED)
        content = store.get(key, 1 << 20)
        store.delete(key)
        store.put_if_absent(key, [content[:-1] + bytes([content[-1] ^ 1])])
    for _ in range(130):
        members.clock.now += 61
        keeping.run()
    fold(other, "new ")
    other.release()
    for _ in range(12):
        members.clock.now += 61
        keeping.run()
    copy = members.stores["near"].get_ref(ref_copy.copy_name(layout.volume_ref(OTHER)))
    present = members.stores["home"].get_ref(layout.volume_ref(OTHER))
    assert copy is not None
    assert present is not None
    assert ref_copy.parse(copy.content).content == present.content


def test_draining_member_gets_copies_without_objects(members: Members) -> None:
    keeping = leading(members)
    keeping.run()
    Membership("home", members.stores).change("far", MemberEvent.DRAIN)
    members.clock.now += 61
    keeping.run()
    owner = owner_of(members, FOLDED, "b")
    fold(owner, "fresh ")
    owner.release()
    for _ in range(10):
        members.clock.now += 61
        status = keeping.run()
    assert status.members["far"].refs_behind == 0


def test_time_of_copies_goes_on_beside_folds(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something is folded between the listings and the copies, each time."""
    home_volumes(members).create(NewVolume(OTHER, CHUNK_SIZE))
    owner = owner_of(members, FOLDED, "b")
    keeping = leading(members)
    keeping.run()
    run_period = keeping._sync.run_period

    def busy(*args: Any) -> Any:
        found = run_period(*args)
        fold(owner, "x")
        return found

    monkeypatch.setattr(keeping._sync, "run_period", busy)
    for _ in range(30):
        members.clock.now += 61
        status = keeping.run()
    assert (status.members["near"].refs_age_seconds or 0.0) < 100
    assert status.members["near"].refs_behind


def test_comparisons_are_rare_where_one_waits_in_vain(members: Members) -> None:
    keeping = leading(members)
    keeping.run()
    owner = owner_of(members, FOLDED, "b")
    fold(owner, "fresh ")
    owner.release()
    key = manifest_key(members, FOLDED)
    content = members.stores["home"].get(key, 1 << 20)
    members.stores["home"].delete(key)
    members.stores["home"].put_if_absent(key, [content[:-1] + bytes([content[-1] ^ 1])])
    with mock.patch.object(keeping._sync, "compare", wraps=keeping._sync.compare) as compared:
        for _ in range(60):
            members.clock.now += 61
            status = keeping.run()
    assert status.members["near"].refs_behind
    assert 2 <= compared.call_count <= 5
    members.promote("near", "far")
    assert volume_text(members.open("near", "far"), FOLDED) == "five six "
