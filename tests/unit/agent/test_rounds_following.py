"""Withdrawal rounds on an agent: closing images, and acknowledging it."""

import dataclasses

import pytest

from acstor.agent.reconcilers.usage_publication import LocalUse
from acstor.origin import base
from acstor.origin.faulty import FaultyOrigin
from acstor.repository.images.usage import forget_usage, read_usage, usage_ref
from acstor.repository.images.withdrawal_rounds import (
    ROUNDS_REF,
    Phase,
    Rounds,
    Withdrawal,
    read_rounds,
)
from tests.unit.agent.conftest import Clock, HostUnderTest
from tests.unit.agent.test_agent import IMAGE, OTHER, problems, register
from tests.unit.agent.test_usage_publication import UsingReconciler


def write(origin: base.Origin, number: int, epoch: str = "", **phases: Phase) -> None:
    """Write a round in which IMAGE, or OTHER, is in a phase."""
    ids = {"image": IMAGE, "other": OTHER}
    images = {
        ids[name]: Withdrawal(phase, number, "t" if phase is Phase.REMOVING else None)
        for name, phase in phases.items()
    }
    before = read_rounds(origin)
    origin.swap_ref(ROUNDS_REF, before.token, Rounds(number, images, epoch=epoch).encode())


def acknowledged(origin: base.Origin) -> int:
    found = read_usage(origin, "h1")
    assert found is not None
    return found.round


@pytest.fixture
def reconciler(host: HostUnderTest) -> UsingReconciler:
    reconciler = UsingReconciler()
    reconciler.needed = None
    host.agent._reconcilers = (reconciler,)
    return reconciler


def test_host_without_links_answers_once_it_has_looked(host: HostUnderTest) -> None:
    host.agent._reconcilers = ()
    host.data_plane.start()
    register(host.origin, IMAGE)
    write(host.origin, 3, image=Phase.ASKED)
    host.agent.reconcile()
    assert acknowledged(host.origin) == 3


def test_answer_waits_for_every_reconciler(
    host: HostUnderTest, reconciler: UsingReconciler
) -> None:
    host.data_plane.start()
    register(host.origin, IMAGE)
    write(host.origin, 3, image=Phase.ASKED)
    for use, expected in (
        (None, 0),
        (LocalUse(round=2), 2),
        (LocalUse(round=3, is_complete=False), 2),
        (LocalUse(round=3), 3),
    ):
        reconciler.use = use
        host.agent.reconcile()
        assert acknowledged(host.origin) == expected


def test_data_plane_that_is_away_cannot_say_what_is_open(host: HostUnderTest) -> None:
    host.agent._reconcilers = ()
    host.data_plane.start()
    register(host.origin, IMAGE)
    host.agent.reconcile()
    host.data_plane.stop()
    write(host.origin, 3, image=Phase.ASKED)
    host.agent.reconcile()
    assert acknowledged(host.origin) == 0


def test_closed_image_is_not_attached_anew_and_reconcilers_are_told(
    host: HostUnderTest, reconciler: UsingReconciler
) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.agent.reconcile()
    register(host.origin, OTHER)
    write(host.origin, 5, image=Phase.CLOSING, other=Phase.REMOVING)
    host.agent.reconcile()
    assert set(runtime.images) == {IMAGE}, "what is attached stays until it is decided"
    assert reconciler.sights[-1].closed == {IMAGE, OTHER}
    assert reconciler.sights[-1].round == 5
    write(host.origin, 6, image=Phase.ASKED)
    host.agent.reconcile()
    assert set(runtime.images) == {IMAGE, OTHER}
    assert reconciler.sights[-1].closed == frozenset()


def test_rounds_of_a_newer_release_attach_nothing(host: HostUnderTest) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    host.origin.swap_ref(ROUNDS_REF, None, b'{"version": 2}')
    host.agent.reconcile()
    assert runtime.images == {}
    assert "withdrawals" in problems(host.agent)["images"]


def damage(origin: base.Origin) -> None:
    origin.swap_ref(ROUNDS_REF, read_rounds(origin).token, b"{")


def test_malformed_rounds_keep_closed_what_is_known_to_be(
    host: HostUnderTest, reconciler: UsingReconciler
) -> None:
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    write(host.origin, 5, "epoch", image=Phase.CLOSING)
    host.agent.reconcile()
    register(host.origin, OTHER)
    damage(host.origin)
    reconciler.use = LocalUse(round=5, epoch="epoch")
    for _ in range(2):
        host.agent.reconcile()
        assert set(runtime.images) == {OTHER}
        assert "malformed" in problems(host.agent)["withdrawals"]
        assert reconciler.sights[-1].closed == {IMAGE}
    assert acknowledged(host.origin) == 5, "it did what that round asked for"
    ref = host.origin.get_ref(ROUNDS_REF)
    assert ref is not None
    host.origin.swap_ref(ROUNDS_REF, ref.token, Rounds(6, epoch="next").encode())
    host.agent.reconcile()
    assert set(runtime.images) == {IMAGE, OTHER}
    assert problems(host.agent) == {}


def test_process_that_has_read_only_malformed_rounds_answers_none(
    host: HostUnderTest, reconciler: UsingReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds that the process before has closed are not known: it is no more what it has
    answered."""
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    write(host.origin, 5, "epoch", image=Phase.CLOSING)
    reconciler.use = LocalUse(round=5, epoch="epoch")
    host.agent.reconcile()
    assert acknowledged(host.origin) == 5
    damage(host.origin)
    host.agent._followers = None
    seen: list[int] = []
    attach = runtime.attach_image

    def watched(manifest_path: str, hidden: bool = False) -> dict[str, object]:
        seen.append(acknowledged(host.origin))
        return attach(manifest_path, hidden)

    monkeypatch.setattr(runtime, "attach_image", watched)
    for _ in range(2):
        host.agent.reconcile()
    assert seen == [0], "it is attached, and the registrar waits for this host"
    assert acknowledged(host.origin) == 0
    found = read_usage(host.origin, "h1")
    assert found is not None
    assert IMAGE in found.manifests.values(), "garbage collection takes it for used"


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_record_is_there_before_the_rounds_are_read(
    host: HostUnderTest, clock: Clock, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool
) -> None:
    """The registrar lists records after it changed the rounds: one of both sees the other."""
    runtime = host.data_plane.start()
    register(host.origin, IMAGE)
    write(host.origin, 1, other=Phase.ASKED)
    if is_forgotten:
        host.agent.reconcile()
        forget_usage(host.origin, "h1")
        clock.now += 61
    swap = FaultyOrigin.swap_ref
    runtime.images.clear()

    def close_then_write(
        origin: FaultyOrigin, name: str, expected: str | None, content: bytes | None
    ) -> str | None:
        is_first = name == usage_ref("h1") and expected is None
        token = swap(origin, name, expected, content)
        if is_first:
            write(origin, 2, image=Phase.CLOSING)
        return token

    monkeypatch.setattr(FaultyOrigin, "swap_ref", close_then_write)
    host.agent.reconcile()
    assert runtime.images == {}


def test_stale_round_takes_nothing_back(host: HostUnderTest, reconciler: UsingReconciler) -> None:
    host.data_plane.start()
    register(host.origin, IMAGE)
    write(host.origin, 4, image=Phase.ASKED)
    reconciler.use = LocalUse({IMAGE: ("a",)}, round=4)
    host.agent.reconcile()
    reconciler.use = dataclasses.replace(reconciler.use, round=0)
    host.agent.reconcile()
    assert acknowledged(host.origin) == 4


@pytest.mark.parametrize("is_lost", [False, True])
def test_answer_to_rounds_that_a_backup_undid_is_none_to_those_that_follow(
    host: HostUnderTest, reconciler: UsingReconciler, is_lost: bool
) -> None:
    """The reconciler did round 50, and has not looked since the ref went back to 40."""
    host.data_plane.start()
    register(host.origin, IMAGE)
    reconciler.use = LocalUse(round=50, epoch="former")
    write(host.origin, 40, "former", image=Phase.ASKED)
    host.agent.reconcile()
    assert acknowledged(host.origin) == 40
    if is_lost:
        host.origin.swap_ref(ROUNDS_REF, read_rounds(host.origin).token, None)
        host.agent.reconcile()
    write(host.origin, 41, "restored", image=Phase.CLOSING)
    host.agent.reconcile()
    found = read_usage(host.origin, "h1")
    assert found is not None
    assert not found.has_answered("restored", 41)
    reconciler.use = LocalUse(round=41, epoch="restored")
    host.agent.reconcile()
    found = read_usage(host.origin, "h1")
    assert found is not None
    assert found.has_answered("restored", 41)
