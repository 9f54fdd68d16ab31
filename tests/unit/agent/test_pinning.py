"""Pinning heads, tails and whole images, against a data plane that bounds its pins."""

import pathlib
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.agent.reconcilers.pinning import (
    PINNED_PERCENT_MAX,
    SLICE_BYTES,
    WHOLE_RETRY_INTERVAL,
    Pinner,
)
from acstor.conf.types import KIB, MIB
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.conftest import Clock

ROOT = pathlib.Path(__file__).parents[3]
HEAD, TAIL = MIB, 64 * KIB
SMALL, LARGE, OTHER = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
SIZE = 3 * SLICE_BYTES


class BoundedDataPlane:
    """Pins like the data plane: a new pin of an image replaces its former one, up to a bound."""

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.pins: dict[str, int] = {}
        self.calls: list[tuple[str, int]] = []
        self.is_away = False
        self.unreadable: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        if method == "status":
            pinned = sum(self.pins.values())
            return {"store": {"capacity_bytes": 4 * self.bound_bytes, "pinned_bytes": pinned}}
        assert method == "pin"
        self.gate.wait(30)
        if self.is_away:
            raise exception.UnavailableError("away")
        image, wanted = params["image"], params["head_bytes"] + params["tail_bytes"]
        self.calls.append((image, params["head_bytes"]))
        others = sum(size for key, size in self.pins.items() if key != image)
        room = 0 if image in self.unreadable else max(0, self.bound_bytes - others)
        self.pins[image] = min(wanted, room)
        return {"pinned_bytes": self.pins[image], "missing_bytes": wanted - self.pins[image]}


class Running:
    """A pinner on a data plane."""

    def __init__(self, bound_bytes: int) -> None:
        self.clock = Clock()
        self.data_plane = BoundedDataPlane(bound_bytes)
        self.all_pinned = 0
        self.pinner = Pinner(
            self.data_plane,  # type: ignore[arg-type]
            head_bytes=HEAD,
            tail_bytes=TAIL,
            timeout=10,
            on_all_pinned=self._count,
            clock=self.clock,
        )
        self.pinner.start()

    def _count(self) -> None:
        self.all_pinned += 1

    def set_desired(
        self,
        *images: str,
        whole: tuple[str, ...] = (),
        process: object = 1,
        order: tuple[str, ...] = (),
    ) -> None:
        manifests = dict.fromkeys(images, "manifest")
        self.pinner.set_desired(manifests, process, dict.fromkeys(whole, SIZE), order)
        wait_for("the pinner is idle", self.pinner.is_idle)


Run = Callable[[int], Running]


@pytest.fixture
def run() -> Iterator[Run]:
    started: list[Running] = []

    def make(bound_bytes: int) -> Running:
        started.append(Running(bound_bytes))
        return started[-1]

    yield make
    for running in started:
        running.pinner.stop(10)


def test_whole_image_is_pinned_in_slices_after_heads_and_tails(run: Run) -> None:
    running = run(1 << 40)
    running.set_desired(SMALL, LARGE, whole=(SMALL,))
    assert running.pinner.pinned(1) == {SMALL, LARGE}
    assert running.data_plane.calls[:2] == [(SMALL, HEAD), (LARGE, HEAD)]
    heads = [head for _, head in running.data_plane.calls[2:]]
    assert heads == sorted(heads)
    assert heads[-1] == SIZE
    assert len(heads) == 3
    assert running.pinner.problems() == {}
    running.set_desired(SMALL, LARGE, whole=(SMALL,))
    assert len(running.data_plane.calls) == 5, "what is pinned is not pinned again"


def test_new_image_is_pinned_between_slices(run: Run) -> None:
    running = run(1 << 40)
    running.set_desired(LARGE)
    running.data_plane.gate.clear()
    running.pinner.set_desired({LARGE: "m"}, 1, {LARGE: SIZE})
    running.pinner.set_desired({LARGE: "m", SMALL: "m"}, 1, {LARGE: SIZE})
    running.data_plane.gate.set()
    wait_for("idle", running.pinner.is_idle)
    calls = running.data_plane.calls
    assert calls.index((SMALL, HEAD)) < calls.index((LARGE, SIZE))


def test_whole_image_that_does_not_fit_is_a_problem_and_tried_later(run: Run) -> None:
    running = run(2 * SLICE_BYTES)
    running.set_desired(LARGE, whole=(LARGE,))
    assert "a quarter of [store] capacity" in running.pinner.problems()[LARGE]
    assert running.pinner.pinned(1) == {LARGE}
    calls = len(running.data_plane.calls)
    running.set_desired(LARGE, whole=(LARGE,))
    assert len(running.data_plane.calls) == calls, "not at each look"
    running.data_plane.bound_bytes = 1 << 40
    running.clock.now += WHOLE_RETRY_INTERVAL
    running.set_desired(LARGE, whole=(LARGE,))
    assert running.pinner.problems() == {}
    assert running.data_plane.pins[LARGE] == SIZE + TAIL


def test_heads_of_other_images_come_before_whole_images(run: Run) -> None:
    running = run(SIZE + TAIL)
    running.set_desired(LARGE, whole=(LARGE,))
    assert running.pinner.problems() == {}
    running.set_desired(LARGE, SMALL, whole=(LARGE,))
    running.set_desired(LARGE, SMALL, whole=(LARGE,))
    assert running.pinner.pinned(1) == {LARGE, SMALL}
    assert "heads and tails" in running.pinner.problems()[LARGE]
    assert running.data_plane.pins == {LARGE: HEAD + TAIL, SMALL: HEAD + TAIL}


def test_image_that_is_not_to_be_pinned_any_more_gives_its_place_back(run: Run) -> None:
    running = run(1 << 40)
    running.set_desired(LARGE, whole=(LARGE,))
    running.set_desired(LARGE)
    assert running.data_plane.pins == {LARGE: HEAD + TAIL}
    assert running.pinner.pinned(1) == {LARGE}


def test_new_process_has_no_pins(run: Run) -> None:
    running = run(1 << 40)
    running.set_desired(LARGE, whole=(LARGE,))
    assert running.pinner.pinned(2) == frozenset()
    running.set_desired(LARGE, whole=(LARGE,), process=2)
    assert running.pinner.pinned(2) == {LARGE}
    assert running.data_plane.calls.count((LARGE, SIZE)) == 2


def test_data_plane_that_is_away_is_tried_at_the_next_pass(run: Run) -> None:
    running = run(1 << 40)
    running.data_plane.is_away = True
    running.set_desired(LARGE, whole=(LARGE,))
    assert running.pinner.pinned(1) == frozenset()
    assert running.all_pinned == 0
    running.data_plane.is_away = False
    running.set_desired(LARGE, whole=(LARGE,))
    assert running.pinner.pinned(1) == {LARGE}
    wait_for("told", lambda: running.all_pinned == 1)


def test_image_that_is_detached_is_forgotten(run: Run) -> None:
    running = run(2 * SLICE_BYTES)
    running.set_desired(LARGE, OTHER, whole=(LARGE,))
    running.set_desired(OTHER)
    assert running.pinner.problems() == {}
    assert running.pinner.pinned(1) == {OTHER}


def test_images_are_pinned_in_the_order_that_is_desired(run: Run) -> None:
    running = run(2 * (HEAD + TAIL))
    running.set_desired(SMALL, LARGE, OTHER, order=(OTHER, LARGE))
    assert [image for image, _ in running.data_plane.calls[:3]] == [OTHER, LARGE, SMALL]
    assert running.pinner.pinned(1) == {OTHER, LARGE}, "the last in the order finds no place"


def test_last_in_the_order_is_the_first_whole_image_to_give_its_place_back(run: Run) -> None:
    running = run(2 * (SIZE + TAIL))
    order = (LARGE, OTHER, SMALL)
    running.set_desired(SMALL, LARGE, whole=(SMALL, LARGE), order=order)
    assert [image for image, head in running.data_plane.calls if head == SIZE] == [LARGE, SMALL]
    running.set_desired(SMALL, LARGE, OTHER, whole=(SMALL, LARGE), order=order)
    assert set(running.pinner.problems()) == {SMALL}
    assert running.data_plane.pins[LARGE] == SIZE + TAIL


ENDS = HEAD + TAIL


def test_image_that_comes_first_takes_the_place_of_the_last(run: Run) -> None:
    running = run(2 * ENDS)
    images = (SMALL, LARGE, OTHER)
    running.set_desired(*images, order=(SMALL, LARGE, OTHER))
    assert running.pinner.pinned(1) == {SMALL, LARGE}
    for _ in range(2):
        running.set_desired(*images, order=(OTHER, SMALL, LARGE))
    assert running.pinner.pinned(1) == {SMALL, OTHER}
    assert {key for key, size in running.data_plane.pins.items() if size} == {SMALL, OTHER}


def test_what_has_no_room_is_not_tried_at_each_look(run: Run) -> None:
    running = run(2 * ENDS)
    images, order = (SMALL, LARGE, OTHER), (SMALL, LARGE, OTHER)
    running.set_desired(*images, order=order)
    calls = len(running.data_plane.calls)
    for _ in range(3):
        running.set_desired(*images, order=order)
    assert len(running.data_plane.calls) == calls
    running.data_plane.bound_bytes = 3 * ENDS
    running.clock.now += WHOLE_RETRY_INTERVAL
    running.set_desired(*images, order=order)
    assert running.pinner.pinned(1) == set(images)


def test_what_gave_its_place_comes_back_when_there_is_room(run: Run) -> None:
    running = run(ENDS)
    running.set_desired(SMALL, LARGE, order=(SMALL, LARGE))
    for _ in range(2):
        running.set_desired(SMALL, LARGE, order=(LARGE, SMALL))
    assert running.pinner.pinned(1) == {LARGE}
    running.clock.now += WHOLE_RETRY_INTERVAL
    running.set_desired(SMALL, order=(SMALL,))
    running.data_plane.pins.pop(LARGE, None)
    running.clock.now += WHOLE_RETRY_INTERVAL
    running.set_desired(SMALL, order=(SMALL,))
    assert running.pinner.pinned(1) == {SMALL}


def test_heads_and_tails_give_their_places_after_whole_images_only(run: Run) -> None:
    running = run(SIZE + TAIL + ENDS)
    running.set_desired(SMALL, LARGE, whole=(LARGE,), order=(SMALL, LARGE))
    assert running.pinner.problems() == {}
    others = [str(uuid.UUID(int=number)) for number in range(10, 13)]
    for _ in range(2):
        running.set_desired(*others, SMALL, LARGE, whole=(LARGE,), order=(*others, LARGE, SMALL))
    assert running.pinner.pinned(1) == {*others, SMALL, LARGE}
    assert running.data_plane.pins[LARGE] == ENDS


def test_image_that_cannot_be_read_takes_nobodys_place(run: Run) -> None:
    running = run(10 * ENDS)
    running.data_plane.unreadable = {OTHER}
    for _ in range(3):
        running.set_desired(SMALL, LARGE, OTHER, order=(OTHER, SMALL, LARGE))
    assert running.pinner.pinned(1) == {SMALL, LARGE}
    running.data_plane.unreadable.clear()
    running.set_desired(SMALL, LARGE, OTHER, order=(OTHER, SMALL, LARGE))
    assert running.pinner.pinned(1) == {SMALL, LARGE, OTHER}, "tried at each look"


def test_share_of_the_store_is_that_of_the_store_itself() -> None:
    limits = ROOT / "crates" / "store" / "src" / "limits.rs"
    (percent,) = re.findall(r"PINNED_PERCENT_MAX: u32 = (\d+);", limits.read_text())
    assert int(percent) == PINNED_PERCENT_MAX
