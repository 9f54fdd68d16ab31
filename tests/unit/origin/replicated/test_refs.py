"""The copies of refs in members that are not the home."""

import pytest

from acstor import exception
from acstor.origin.faulty import FaultyOrigin
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated import ref_copy, refs
from acstor.origin.replicated.ref_copy import RefCopy
from acstor.origin.replicated.refs import HomeRefs, RefCopier
from testbed.doubles.virtual_time import VirtualTime
from testbed.fixtures.documents import ROOT
from tests.unit.origin.replicated.stores import away

GOLDEN = ROOT / "tests" / "golden" / "ref-copy-v1.bin"
COPY = RefCopy("volumes/11111111-2222-4333-8444-555555555555", b'{"epoch": 1}\n')


def test_ref_copy_version_requires_update() -> None:
    assert ref_copy.COPY_VERSION == 1
    assert COPY.encode() == GOLDEN.read_bytes(), "bump COPY_VERSION"
    assert ref_copy.parse(GOLDEN.read_bytes()) == COPY


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"{}\n", COPY.encode()[:-1], COPY.encode().replace(b"epoch", b"Epoch"),
     COPY.encode().replace(b"volumes/", b"../"), b" " * 2000 + b"\n"],
)  # fmt: skip
def test_damaged_copy_is_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        ref_copy.parse(content)


def test_copy_of_a_newer_release_is_refused() -> None:
    with pytest.raises(exception.UnsupportedError):
        ref_copy.parse(COPY.encode().replace(b'"version": 1', b'"version": 2'))


def copies(member: MemoryOrigin) -> dict[str, bytes]:
    """Return what a member has copies of."""
    found = {}
    for name in member.list_refs():
        assert name.startswith(ref_copy.COPIES_PREFIX), "it would be taken for a ref"
        ref = member.get_ref(name)
        assert ref is not None
        copy = ref_copy.parse(ref.content)
        assert ref_copy.copy_name(copy.name) == name
        found[copy.name] = copy.content
    return found


def test_copies_follow_the_home() -> None:
    home, member, clock = MemoryOrigin(), MemoryOrigin(), VirtualTime()
    store, copier = HomeRefs(home), RefCopier(home, {"b": member}, clock)
    deep = "a/b/c/d/e/f/g/" + "h" * 240
    assert copier.lags()["b"].age_seconds is None
    first = store.swap_ref("ring", None, b"1")
    store.swap_ref(deep, None, b"deep")
    assert copier.copy()["b"].refs == 0
    assert copies(member) == {"ring": b"1", deep: b"deep"}
    clock.now += 7.0
    assert copier.lags()["b"].age_seconds == 7.0
    second = store.swap_ref("ring", first, b"2")
    copier.copy()
    assert copies(member)["ring"] == b"2"
    store.swap_ref("ring", second, None)
    copier.copy()
    assert copies(member) == {deep: b"deep"}


def test_unreachable_member_lags_and_the_others_do_not() -> None:
    home, far, near, clock = MemoryOrigin(), MemoryOrigin(), MemoryOrigin(), VirtualTime()
    faulty = away(far)
    copier = RefCopier(home, {"far": faulty, "near": near}, clock)
    home.swap_ref("ring", None, b"1")
    home.swap_ref("format", None, b"1")
    lags = copier.copy()
    assert (lags["far"].refs, lags["far"].age_seconds) == (2, None)
    assert "on purpose" in lags["far"].error
    assert (lags["near"].refs, lags["near"].age_seconds) == (0, 0.0)
    faulty.faults.clear()
    assert copier.copy()["far"] == refs.RefLag(0, 0.0)
    assert copies(far) == copies(near)


def test_unreachable_home_leaves_the_copies() -> None:
    home, member = FaultyOrigin(MemoryOrigin()), MemoryOrigin()
    copier = RefCopier(home, {"b": member})
    home.swap_ref("ring", None, b"1")
    copier.copy()
    home.faults = away(MemoryOrigin()).faults
    with pytest.raises(exception.UnavailableError):
        copier.copy()
    assert copies(member) == {"ring": b"1"}


def test_new_process_removes_what_an_old_one_copied() -> None:
    home, member = MemoryOrigin(), MemoryOrigin()
    token = home.swap_ref("ring", None, b"1")
    RefCopier(home, {"b": member}).copy()
    home.swap_ref("ring", token, None)
    member.swap_ref(ref_copy.copy_name("damaged"), None, b"?")
    RefCopier(home, {"b": member}).copy()
    assert copies(member) == {}


def test_late_write_of_a_former_leader_is_mended_by_a_complete_pass() -> None:
    home, member = MemoryOrigin(), MemoryOrigin()
    home.swap_ref("ring", None, b"new")
    copier = RefCopier(home, {"b": member})
    copier.copy()
    refs._write(member, RefCopy("ring", b"old"), lambda: True)
    for _ in range(refs.COMPLETE_PASS_EVERY):
        copier.copy()
    assert copies(member) == {"ring": b"new"}
