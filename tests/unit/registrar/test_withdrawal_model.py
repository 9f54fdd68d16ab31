"""Every order of what two hosts, Nova and registrars do about one image that is withdrawn.

The model has the protocol of RFD 14, with the registrar's own functions for its decisions and no
grace at all. All states that can be reached are visited. The expectation follows from what lies on
the hosts' disks: when the image goes, no host has an overlay of it, and none comes later.
Deliberately broken variants are found out by the same search.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from acstor.registrar.withdrawal_step import Step, answers, next_step
from acstor.repository.images.usage import Usage
from acstor.repository.images.withdrawal_rounds import Phase, Rounds, Withdrawal

IMAGE = "00000000-0000-4000-8000-000000000001"
STATES_MAX = 2_000_000
ASKED, CLOSING, REMOVING = (phase.value for phase in Phase)


class Host(NamedTuple):
    """One host: its disk, its record, and how far its agent's look is."""

    overlay: bool = False
    link: bool = True
    record: tuple[int, bool] = (0, False)
    """Round, and whether the image is in use."""
    step: int = 0
    """0: begins; 1: has read the rounds; 2: has scanned; 3: has seen to the link."""
    known: tuple[int, bool] = (0, False)
    """Round, and whether the image is closed or gone."""
    scanned: bool = False
    is_held: bool = False
    """True if a link had to stay although no overlay was seen: reported as a use."""


class Registrar(NamedTuple):
    """One registrar: what it has read before its next decision."""

    step: int = 0
    """0: begins; 1, 2, 3: has read the rounds, and one or both hosts' records; 4: decided."""
    seen: tuple[int, str | None, int] = (0, None, 0)
    records: tuple[tuple[int, bool], ...] = ()


class State(NamedTuple):
    """Everything at one moment."""

    hosts: tuple[Host, Host] = (Host(), Host())
    registrar: Registrar = Registrar()
    rounds: tuple[int, str | None, int] = (0, None, 0)
    """Newest round; phase of the image; round in which that began."""
    is_published: bool = True
    spawns: int = 1
    moves: int = 1
    cancels: int = 0
    moving: tuple[int, int] | None = None
    is_alone: bool = False
    """True if the second host has nothing and does nothing."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """The protocol, or what is broken of it."""

    is_closed_first: bool = True
    is_link_removed: bool = True
    is_held_link_a_use: bool = True
    is_swap_compared: bool = True
    are_all_waited_for: bool = True


class ViolationError(AssertionError):
    """An overlay has lost its base."""


def successors(state: State, variant: Variant) -> Iterator[State]:
    """Yield what may come next."""
    for number in (0,) if state.is_alone else (0, 1):
        yield _host_step(state, number, variant)
        yield from _nova_steps(state, number)
    yield from _registrar_steps(state, variant)
    newest, phase, _ = state.rounds
    if state.cancels and state.is_published and phase in (ASKED, CLOSING):
        # Another registrar leads now, and Glance has the image again.
        cancelled = (newest + 1, None, newest + 1)
        yield state._replace(rounds=cancelled, cancels=state.cancels - 1)


def _with_host(state: State, number: int, **changes: object) -> State:
    hosts = list(state.hosts)
    hosts[number] = hosts[number]._replace(**changes)  # type: ignore[arg-type]
    return state._replace(hosts=(hosts[0], hosts[1]))


def _host_step(state: State, number: int, variant: Variant) -> State:
    host = state.hosts[number]
    newest, phase, _ = state.rounds
    is_closed = phase in (CLOSING, REMOVING) or not state.is_published
    match host.step:
        case 0:
            return _with_host(state, number, step=1, known=(newest, is_closed))
        case 1:
            return _with_host(state, number, step=2, scanned=host.overlay)
        case 2:
            # Under Nova's lock: nobody makes an overlay meanwhile.
            link = host.link or not host.known[1]
            if host.known[1] and not host.overlay and variant.is_link_removed:
                link = False
            is_held = host.known[1] and link and not host.scanned
            held = is_held and variant.is_held_link_a_use and variant.is_link_removed
            return _with_host(state, number, step=3, link=link, is_held=held)
    record = (max(host.record[0], host.known[0]), host.scanned or host.is_held)
    return _with_host(
        state, number, step=0, record=record, known=(0, False), scanned=False, is_held=False
    )


def _nova_steps(state: State, number: int) -> Iterator[State]:
    host, other = state.hosts[number], 1 - number
    if state.spawns and host.link and not host.overlay:
        spawned = _with_host(state, number, overlay=True)
        yield spawned._replace(spawns=state.spawns - 1)
    if host.overlay and state.moving is None:
        yield _with_host(state, number, overlay=False)  # deleted
        if state.moves and not state.hosts[other].overlay and state.hosts[other].link:
            # Without a link there the move fails, and the disk stays where it is.
            copied = _with_host(state, other, overlay=True)
            yield copied._replace(moves=state.moves - 1, moving=(number, other))
    if state.moving == (number, other):
        moved = _with_host(state, number, overlay=False)
        yield moved._replace(moving=None)


def _registrar_steps(state: State, variant: Variant) -> Iterator[State]:
    registrar = state.registrar
    if not state.is_published and registrar.step != 4:
        return
    match registrar.step:
        case 0:
            yield state._replace(registrar=Registrar(1, state.rounds))
        case 1 | 2:
            record = state.hosts[registrar.step - 1].record
            records = (*registrar.records, record)
            following = Registrar(registrar.step + 1, registrar.seen, records)
            yield state._replace(registrar=following)
        case 3:
            yield _decided(state, variant)
        case _:
            if any(host.overlay for host in state.hosts):
                raise ViolationError(state)
            yield state._replace(is_published=False)._replace(registrar=Registrar())


def _decided(state: State, variant: Variant) -> State:
    registrar = state.registrar
    newest, phase, began = registrar.seen
    step = _decide(newest, phase, began, registrar.records, variant)
    after = {
        Step.ASK: ASKED,
        Step.CLOSE: CLOSING,
        Step.KEEP: ASKED if phase == CLOSING else None,
        Step.REMOVE: REMOVING,
    }.get(step)
    if step is Step.FINISH:
        return state._replace(registrar=Registrar(4))
    is_current = state.rounds == registrar.seen or not variant.is_swap_compared
    if after is None or not is_current:
        return state._replace(registrar=Registrar())
    following = max(newest, state.rounds[0]) + 1
    written = state._replace(rounds=(following, after, following))
    return written._replace(registrar=Registrar(4 if step is Step.REMOVE else 0))


@functools.cache
def _decide(
    newest: int,
    phase: str | None,
    began: int,
    records: tuple[tuple[int, bool], ...],
    variant: Variant,
) -> Step:
    rounds = Rounds(newest, {IMAGE: Withdrawal(Phase(phase), began)} if phase else {})
    usages = {
        f"h{number}": Usage({IMAGE: ()} if used else {}, round=answered)
        for number, (answered, used) in enumerate(records)
    }
    said = answers(rounds, usages, IMAGE)
    if not variant.are_all_waited_for:
        said = dataclasses.replace(said, silent=())
    step = next_step(Phase(phase) if phase else None, said)
    return Step.REMOVE if step is Step.CLOSE and not variant.is_closed_first else step


def explore(start: State, variant: Variant, see: Callable[[State], None]) -> int:
    """Visit every state that can be reached; return their number."""
    known = {start}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        see(state)
        for following in successors(state, variant):
            if following not in known:
                known.add(following)
                waiting.append(following)
        assert len(known) <= STATES_MAX
    return len(known)


def check(state: State) -> None:
    """Raise when an instance is without its base."""
    if not state.is_published and any(host.overlay for host in state.hosts):
        raise ViolationError(state)


STARTS = {
    "a spawn and a move": State(),
    "a registrar that was overtaken": State(
        hosts=(Host(), Host(link=False, record=(1 << 30, False))),
        moves=0,
        cancels=1,
        is_alone=True,
    ),
}


@pytest.mark.parametrize("start", STARTS)
def test_no_order_takes_an_image_from_an_instance(start: str) -> None:
    ended = 0

    def see(state: State) -> None:
        nonlocal ended
        check(state)
        ended += not state.is_published

    assert explore(STARTS[start], Variant(), see) > 1000
    assert ended, "an image that nobody uses goes in the end"


BROKEN_VARIANTS = {
    "removed without closing": Variant(is_closed_first=False),
    "links stay while it is closed": Variant(is_link_removed=False),
    "answered before the link is gone": Variant(is_held_link_a_use=False),
    "written over another registrar's rounds": Variant(is_swap_compared=False),
    "silent hosts count as unused": Variant(are_all_waited_for=False),
}


@pytest.mark.parametrize("name", BROKEN_VARIANTS)
def test_broken_variants_are_found_out(name: str) -> None:
    for start in reversed(STARTS.values()):
        try:
            explore(start, BROKEN_VARIANTS[name], check)
        except ViolationError:
            return
    pytest.fail("no order breaks the promise")
