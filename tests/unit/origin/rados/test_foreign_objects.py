"""RADOS objects that others have put into a repository's namespaces, or that are damaged."""

from unittest import mock

import pytest

from acstor import exception
from acstor.origin.rados import objects as rados_objects
from acstor.origin.rados.head import Head, Kind
from acstor.origin.rados.origin import RadosOrigin
from testbed.doubles.faulty_rados import FaultyRados
from testbed.doubles.memory_rados import Context, MemoryRados, NoSpace

POOL = "acstor"
KEY = "packs/aa/one"
LARGE = bytes(9 << 20)
NONCE = b"n" * 16
ENDLESS = Head(Kind.DEAD, (1 << 64) - 1, 1, NONCE)
NAMESPACE, NOTES = "acstor.host.o.packs", "acstor.host.notes"
CALLS_MAX = 1 << 17


class EndlessError(Exception):
    """More calls than anything here may make."""


@pytest.fixture
def memory() -> MemoryRados:
    return MemoryRados()


@pytest.fixture
def controller(memory: MemoryRados) -> RadosOrigin:
    return RadosOrigin(POOL, binding=memory.binding)


def put(memory: MemoryRados, namespace: str, name: str, content: bytes) -> None:
    """Put an object there, as whoever has a key of a host can."""
    memory.stored[POOL, namespace, name] = content


def sweep(origin: RadosOrigin) -> int:
    """Sweep as if everything were old."""
    with mock.patch.object(rados_objects, "LEFTOVER_AGE_SECONDS", -10.0):
        return origin.sweep()


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where objects are removed without end."""
    calls = iter(range(CALLS_MAX))
    real = Context.remove_object

    def remove(self: Context, name: str) -> None:
        if next(calls, None) is None:
            raise EndlessError
        real(self, name)

    monkeypatch.setattr(Context, "remove_object", remove)


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{KEY}@{NONCE.hex()}", ENDLESS.encode()),
        (f"{KEY}@{NONCE.hex()}", b"no head"),
        (f"{KEY}@other", Head(Kind.DEAD, 9, 1, NONCE).encode()),
        ("no name at all", Head(Kind.DEAD, 9, 1, NONCE).encode()),
        (f"../{KEY}@{NONCE.hex()}", Head(Kind.DEAD, 9, 1, NONCE).encode()),
    ],
    ids=["endless", "no head", "other nonce", "no key", "bad key"],
)
def test_made_up_note_keeps_nobody_from_sweeping(
    memory: MemoryRados, controller: RadosOrigin, name: str, content: bytes
) -> None:
    put(memory, NOTES, name, content)
    left = Head.new(Kind.PENDING, 5, 1)
    put(memory, NOTES, f"packs/zz/last@{left.nonce.hex()}", left.encode())
    assert sweep(controller) == 1
    assert [kept for kept in memory.names("host.notes") if kept != "probe"] == [name]


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "content", [ENDLESS.turned(Kind.STRIPED).encode(), b"no head", b""], ids=["endless", "no", ""]
)
def test_object_without_a_head_can_be_deleted(
    memory: MemoryRados, controller: RadosOrigin, content: bytes
) -> None:
    put(memory, NAMESPACE, KEY, content)
    with pytest.raises(exception.CorruptError):
        controller.size(KEY)
    assert controller.delete(KEY)
    assert not controller.exists(KEY)
    assert not controller.delete(KEY)


def test_object_of_more_stripes_than_heads_may_have_is_not_begun(
    memory: MemoryRados, controller: RadosOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rados_objects, "STRIPE_BYTES", 1)
    monkeypatch.setattr(rados_objects, "STRIPES_MAX", 8)
    with pytest.raises(exception.InvalidError, match="9 bytes"):
        controller.put_if_absent(KEY, [bytes(9)])
    assert memory.stored == {}
    assert controller.put_if_absent(KEY, [bytes(8)])


@pytest.mark.parametrize("name", ["packs/\ufffd", "packs/UP", "format", "packs/../x", "packs/a@1"])
def test_names_that_no_key_is_are_not_listed(
    memory: MemoryRados, controller: RadosOrigin, name: str
) -> None:
    controller.put_if_absent(KEY, [b"content"])
    controller.swap_ref("usage/host", None, b"content")
    put(memory, NAMESPACE, name, Head.new(Kind.WHOLE, 0, 1).encode())
    put(memory, "acstor.r.usage", name.replace("packs", "usage"), b"")
    assert list(controller.list("packs/")) == [KEY]
    assert list(controller.list()) == [KEY]
    assert list(controller.list_refs("usage/")) == ["usage/host"]
    assert list(controller.list_refs()) == ["usage/host"]


def test_deletion_that_was_killed_in_a_full_pool_is_finished(memory: MemoryRados) -> None:
    faulty = FaultyRados(memory)
    origin = RadosOrigin(POOL, binding=faulty.binding)
    origin.put_if_absent(KEY, [LARGE])
    objects = origin.objects.controllers  # type: ignore[attr-defined]
    full = mock.patch.object(
        Context, "write_full", side_effect=NoSpace("the pool is full", 28), autospec=True
    )
    killed = mock.patch.object(objects, "_bury", side_effect=KeyboardInterrupt)
    with full, killed, pytest.raises(KeyboardInterrupt):
        origin.delete(KEY)
    assert memory.names(".s.") != []
    assert not origin.delete(KEY)
    assert (memory.names(".s."), memory.names(".o.")) == ([], [])
