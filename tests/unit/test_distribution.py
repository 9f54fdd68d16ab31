"""Distribution of tests: what runs in one process, and in which order."""

import pathlib
from typing import Any

from tests import distribution

ROOT = pathlib.Path(__file__).parents[2]


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_longest_files_exist() -> None:
    assert [one for one in distribution.LONGEST if not (ROOT / one).is_file()] == []


def test_files_stay_together_in_their_order_and_the_longest_are_first() -> None:
    first, second = distribution.LONGEST[:2]
    ceph = "tests/compliance/test_origin.py::test_a[rados, read natively]"
    others = ["tests/unit/test_b.py::test_z", "tests/unit/test_a.py::test_y"]
    longest = [f"{first}::test_b", f"{first}::test_a[1]", f"{second}::test_c"]
    items: list[Any] = [Item(one) for one in (*others, longest[2], ceph, *longest[:2])]
    distribution.longest_first(items)
    assert [item.nodeid for item in items] == [*longest, ceph, *others]


def test_what_runs_over_ceph_is_one_unit_whatever_its_file() -> None:
    over_ceph = [
        "tests/compliance/test_ref_store.py::test_missing_ref_is_none[rados]",
        "tests/compliance/test_doorbell.py::test_a[1-rados, refs in their pool]",
    ]
    assert {distribution.unit_of(one) for one in over_ceph} == {distribution.CEPH}
    for other in (
        "tests/compliance/test_ref_store.py::test_missing_ref_is_none[posix]",
        "tests/unit/origin/rados/test_pools.py::test_a[1]",
        "tests/unit/test_headings.py::test_a[api/rados.rst]",
    ):
        assert distribution.unit_of(other) == other.partition("::")[0]
