"""Batches of reads, and a doorbell, on a real Ceph whose OSDs stop in the midst of them."""

import concurrent.futures
import contextlib
import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from acstor import exception, native
from acstor.origin import base
from acstor.origin.rados import doorbell as rados_doorbell
from acstor.origin.rados import native_reader
from acstor.origin.rados.origin import RadosOrigin
from testbed import processes
from testbed.fixtures.ceph import CephNode
from testbed.fixtures.conditions import wait_for
from tests.ceph import ERASURE_POOL, POOL, REF_POOL
from tests.compliance.origins import RADOS_SECONDS, Pools, native_location, rados_origin
from tests.probe import rados_calls

SIZES = [9 << 20, 5 << 20, 3 << 20, 70_000, 11]
CONTENTS = {
    f"packs/aa/{number}": random.Random(number).randbytes(size) for number, size in enumerate(SIZES)
}
RANGES = 200
RUN_MAX = 256 << 10
THREADS = 4


def ranges_of(seed: int) -> list[base.ReadRange]:
    """Return ranges of all objects, in an order that has nothing to do with their places."""
    drawn = random.Random(seed)
    found = []
    for _ in range(RANGES):
        key, content = drawn.choice(sorted(CONTENTS.items()))
        size = drawn.randint(1, min(RUN_MAX, len(content)))
        offset = drawn.randint(0, len(content) - size)
        found.append(base.ReadRange(key, offset, memoryview(bytearray(b"?" * size))))
    return found


def is_filled(one: base.ReadRange) -> bool:
    return CONTENTS[one.key][one.offset :][: len(one.buffer)] == bytes(one.buffer)


def fill(origin: RadosOrigin) -> RadosOrigin:
    """Store what is read."""
    for key, content in CONTENTS.items():
        origin.put_if_absent(key, [content])
    return origin


@contextlib.contextmanager
def stopped(ceph: CephNode) -> Iterator[None]:
    """Have no OSD answer within the block."""
    for osd in ceph.osds:
        osd.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for osd in ceph.osds:
            osd.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "pools",
    [
        (POOL, POOL, REF_POOL),
        pytest.param((ERASURE_POOL, ERASURE_POOL, REF_POOL), marks=pytest.mark.extended),
    ],
    ids=["replicated", "erasure-coded"],
)
def test_ranges_of_many_objects_have_their_content(
    ceph: CephNode, pools: tuple[str, str, str]
) -> None:
    pool, stripe_pool, ref_pool = pools
    origin = fill(rados_origin(ceph, stripe_pool, pool=pool, ref_pool=ref_pool))
    for seed in range(3):  # heads are known from the second time on
        ranges = ranges_of(seed)
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            half = len(ranges) // 2
            found = list(threads.map(origin.read_many, (ranges[:half], ranges[half:])))
        assert not any(problem for one in found for problem in one)
        assert all(map(is_filled, ranges))
    origin.close()


def outcomes(
    origin: RadosOrigin, ranges: Sequence[base.ReadRange], deadline: float | None
) -> set[type]:
    """Return what keeps ranges from being read."""
    return {type(one) for one in origin.read_many(ranges, deadline)}


def test_stopped_osds_end_a_batch_within_its_deadline(ceph: CephNode) -> None:
    patient = fill(rados_origin(ceph, POOL, namespace="batches"))
    patient.close()
    origin = rados_origin(ceph, POOL, rados_calls.DEADLINE_S, namespace="batches")

    def is_up() -> bool:
        return not any(origin.read_many(ranges_of(0)))

    wait_for("the origin answers", is_up, rados_calls.HANGS_AFTER_S)
    # One whose own deadline ends nothing here.
    slow = rados_origin(ceph, POOL, namespace="batches")
    wait_for("the origin answers", lambda: not any(slow.read_many(ranges_of(0))))
    with stopped(ceph):  # so that nothing ends a batch but its deadline
        ranges = ranges_of(1)
        assert outcomes(slow, ranges, 0.3) == {exception.DeadlineError}
        assert outcomes(origin, ranges_of(2), None) == {exception.UnavailableError}
        assert all(bytes(one.buffer) == b"?" * len(one.buffer) for one in ranges)
    wait_for("the OSDs answer", is_up, rados_calls.HANGS_AFTER_S)
    # What came after the deadline went to nobody's buffer.
    assert all(bytes(one.buffer) == b"?" * len(one.buffer) for one in ranges)
    origin.close()
    slow.close()


def test_osds_that_stop_in_the_midst_of_a_batch_end_it(ceph: CephNode) -> None:
    patient = fill(rados_origin(ceph, POOL, namespace="midst"))
    patient.close()
    origin = rados_origin(ceph, POOL, rados_calls.DEADLINE_S, namespace="midst")
    is_stopped, is_begun = threading.Event(), threading.Event()

    def read_until_it_fails() -> None:
        for seed in range(100_000):
            ranges = ranges_of(seed)
            found = origin.read_many(ranges)
            is_begun.set()
            wrong = [
                one
                for one, problem in zip(ranges, found, strict=True)
                if problem is None and not is_filled(one)
            ]
            assert wrong == []
            if is_stopped.is_set() and any(found):
                return
        raise AssertionError("it does not fail")

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_until_it_fails)
        assert is_begun.wait(rados_calls.HANGS_AFTER_S)
        with stopped(ceph):
            is_stopped.set()
            reading.result(rados_calls.HANGS_AFTER_S)  # while they are stopped
    wait_for(
        "the OSDs answer", lambda: not any(origin.read_many(ranges_of(0))),
        rados_calls.HANGS_AFTER_S,
    )  # fmt: skip
    origin.close()


def native_problem(reader: native.RadosReader, one: base.ReadRange) -> str | None:
    """Fill a range natively; return the kind of the error where that fails."""
    try:
        assert reader.readinto(one.key, one.offset, one.buffer) == len(one.buffer)
    except native.DataPlaneError as error:
        return str(error.kind)
    return None


def test_stopped_osds_end_native_reads_within_their_deadline(ceph: CephNode) -> None:
    patient = fill(rados_origin(ceph, POOL, namespace="native"))
    patient.close()
    reader = native_reader.open_reader(
        native_location(ceph, Pools(), rados_calls.DEADLINE_S, namespace="native")
    )
    is_stopped, begun = threading.Event(), threading.Barrier(THREADS + 1)

    def is_up() -> bool:
        return not any(native_problem(reader, one) for one in ranges_of(0))

    def read_until_it_fails(seed: int) -> str:
        """Return the kind of the read that failed once the OSDs were stopped."""
        begun.wait(rados_calls.HANGS_AFTER_S)
        for one in itertools.chain.from_iterable(map(ranges_of, itertools.count(seed))):
            problem = native_problem(reader, one)
            if problem is None:
                assert is_filled(one)
                continue
            assert bytes(one.buffer) == b"?" * len(one.buffer)
            # Before, it is this process that stood still for as long as the deadline.
            if is_stopped.is_set():
                return problem
        raise AssertionError("it does not fail")

    wait_for("the cluster answers", is_up, rados_calls.HANGS_AFTER_S)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        reading = [threads.submit(read_until_it_fails, 1000 * seed) for seed in range(THREADS)]
        begun.wait(rados_calls.HANGS_AFTER_S)
        with stopped(ceph):
            is_stopped.set()
            ended = {one.result(rados_calls.HANGS_AFTER_S) for one in reading}
    assert ended == {exception.ErrorKind.UNAVAILABLE}
    wait_for("the OSDs answer", is_up, rados_calls.HANGS_AFTER_S)
    reader.close()


RINGING = """
import sys
from acstor.origin.rados.origin import RadosOrigin
origin = RadosOrigin(sys.argv[1], conf=sys.argv[2], client="admin", namespace="leaving")
origin.get_ref("image-index")
origin.doorbell().ring()
"""


def test_ring_of_a_process_that_ends_at_once_is_heard(
    ceph: CephNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a command does that registers an image, and closes nothing."""
    monkeypatch.setattr(rados_doorbell, "HEARD_INTERVAL", 0.01)
    host = rados_origin(ceph, POOL, namespace="leaving")
    heard = threading.Event()
    host.doorbell().listen(heard.set)
    for _ in range(10):
        assert heard.wait(RADOS_SECONDS)
        heard.clear()
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-c",
            RINGING,
            POOL,
            str(ceph.configuration),
        ]
        processes.run(command, timeout_s=rados_calls.HANGS_AFTER_S)
    assert heard.wait(RADOS_SECONDS)
    host.close()


def test_doorbell_outlives_osds_that_were_away(
    ceph: CephNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rados_doorbell, "HEARD_INTERVAL", 0.01)
    host = rados_origin(ceph, POOL, namespace="woken")
    controller = rados_origin(ceph, POOL, namespace="woken")
    heard = threading.Event()
    host.doorbell().listen(heard.set)
    assert heard.wait(RADOS_SECONDS)
    heard.clear()
    with stopped(ceph):
        started = time.monotonic()
        controller.doorbell().ring()  # nobody waits for it
        assert time.monotonic() - started < RADOS_SECONDS
    assert heard.wait(RADOS_SECONDS)
    heard.clear()
    controller.doorbell().ring()
    assert heard.wait(RADOS_SECONDS)
    host.close()
    controller.close()
