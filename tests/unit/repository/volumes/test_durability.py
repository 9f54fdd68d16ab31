"""The durability of disks and regions: JSON, extra specs, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.repository.volumes import durability
from acstor.repository.volumes.durability import Durability, DurabilityClass, FlushTarget, Region

WRITE_BACK = DurabilityClass.WRITE_BACK
NONE = DurabilityClass.NONE

CLASSES = st.sampled_from(DurabilityClass)
PERIODS = st.integers(1, 86400).map(float)
NAMES = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x2FFF, exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=36,
)


def region(what: DurabilityClass, where: tuple[int, int] | str, period: float) -> Region:
    period_s = period if what is WRITE_BACK else None
    if isinstance(where, str):
        return Region(what, partition=where, period_s=period_s)
    return Region(what, first=where[0] * 512, last=where[1] * 512, period_s=period_s)


def places(bounds: list[int], names: list[str]) -> list[tuple[int, int] | str]:
    """Return disjoint ranges (sectors) and names."""
    ends = sorted(bounds)
    return [*zip(ends[::2], ends[1::2], strict=False), *names]


PLACES = st.builds(
    places,
    st.lists(st.integers(0, 1 << 40), unique=True, max_size=12),
    st.lists(NAMES, unique=True, max_size=6),
)


@st.composite
def durabilities(draw: st.DrawFn) -> Durability:
    regions = tuple(region(draw(CLASSES), where, draw(PERIODS)) for where in draw(PLACES))
    io_timeout_s = draw(st.none() | st.floats(0, 86400))
    flush = draw(st.sampled_from(FlushTarget))
    return Durability(draw(CLASSES), draw(PERIODS), flush, regions, io_timeout_s)


@given(durabilities())
def test_both_forms_read_back(wanted: Durability) -> None:
    assert Durability.from_fields(wanted.to_fields()) == wanted
    assert Durability.from_extra_specs(wanted.to_extra_specs()) == wanted


def test_a_type_without_extra_specs_is_write_through() -> None:
    assert Durability.from_extra_specs({"volume_backend_name": "acstor"}) == Durability()
    assert Durability().classes == {DurabilityClass.WRITE_THROUGH}
    assert Durability().io_timeout_s is None, "the host decides, and waits unless told otherwise"
    assert "io_timeout_s" not in Durability().to_fields(), "as the release before wrote it"


def test_extra_spec_of_the_io_timeout() -> None:
    def of(text: str) -> float | None:
        return Durability.from_extra_specs({"acstor:io_timeout": text}).io_timeout_s

    assert (of("30"), of("0"), of(" ")) == (30.0, 0.0, None)


def test_extra_specs_of_a_desktop() -> None:
    found = Durability.from_extra_specs(
        {
            "acstor:durability": "write-through",
            "acstor:period": "30",
            "acstor:flush": "origin",
            "acstor:regions": "system=write-back@3600, swap=none, 1GiB-1536 MiB=none,C%2C =none",
        }
    )
    assert found.flush is FlushTarget.ORIGIN
    assert found.regions == (
        Region(WRITE_BACK, partition="system", period_s=3600.0),
        Region(NONE, partition="swap"),
        Region(NONE, first=1 << 30, last=3 << 29),
        Region(NONE, partition="C,"),
    )


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"acstor:durability": "sometimes"}, "'sometimes' is no durability"),
        ({"acstor:flush": "disk"}, "'disk' is no target of a flush"),
        ({"acstor:period": "soon"}, "'soon' in acstor:period"),
        ({"acstor:period": "0"}, "period 0 s is not from 0.1"),
        ({"acstor:period": "nan"}, "period nan"),
        ({"acstor:period": "1e9"}, "period 1e\\+09 s"),
        ({"acstor:io_timeout": "soon"}, "'soon' in acstor:io_timeout"),
        ({"acstor:io_timeout": "-1"}, "I/O timeout -1 s is not from 0"),
        ({"acstor:io_timeout": "nan"}, "I/O timeout nan"),
        ({"acstor:io_timeout": "86401"}, "I/O timeout 86401 s"),
        ({"acstor:regions": "swap"}, "'swap' in acstor:regions is no region"),
        ({"acstor:regions": "=none"}, "is no region"),
        ({"acstor:regions": "swap=never"}, "'never' is no durability"),
        ({"acstor:regions": "swap=none@30"}, "region swap has a period but is none"),
        ({"acstor:regions": "swap=write-back@x"}, "'x' in acstor:regions"),
        (
            {"acstor:regions": ",".join(f"p{n}=write-back@{n}" for n in range(1, 15))},
            "15 different write-back periods",
        ),
        ({"acstor:regions": "swap=none,swap=none"}, "'swap' has two"),
        ({"acstor:regions": "0-1=none"}, "multiple of 512"),
        ({"acstor:regions": "2GiB-1GiB=none"}, "is no range"),
        ({"acstor:regions": "0-1GiB=none,512MiB-2GiB=none"}, "overlap"),
        ({"acstor:regions": "1-2 furlongs=none"}, "is not a size"),
        ({"acstor:regions": "%FF=none"}, "no UTF-8"),
        ({"acstor:regions": f"{'x' * 37}=none"}, "37 UTF-16 code units"),
        ({"acstor:regions": "a%0Ab=none"}, "control characters"),
        ({"acstor:regions": ",".join(f"p{n}=none" for n in range(65))}, "65 regions"),
    ],
)
def test_bad_extra_specs_are_named(specs: dict[str, str], message: str) -> None:
    with pytest.raises(exception.InvalidError, match=message):
        Durability.from_extra_specs(specs)


@pytest.mark.parametrize(
    "fields",
    [
        None, [], "none", {"default": "x"}, {"period_s": "30"}, {"period_s": True},
        {"period_s": 10**400}, {"flush": None}, {"regions": None}, {"regions": [1]},
        {"regions": [{}]}, {"regions": [{"class": "none"}]},
        {"regions": [{"class": "none", "first": 0}]},
        {"regions": [{"class": "none", "first": 0.0, "last": 512}]},
        {"regions": [{"class": "none", "first": -512, "last": 512}]},
        {"regions": [{"class": "none", "first": 0, "last": 1 << 63}]},
        {"regions": [{"class": "none", "partition": 7}]},
        {"regions": [{"class": "none", "partition": ""}]},
        {"regions": [{"class": "none", "partition": "\ud800"}]},
        {"regions": [{"class": "none", "partition": "p", "first": 0, "last": 512}]},
        {"regions": [{"class": "none", "partition": f"p{n}"} for n in range(65)]},
    ],
)  # fmt: skip
def test_bad_json_is_refused(fields: object) -> None:
    with pytest.raises(exception.InvalidError):
        Durability.from_fields(fields)


def test_names_outside_the_basic_plane_count_twice() -> None:
    durability.check_partition_name("\U0001f4be" * 18)
    with pytest.raises(exception.InvalidError, match="38 UTF-16"):
        durability.check_partition_name("\U0001f4be" * 19)
