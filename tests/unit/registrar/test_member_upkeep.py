"""Upkeep of the members of an origin by the registrar that leads."""

import pytest

from acstor import exception
from acstor.conf import loading
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberState
from acstor.origin.retrying import RetryingOrigin
from acstor.registrar import metrics
from acstor.registrar.member_power import PowerParts, power_parts
from acstor.registrar.member_upkeep import NotCondemned, check_readable, upkeep_of
from acstor.registrar.metrics import RegistrarMetrics
from acstor.repository import layout
from testbed.fixtures.conditions import wait_for
from tests.unit.repository import images


def power() -> PowerParts:
    return power_parts(loading.load("test", []))


def test_members_are_filled_in_the_background_and_shown() -> None:
    stores = {"home": MemoryOrigin(), "near": MemoryOrigin()}
    repository = images.open_repository(stores["home"])
    images.register(repository, 1, images.disk(1, 2, 3))
    Membership("home", stores).create()
    origin = ReplicatedOrigin([MemberAddress(name, name) for name in stores], stores.__getitem__)
    shown = RegistrarMetrics()
    upkeep = upkeep_of(RetryingOrigin(origin, 1.0), 100, "me", shown, power)
    assert upkeep is not None
    upkeep.start()
    wait_for("near is in use", lambda: origin.view.state("near") is MemberState.ACTIVE)
    upkeep.stop(60)
    assert set(stores["near"].list("packs/")) == set(stores["home"].list("packs/")) != set()
    assert upkeep.problem is None
    text = shown.text()
    assert f'{metrics.MEMBER_UP}{{member="near"}} 1.0' in text
    assert f'{metrics.MEMBER_OWED_BYTES}{{member="near"}} 0.0' in text


def test_origin_of_one_store_has_no_upkeep() -> None:
    assert (
        upkeep_of(RetryingOrigin(MemoryOrigin(), 1.0), 100, "me", RegistrarMetrics(), power) is None
    )


def test_what_is_being_deleted_is_not_copied() -> None:
    origin = MemoryOrigin()
    pack = "ab" * 32
    is_wanted = NotCondemned(origin)
    assert is_wanted(layout.pack_key(pack))
    assert is_wanted("packs/of-another-release")
    origin.swap_ref(layout.condemned_ref(pack), None, b"tombstone")
    assert not is_wanted(layout.pack_key(pack))
    assert is_wanted(layout.moved_key(pack))
    origin.swap_ref(layout.condemned_ref(layout.moved_name(pack)), None, b"tombstone")
    assert not is_wanted(layout.moved_key(pack))


@pytest.mark.parametrize("key", [layout.pack_key("ab" * 32), layout.manifest_key("cd" * 32), "odd"])
def test_whatever_is_wrong_with_an_object_it_is_damaged(key: str) -> None:
    with pytest.raises(exception.CorruptError):
        check_readable(key, memoryview(b"nonsense"), MemoryOrigin())
