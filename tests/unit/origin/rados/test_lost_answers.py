"""Operations in RADOS that time out, having taken effect or not, under calls that are repeated."""

from unittest import mock

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados import objects as rados_objects
from acstor.origin.rados.origin import RadosOrigin
from acstor.origin.retrying import RetryingOrigin
from testbed.doubles.faulty_rados import FaultyRados, Loss
from testbed.doubles.memory_rados import MemoryRados
from testbed.doubles.virtual_time import VirtualTime

KEY = "packs/aa/one"
STRIPES = 3
LARGE = bytes(range(256)) * (9 << 12)
SMALL = b"a few bytes"
PUT_LARGE, PUT_SMALL = STRIPES + 4, 1
"""Changing operations of a put: note, head, stripes, head, end of the note; or the object alone."""
DELETE_LARGE, DELETE_SMALL = STRIPES + 4, 1


class Rig:
    """Origin over memory, whose operations can be lost."""

    def __init__(self) -> None:
        self.memory = MemoryRados()
        self.faulty = FaultyRados(self.memory)
        time = VirtualTime()
        self.direct = RadosOrigin("pool", binding=self.faulty.binding)
        self.origin = RetryingOrigin(self.direct, 30.0, clock=time, sleep=time.sleep)

    def sweep(self) -> None:
        """Sweep as if everything were old."""
        with mock.patch.object(rados_objects, "LEFTOVER_AGE_SECONDS", -10.0):
            self.origin.sweep()

    def holds(self, content: bytes) -> bool:
        """Compare the object; megabytes are not for a report of what differs."""
        return self.origin.get(KEY, len(content)) == content

    @property
    def stripes(self) -> list[str]:
        """Names of all stripes, of whichever object."""
        return self.memory.names(".s.")

    @property
    def notes(self) -> list[str]:
        """Names of what is begun."""
        return [name for name in self.memory.names(".notes") if name != "probe"]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def cases(large: int, small: int) -> list[object]:
    """Return contents, each with every operation on them that can be lost."""
    return [
        pytest.param(content, call + 1, id=f"{name}-{call + 1}")
        for content, name, calls in ((LARGE, "large", large), (SMALL, "small", small))
        for call in range(calls)
    ]


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize(("content", "call"), cases(PUT_LARGE, PUT_SMALL))
def test_put_is_whole_and_leaves_no_stripe_too_many(
    rig: Rig, content: bytes, call: int, loss: Loss
) -> None:
    rig.faulty.lose(loss, call)
    rig.origin.put_if_absent(KEY, [content[:5], content[5:]])
    assert rig.faulty.has_lost
    assert rig.holds(content)
    rig.sweep()
    assert rig.holds(content)
    assert len(rig.stripes) == (STRIPES if content is LARGE else 0)
    assert rig.notes == []


def test_put_has_as_many_operations_as_are_lost_above(rig: Rig) -> None:
    rig.origin.put_if_absent(KEY, [LARGE])
    assert rig.faulty.calls == PUT_LARGE
    rig.faulty.calls = 0
    rig.origin.delete(KEY)
    assert rig.faulty.calls == DELETE_LARGE


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize(("content", "call"), cases(DELETE_LARGE, DELETE_SMALL))
def test_deletion_leaves_nothing(rig: Rig, content: bytes, call: int, loss: Loss) -> None:
    rig.origin.put_if_absent(KEY, [content])
    rig.faulty.lose(loss, call)
    rig.origin.delete(KEY)
    assert rig.faulty.has_lost
    assert not rig.origin.exists(KEY)
    rig.sweep()
    assert (rig.stripes, rig.notes, rig.memory.names(".o.")) == ([], [], [])


def test_put_that_finds_other_content_after_a_lost_answer_says_so(rig: Rig) -> None:
    rig.faulty.lose(Loss.REQUEST, 1)
    real = rig.direct.objects.put_if_absent
    other = SMALL[::-1]

    def overtaken(key: str, buffers: list[base.Buffer]) -> bool:
        try:
            return real(key, buffers)
        except exception.UnavailableError:
            real(key, [other])
            raise

    with (
        mock.patch.object(rig.direct.objects, "put_if_absent", overtaken),
        pytest.raises(exception.CorruptError, match="differs from what was stored, from byte 0"),
    ):
        rig.origin.put_if_absent(KEY, [SMALL])
    assert rig.holds(other)


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("before", [None, b"before"])
@pytest.mark.parametrize("content", [b"after", None])
def test_swap_is_done_once(
    rig: Rig, before: bytes | None, content: bytes | None, loss: Loss
) -> None:
    expected = None if before is None else rig.origin.swap_ref("ring", None, before)
    rig.faulty.lose(loss, 1)
    token = rig.origin.swap_ref("ring", expected, content)
    assert rig.faulty.has_lost or (before is None and content is None)
    present = rig.origin.get_ref("ring")
    assert present == (None if content is None else base.Ref(str(token), content))


@pytest.mark.parametrize("loss", Loss)
def test_swap_that_somebody_else_overtook_conflicts(rig: Rig, loss: Loss) -> None:
    rig.faulty.lose(loss, 1)
    real = rig.direct.refs.swap_ref

    def overtaken(name: str, expected: str | None, content: bytes | None) -> str | None:
        try:
            return real(name, expected, content)
        except exception.UnavailableError:
            present = rig.direct.get_ref(name)
            real(name, present.token if present else None, b"theirs")
            raise

    with (
        mock.patch.object(rig.direct.refs, "swap_ref", overtaken),
        pytest.raises(base.OvertakenError),
    ):
        rig.origin.swap_ref("ring", None, b"ours")
    present = rig.origin.get_ref("ring")
    assert present is not None
    assert present.content == b"theirs"
