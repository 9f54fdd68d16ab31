"""Profiles of boots, as scenarios ask for them."""

import numpy as np
import pytest

from sim.exception import ScenarioError
from sim.programs import ProfileSpec, profile_indexes

TOUCHED = list(range(500, 0, -2))
DISK = 4096


def drawn(spec: ProfileSpec, disk: int = DISK) -> list[int]:
    return profile_indexes(TOUCHED, disk, spec, np.random.default_rng(3))


def test_right_profile_is_the_boots_order() -> None:
    assert drawn(ProfileSpec("right")) == TOUCHED
    assert drawn(ProfileSpec("none")) == []


def test_share_of_the_entries_is_wrong_and_stands_where_it_was() -> None:
    found = drawn(ProfileSpec("right", 0.9))
    assert len(found) == len(set(found)) == len(TOUCHED)
    wrong = [chunk for chunk in found if chunk not in TOUCHED]
    assert len(wrong) == pytest.approx(25, abs=12)
    pairs = zip(found, TOUCHED, strict=True)
    assert all(one == other or one in wrong for one, other in pairs)


def test_other_image_has_nothing_that_the_boot_reads() -> None:
    found = drawn(ProfileSpec("other"))
    assert len(found) == len(TOUCHED)
    assert not set(found) & set(TOUCHED)


def test_small_disk_has_fewer_wrong_chunks_than_wanted() -> None:
    left = set(range(300)) - set(TOUCHED)
    assert set(drawn(ProfileSpec("other"), 300)) == left


@pytest.mark.parametrize("fields", [("some",), ("right", 1.5), ("right", -1.0)])
def test_what_is_no_profile_is_refused(fields: tuple[str, float]) -> None:
    with pytest.raises(ScenarioError, match="readahead"):
        ProfileSpec(*fields)
