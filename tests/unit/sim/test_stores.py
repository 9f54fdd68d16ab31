"""Stores with bounds: S3-FIFO beside a plain implementation of it, copies that leave first."""

from collections import deque
from typing import Any

import numpy as np
import pytest

from sim import kernel, stores
from sim.run import Run, prepare, run_case
from sim.world import NEVER
from tests.unit.sim.small_runs import case

ROOM = 40


def full_run(**changes: object) -> Run:
    """Return a run of four hosts without machines, and with room for few chunks."""
    fields: dict[str, Any] = {"machines__per_host": 0, "machines__capacity_chunks": ROOM, **changes}
    return prepare(case("acstor", **fields))


class PlainS3Fifo:
    """As the paper's algorithm 1 with the data plane's differences, with lists."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.small: deque[int] = deque()
        self.main: deque[int] = deque()
        self.gone: list[int] = []
        self.uses: dict[int, int] = {}

    def use(self, chunk: int) -> None:
        self.uses[chunk] = min(3, self.uses[chunk] + 1)

    def put(self, chunk: int) -> None:
        if len(self.uses) == self.room:
            self.evict()
        self.uses[chunk] = 0
        is_back = chunk in self.gone[-(self.room - self.room // 10) :]
        self.gone = [-1 if one == chunk else one for one in self.gone]
        (self.main if is_back else self.small).append(chunk)

    def evict(self) -> None:
        if len(self.small) >= max(1, self.room // 10) and self.evict_small():
            return
        while self.main:
            chunk = self.main.popleft()
            if self.uses[chunk] == 0:
                del self.uses[chunk]
                return
            self.uses[chunk] -= 1
            self.main.append(chunk)
        self.evict_small()

    def evict_small(self) -> bool:
        while self.small:
            chunk = self.small.popleft()
            if self.uses[chunk] < 2:
                del self.uses[chunk]
                self.gone.append(chunk)
                return True
            self.uses[chunk] = 0
            self.main.append(chunk)
        return False


@pytest.mark.parametrize("seed", range(4))
def test_store_is_s3_fifo(seed: int) -> None:
    run, plain = full_run(), PlainS3Fifo(ROOM)
    random = np.random.default_rng(seed)
    last = -1
    for chunk in (int(number) for number in random.zipf(1.3, 4000) % (3 * ROOM)):
        if chunk == last:
            continue  # one use, whoever counts
        last = chunk
        assert bool(run.world.has[0, chunk]) == (chunk in plain.uses)
        if chunk in plain.uses:
            run.world.touched[0] = -1
            stores.use(run.handle, run.rules, 0, chunk)
            plain.use(chunk)
        else:
            stores.put(run.handle, run.rules, 0, chunk)
            plain.put(chunk)
    assert set(np.flatnonzero(run.world.has[0])) == set(plain.uses)
    assert run.world.room[0] == 0
    assert run.world.holders.sum() == ROOM


def test_ghosts_are_forgotten_in_time() -> None:
    run = full_run()
    for chunk in range(ROOM + 1):
        stores.put(run.handle, run.rules, 0, chunk)
    assert not run.world.has[0, 0]
    stores.put(run.handle, run.rules, 0, 0)
    assert run.world.queue[0, 0] == stores.MAIN, "it has come back soon"
    for chunk in range(ROOM + 1, 2 * ROOM + 1):
        stores.put(run.handle, run.rules, 0, chunk)
    stores.put(run.handle, run.rules, 0, 1)
    assert run.world.queue[0, 1] == stores.SMALL


def test_reads_of_one_chunk_in_a_row_are_one_use() -> None:
    run = full_run()
    stores.put(run.handle, run.rules, 0, 7)
    for _ in range(5):
        stores.use(run.handle, run.rules, 0, 7)
    assert run.world.uses[0, 7] == 1


def keepers(run: Run, chunk: int) -> list[int]:
    world = run.world
    return [host for host in range(4) if world.has[host, chunk] and world.queue[host, chunk] != 3]


@pytest.mark.parametrize("copies_max", [1, 2])
def test_copies_beyond_the_threshold_leave_first_and_never_the_last(copies_max: int) -> None:
    run = full_run(readpath__copies_max=copies_max)
    for host in range(4):
        for chunk in range(ROOM):
            stores.put(run.handle, run.rules, host, chunk)
    kernel.advance(run.handle, run.rules, stores.WALK_INTERVAL)
    owners = run.world.line[run.world.host_slot[0], 0, run.world.placement[:ROOM], 0]
    for chunk in range(ROOM):
        assert int(owners[chunk]) in keepers(run, chunk)
        assert len(keepers(run, chunk)) == copies_max
    spare = int(np.flatnonzero(run.world.queue[0] == stores.DEMOTED)[0])
    stores.put(run.handle, run.rules, 0, ROOM)
    assert run.world.has[0].sum() == ROOM
    assert run.world.queued[0, stores.DEMOTED] == (run.world.queue[0] == stores.DEMOTED).sum()
    stores.use(run.handle, run.rules, 0, spare)
    gone = [chunk for chunk in range(ROOM) if not run.world.has[0, chunk]]
    assert len(gone) == 1
    assert len(keepers(run, gone[0])) == copies_max, "not one that the pool needs"


def test_few_chunks_and_chunks_in_use_are_let_alone() -> None:
    run = full_run(readpath__copies_max=1)
    for host in range(4):
        for chunk in range(ROOM // 2):
            stores.put(run.handle, run.rules, host, chunk)
    kernel.advance(run.handle, run.rules, stores.WALK_INTERVAL)
    assert run.world.queued[:, stores.DEMOTED].sum() == 0
    for host in range(4):
        for chunk in range(ROOM // 2, ROOM):
            stores.put(run.handle, run.rules, host, chunk)
        for chunk in range(ROOM):
            stores.use(run.handle, run.rules, host, chunk)
    kernel.advance(run.handle, run.rules, 2 * stores.WALK_INTERVAL)
    assert run.world.queued[:, stores.DEMOTED].sum() == 0


def test_copies_of_the_hosts_that_read_do_not_push_out_what_the_pool_has() -> None:
    """With the oldest leaving they do: the pool's chunks came before all copies of them."""
    again = {}
    for eviction in ("s3fifo", "fifo"):
        result = run_case(
            case(
                "acstor", network__fanout=[8], machines__per_host=5, machines__image_mib=16,
                machines__workload="web-server", machines__capacity_chunks=48,
                machines__warm=True, timing__end=20.0, readpath__eviction=eviction,
            )
        )  # fmt: skip
        again[eviction] = float(result["origin_again_mb"]) + float(result["origin_mb"])
    assert again["s3fifo"] < 0.4 * again["fifo"]


def test_simulated_time_without_bounds_has_no_walks() -> None:
    run = prepare(case("acstor", machines__per_host=0))
    kernel.advance(run.handle, run.rules, min(NEVER, 2 * stores.WALK_INTERVAL))
    assert not run.world.is_bounded
