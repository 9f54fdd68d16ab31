"""Pool that is deleted under a service, and made again: nothing is taken for absent in it.

librados answers the same of it as of an object that is not there.
"""

from collections.abc import Callable

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados.origin import RadosOrigin
from testbed.doubles.memory_rados import MemoryRados

SMALL, LARGE = b"content", bytes(5 << 20)
KEY, STRIPED, NEW, REF = "packs/aa/one", "packs/aa/striped", "packs/aa/new", "images/one"


class Rig:
    """Origin with an object and a ref, over pools that can be deleted."""

    def __init__(self) -> None:
        self.rados = MemoryRados()
        self.origin = self.opened()
        self.origin.put_if_absent(KEY, [SMALL])
        self.origin.put_if_absent(STRIPED, [LARGE])
        self.token = self.origin.swap_ref(REF, None, b"record")

    def opened(self) -> RadosOrigin:
        return RadosOrigin(
            "heads", stripe_pool="stripes", ref_pool="refs", binding=self.rados.binding
        )

    def read(self, key: str) -> None:
        self.origin.readinto(key, 0, memoryview(bytearray(len(SMALL))))

    def read_many(self) -> None:
        buffer = memoryview(bytearray(len(SMALL)))
        found = self.origin.read_many([base.ReadRange(KEY, 0, buffer)] * 2)
        assert found[0] is not None
        raise found[0]


Call = Callable[[Rig], object]
CALLS: dict[str, tuple[str, Call]] = {
    "get_ref": ("refs", lambda rig: rig.origin.get_ref(REF)),
    "refresh_ref": (
        "refs",
        lambda rig: rig.origin.refresh_ref(REF, base.Ref(rig.token or "", b"")),
    ),
    "swap_ref": ("refs", lambda rig: rig.origin.swap_ref(REF, rig.token, b"other")),
    "new ref": ("refs", lambda rig: rig.origin.swap_ref("images/two", None, b"record")),
    "read": ("heads", lambda rig: rig.read(KEY)),
    "read_many": ("heads", Rig.read_many),
    "size": ("heads", lambda rig: rig.origin.size(KEY)),
    "exists": ("heads", lambda rig: rig.origin.exists(KEY)),
    "put small": ("heads", lambda rig: rig.origin.put_if_absent(NEW, [SMALL])),
    "put large": ("heads", lambda rig: rig.origin.put_if_absent(NEW, [LARGE])),
    "put stripes": ("stripes", lambda rig: rig.origin.put_if_absent(NEW, [LARGE])),
    "read stripes": ("stripes", lambda rig: rig.read(STRIPED)),
    "delete": ("heads", lambda rig: rig.origin.delete(KEY)),
    "delete stripes": ("stripes", lambda rig: rig.origin.delete(STRIPED)),
    "sweep": ("heads", lambda rig: rig.origin.sweep()),
}


@pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "made again"])
@pytest.mark.parametrize(("pool", "call"), CALLS.values(), ids=CALLS.keys())
def test_nothing_is_absent_in_a_pool_that_is_gone(
    pool: str, call: Call, is_made_again: bool
) -> None:
    rig = Rig()
    rig.rados.delete_pool(pool)
    if is_made_again:
        rig.rados.open_pool(pool)
    for _ in range(2):
        with pytest.raises(exception.UnavailableError, match=f"pool {pool} was deleted"):
            call(rig)


def test_another_pool_of_the_name_is_not_mixed_with_the_former() -> None:
    rig = Rig()
    rig.rados.delete_pool("refs")
    with pytest.raises(exception.UnavailableError, match="pool refs was deleted"):
        rig.origin.get_ref("pins/one")  # a namespace that was not used before
    assert rig.opened().get_ref(REF) is None
    rig.origin.close()
    assert rig.origin.get_ref(REF) is None


def test_absent_is_absent_where_the_pool_has_another_name() -> None:
    rig = Rig()
    rig.rados.pool_ids["renamed"] = rig.rados.pool_ids.pop("heads")
    assert rig.origin.get_ref("images/two") is None
