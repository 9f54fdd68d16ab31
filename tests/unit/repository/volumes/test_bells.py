"""Bells of hosts."""

from acstor.origin import keys
from acstor.origin.memory import MemoryOrigin
from acstor.repository.volumes import bells
from testbed.fixtures.documents import ROOT

GOLDEN = ROOT / "tests" / "golden" / "volume-bell-v1.json"


def test_bell_version_requires_update() -> None:
    assert bells.BELL_VERSION == 1
    assert bells.encode("compute-1", "0123456789abcdef" * 2) == GOLDEN.read_bytes()


def test_bell_is_heard_by_its_host_only() -> None:
    origin = MemoryOrigin()
    assert bells.heard(origin, "a") is None
    bells.ring(origin, "a")
    first = bells.heard(origin, "a")
    assert first is not None
    assert bells.heard(origin, "a") == first
    assert bells.heard(origin, "b") is None
    bells.ring(origin, "a")
    assert bells.heard(origin, "a") != first


def test_any_name_of_a_host_has_a_bell() -> None:
    names = {
        keys.validate_ref_name(bells.bell_ref(host)) for host in ("a", "A", "h\xf6st/..", "x" * 255)
    }
    assert len(names) == 4
