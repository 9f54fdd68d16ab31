"""Tables of where objects are."""

import collections

import pytest

from acstor.origin.replicated.placement import Assignments, Placed, ranked

A, B = Placed(("a",)), Placed(("b",))


def test_longest_folder_counts() -> None:
    table = Assignments(A)
    table.assign("volume-log/", Placed(("c",)))
    table.assign("volume-log/1/00000002/", B)
    assert table.place("volume-log/1/00000002/7") == B
    assert table.place("volume-log/1/00000003/7") == Placed(("c",))
    assert table.place("volume-log") == A
    assert table.place("format") == A
    table.assign("volume-log/1/00000002/", None)
    assert table.place("volume-log/1/00000002/7") == Placed(("c",))


@pytest.mark.parametrize("copies", [0, 3])
def test_impossible_number_of_copies_is_refused(copies: int) -> None:
    with pytest.raises(ValueError, match="copies"):
        Placed(("a", "b"), copies=copies)


@pytest.mark.parametrize("members", [(), ("a", "a")])
def test_impossible_members_are_refused(members: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="members"):
        Placed(members)


def test_rendezvous_moves_the_share_of_who_leaves_only() -> None:
    members = ("a", "b", "c", "d")
    names = [f"packs/{number}" for number in range(400)]
    before = {name: ranked(name, members, 2) for name in names}
    after = {name: ranked(name, members[:3], 2) for name in names}
    firsts = collections.Counter(found[0] for found in before.values())
    assert min(firsts.values()) > 50
    for name in names:
        if "d" not in before[name]:
            assert after[name] == before[name]
