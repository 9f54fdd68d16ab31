"""The suite that every doorbell passes: see acstor/origin/doorbell.py, Doorbell."""

import pathlib
import threading
from collections.abc import Iterator

import pytest

from acstor.origin import base, faulty, memory, posix, retrying
from acstor.origin.doorbell import Doorbell
from acstor.origin.rados import doorbell as rados_doorbell
from acstor.origin.rados.origin import RadosOrigin
from testbed.doubles.faulty_rados import FaultyRados
from testbed.doubles.memory_rados import MemoryRados
from testbed.fixtures.conditions import wait_for
from tests.compliance import origins

ORIGINS: dict[str, origins.Factory] = {
    "memory": lambda path: memory.MemoryOrigin(),
    "retrying over memory": lambda path: retrying.RetryingOrigin(memory.MemoryOrigin(), 5.0),
    "faulty": lambda path: faulty.FaultyOrigin(memory.MemoryOrigin()),
    "rados over memory": lambda path: RadosOrigin("acstor", binding=MemoryRados().binding),
    "rados over memory, faulty binding": lambda path: RadosOrigin(
        "acstor", binding=FaultyRados(MemoryRados()).binding
    ),
}
ALL = [*ORIGINS, "rados", "rados, refs in their pool"]
WITHOUT: dict[str, origins.Factory] = {
    "posix": lambda path: posix.PosixOrigin(str(path)),
    "http over memory": lambda path: origins.ServedOrigin(memory.MemoryOrigin()),
}


@pytest.fixture(params=ALL)
def origin(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[base.Origin]:
    monkeypatch.setattr(rados_doorbell, "HEARD_INTERVAL", 0.01)
    factory = ORIGINS.get(request.param) or origins.factory_of(request.param, request)
    with origins.opened(factory, tmp_path) as made:
        yield made


def doorbell_of(origin: base.Origin) -> Doorbell:
    """Return the doorbell, which is always the same one."""
    found = origin.doorbell()
    assert found is not None
    assert origin.doorbell() is found
    return found


def test_who_listens_looks_at_once_for_what_was_before(origin: base.Origin) -> None:
    heard = threading.Event()
    doorbell_of(origin).listen(heard.set)
    assert heard.wait(origins.RADOS_SECONDS)


def test_ring_reaches_everybody_who_listens(origin: base.Origin) -> None:
    bell = doorbell_of(origin)
    heard = [threading.Event(), threading.Event()]
    for one in heard:
        bell.listen(one.set)
    for _ in range(2):
        for one in heard:
            assert one.wait(origins.RADOS_SECONDS)
            one.clear()
        bell.ring()
    for one in heard:
        assert one.wait(origins.RADOS_SECONDS)


def test_what_was_changed_before_a_ring_is_seen_after_it(origin: base.Origin) -> None:
    bell = doorbell_of(origin)
    seen: list[bytes] = []

    def look() -> None:
        ref = origin.get_ref("image-index")
        seen.append(b"" if ref is None else ref.content)

    bell.listen(look)
    token = None
    for number in range(30):
        token = origin.swap_ref("image-index", token, str(number).encode())
        bell.ring()
    wait_for("the last change", lambda: b"29" in seen, timeout=origins.RADOS_SECONDS)


def test_ring_that_nobody_hears_is_no_error(origin: base.Origin) -> None:
    bell = doorbell_of(origin)
    for _ in range(100):
        bell.ring()


def test_closed_doorbell_is_silent(origin: base.Origin) -> None:
    bell = doorbell_of(origin)
    heard = threading.Event()
    bell.listen(heard.set)
    assert heard.wait(origins.RADOS_SECONDS)
    bell.close()
    heard.clear()
    bell.ring()
    bell.close()
    assert not heard.is_set()


@pytest.mark.parametrize("name", WITHOUT)
def test_store_without_a_doorbell_says_so(name: str, tmp_path: pathlib.Path) -> None:
    with origins.opened(WITHOUT[name], tmp_path) as origin:
        assert origin.doorbell() is None
