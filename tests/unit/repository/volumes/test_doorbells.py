"""Doorbells of hosts."""

from acstor.origin import keys
from acstor.origin.memory import MemoryOrigin
from acstor.repository.volumes import doorbells
from testbed.fixtures.documents import ROOT

GOLDEN = ROOT / "tests" / "golden" / "volume-doorbell-v1.json"


def test_doorbell_version_requires_update() -> None:
    assert doorbells.DOORBELL_VERSION == 1
    assert doorbells.encode("compute-1", "0123456789abcdef" * 2) == GOLDEN.read_bytes()


def test_doorbell_is_heard_by_its_host_only() -> None:
    origin = MemoryOrigin()
    assert doorbells.heard(origin, "a") is None
    doorbells.ring(origin, "a")
    first = doorbells.heard(origin, "a")
    assert first is not None
    assert doorbells.heard(origin, "a") == first
    assert doorbells.heard(origin, "b") is None
    doorbells.ring(origin, "a")
    assert doorbells.heard(origin, "a") != first


def test_any_name_of_a_host_has_a_doorbell() -> None:
    names = {
        keys.validate_ref_name(doorbells.doorbell_ref(host))
        for host in ("a", "A", "h\xf6st/..", "x" * 255)
    }
    assert len(names) == 4
