"""Members as a configuration names them."""

import pytest

from acstor import exception
from acstor.origin.replicated.members import MEMBERS_MAX, MemberAddress, parse_members

TWO = ["ceph=rados://acstor@pool?ref_pool=refs", "nfs-1=posix:///srv/acstor"]


def test_members_are_named_in_order_the_home_first() -> None:
    assert parse_members(TWO) == (
        MemberAddress("ceph", "rados://acstor@pool?ref_pool=refs"),
        MemberAddress("nfs-1", "posix:///srv/acstor"),
    )
    many = [f"m{number}=posix:///srv/{number}" for number in range(MEMBERS_MAX)]
    assert len(parse_members(many)) == MEMBERS_MAX


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([], "0 entries"),
        (TWO[:1], "1 entries"),
        ([f"m{number}=posix:///srv/{number}" for number in range(5)], "5 entries"),
        (["a=posix:///srv", "a=posix:///other"], "a name twice"),
        (["a=posix:///srv/", "b=posix:///srv"], "a place twice"),
        (["posix:///srv", TWO[0]], "no name"),
        (["A=posix:///srv", TWO[0]], "no name"),
        (["a" * 32 + "=posix:///srv", TWO[0]], "no name"),
        (["=posix:///srv", TWO[0]], "no name"),
        (["a", TWO[0]], "no URL"),
        (["a=", TWO[0]], "no URL"),
        (["a=https://host/path", TWO[0]], "no URL"),
        (["a=memory:", TWO[0]], "no URL"),
        (["a=posix://[::1", TWO[0]], "members"),
    ],
)
def test_what_no_members_are_is_refused(values: list[str], problem: str) -> None:
    with pytest.raises(exception.ConfigurationError, match=problem) as raised:
        parse_members(values)
    assert raised.value.hint
