"""Index by samples: found neighbours, bounded memory, packs that are gone."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.versions.sampled_index import SAMPLE_BYTES, WAYS, Limits, SampledIndex


def digests(seed: int, count: int) -> list[bytes]:
    choice = random.Random(seed)
    return [choice.randbytes(32) for _ in range(count)]


class Packs:
    """Packs of an origin."""

    def __init__(self, **packs: list[bytes]) -> None:
        self.tables = {name.encode(): table for name, table in packs.items()}

    def load(self, pack: bytes) -> Iterable[bytes] | None:
        return self.tables.get(pack)

    def index(self, limits: Limits | None = None, bits: int = 3) -> SampledIndex:
        index = SampledIndex(self.load, limits, bits)
        for pack, table in self.tables.items():
            index.add_pack(pack, table)
        return index


def test_a_sample_leads_to_its_neighbours() -> None:
    one, other = digests(1, 400), digests(2, 400)
    index = Packs(one=one, other=other).index()
    fresh = digests(3, 50)
    found = index.find([*one[100:200], *fresh])
    assert found == dict.fromkeys(one[100:200], b"one")
    assert index.tables_read == 1


def test_without_a_sample_nothing_is_found() -> None:
    one = digests(1, 400)
    index = Packs(one=one).index(bits=6)
    plain = [digest for digest in one if int.from_bytes(digest[-4:], "little") & 63]
    assert index.find(plain[:20]) == {}
    assert index.tables_read == 0


def test_packs_that_are_gone_are_not_found() -> None:
    packs = Packs(one=digests(1, 200))
    index = packs.index()
    del packs.tables[b"one"]
    assert index.find(digests(1, 200)) == {}
    assert len(index) == 0
    assert index.find(digests(1, 200)) == {}
    assert index.tables_read == 1


def test_forgotten_packs_are_not_found() -> None:
    index = Packs(one=digests(1, 200), two=digests(2, 200)).index()
    index.forget_pack(b"one")
    index.forget_pack(b"one")
    assert index.find(digests(1, 200)) == {}
    index.add_pack(b"three", digests(1, 200))
    assert len(index) == 2
    assert set(index.find(digests(2, 200)).values()) == {b"two"}


def test_of_several_packs_the_smallest_id_counts() -> None:
    same = digests(1, 40)
    for order in (("a", "b"), ("b", "a")):
        index = Packs(**dict.fromkeys(order, same)).index(bits=0)
        assert set(index.find(same).values()) == {b"a"}


def test_memory_of_samples_is_bounded() -> None:
    limits = Limits(samples=WAYS * 4, packs=10, tables=2)
    packs = Packs(**{f"p{number}": digests(number, 100) for number in range(30)})
    index = packs.index(limits, 0)
    assert index.sample_memory_bytes == limits.samples * SAMPLE_BYTES
    assert len(index) == limits.packs
    for number in range(30):
        found = index.find(digests(number, 100))
        assert set(found.values()) <= {b"p%d" % number}
        assert len(index._tables) <= limits.tables
    assert index.find(digests(29, 100))


def test_the_oldest_sample_makes_room() -> None:
    limits = Limits(samples=WAYS, packs=100, tables=100)
    packs = Packs(**{f"p{number}": digests(number, 1) for number in range(WAYS)})
    index = packs.index(limits, 0)
    assert index.find(digests(0, 1))
    packs.tables[b"new"] = digests(99, 1)
    index.add_pack(b"new", digests(99, 1))
    assert index.find(digests(0, 1))
    assert not index.find(digests(1, 1))


@given(st.lists(st.lists(st.integers(0, 60), max_size=12), max_size=8), st.integers(0, 3))
def test_what_is_found_is_there(packs: list[list[int]], bits: int) -> None:
    tables = {
        f"p{number}": [digests(one, 1)[0] for one in table] for number, table in enumerate(packs)
    }
    known = Packs(**tables)
    index = known.index(Limits(samples=64, packs=4, tables=2), bits)
    for pack, table in known.tables.items():
        for digest, where in index.find(table).items():
            assert digest in known.tables[where]
        assert pack not in index._numbers or len(index) <= 4


def test_limits_out_of_range_are_refused() -> None:
    for limits in ((1, 1, 1), (64, 0, 1), (64, 1, 0), (64, 1 << 32, 1)):
        with pytest.raises(exception.InvalidError):
            Limits(*limits)
    with pytest.raises(exception.InvalidError):
        SampledIndex(lambda pack: None, sample_bits=17)
