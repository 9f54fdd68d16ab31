"""The origin in a real Ceph, when things go wrong: no cluster, an OSD down, a full pool, kills."""

import itertools
import logging
import pathlib
import signal
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados import objects as rados_objects
from acstor.origin.rados import pools
from acstor.origin.rados.classes import ClassedObjects
from acstor.origin.rados.objects import RadosObjects
from acstor.origin.rados.origin import RadosOrigin
from acstor.origin.rados.stripes import Stripes
from testbed import processes
from testbed.fixtures.ceph import CephNode
from tests.ceph import ERASURE_POOL, POOL, REF_POOL
from tests.compliance.origins import rados_origin
from tests.probe import rados_calls

CONTENT = bytes(range(256)) * (9 << 12)
KEY = "packs/aa/large"
RESTART_DEADLINE_S = 4.0
"""No longer than the ten seconds after which librados takes operations for late by default."""


class Killed(BaseException):
    """Ends a writer as SIGKILL would."""


@pytest.fixture(
    params=[
        (POOL, POOL, POOL),
        pytest.param((POOL, ERASURE_POOL, POOL), marks=pytest.mark.extended),
        pytest.param((ERASURE_POOL, ERASURE_POOL, REF_POOL), marks=pytest.mark.extended),
    ],
    ids=["replicated", "stripes erasure-coded", "all but refs erasure-coded"],
)
def origin(request: pytest.FixtureRequest, ceph: CephNode) -> Iterator[RadosOrigin]:
    pool, stripe_pool, ref_pool = request.param
    opened = rados_origin(ceph, stripe_pool, pool=pool, ref_pool=ref_pool)
    yield opened
    opened.close()


def stripes_of(origin: RadosOrigin) -> list[str]:
    assert isinstance(origin.objects, ClassedObjects)
    stripes: Any = origin.objects.controllers._stripes(KEY)
    return [one.key for one in stripes._context.list_objects()]


def swept(origin: RadosOrigin) -> int:
    """Sweep as if everything were old."""
    with mock.patch.object(rados_objects, "LEFTOVER_AGE_SECONDS", -10.0):
        return origin.sweep()


STEPS: list[tuple[type, str]] = [
    (RadosObjects, "_note"),
    (RadosObjects, "_begin"),
    (Stripes, "write"),
    (RadosObjects, "_turn"),
    (RadosObjects, "_forget"),
]


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize(("owner", "step"), STEPS, ids=[name for _, name in STEPS])
def test_killed_writer_leaves_all_or_nothing(
    origin: RadosOrigin, owner: type, step: str, *, is_before: bool
) -> None:
    real = getattr(owner, step)

    def killed(*arguments: object) -> object:
        if not is_before:
            real(*arguments)
        raise Killed

    with mock.patch.object(owner, step, killed), pytest.raises(Killed):
        origin.put_if_absent(KEY, [CONTENT])
    is_there = origin.exists(KEY)
    assert is_there == (step == "_forget" or (step == "_turn" and not is_before))
    swept(origin)
    assert origin.exists(KEY) == is_there
    if is_there:
        assert origin.get(KEY, len(CONTENT)) == CONTENT
        assert origin.delete(KEY)
    else:
        assert origin.put_if_absent(KEY, [CONTENT])
        assert origin.get(KEY, len(CONTENT)) == CONTENT
        assert origin.delete(KEY)
    assert stripes_of(origin) == []
    assert list(origin.list()) == []


def during(owner: type, step: str, meanwhile: Callable[[], object]) -> Any:
    """Have something happen while a writer is stopped before a step."""
    real, pending = getattr(owner, step), [meanwhile]

    def stopped(*arguments: object) -> object:
        if pending:
            pending.pop()()
        return real(*arguments)

    return mock.patch.object(owner, step, stopped)


@pytest.mark.parametrize("step", ["write", "_turn"])
def test_writer_that_sleeps_until_it_is_swept_makes_no_half_object(
    origin: RadosOrigin, step: str
) -> None:
    owner = Stripes if step == "write" else RadosObjects
    with (
        during(owner, step, lambda: swept(origin)),
        pytest.raises(exception.UnavailableError),
    ):
        origin.put_if_absent(KEY, [CONTENT])
    assert not origin.exists(KEY)
    with pytest.raises(exception.NotFoundError):
        origin.get_range(KEY, 0, 1)
    assert origin.put_if_absent(KEY, [CONTENT])
    assert origin.get(KEY, len(CONTENT)) == CONTENT


def test_of_two_writers_of_a_key_one_wins(origin: RadosOrigin) -> None:
    other = CONTENT[::-1]
    with (
        during(RadosObjects, "_turn", lambda: origin.put_if_absent(KEY, [other])),
        pytest.raises(exception.UnavailableError),
    ):
        origin.put_if_absent(KEY, [CONTENT])
    assert not origin.put_if_absent(KEY, [CONTENT])
    assert origin.get(KEY, len(CONTENT)) == other


def test_killed_deletion_is_finished_by_a_sweep(origin: RadosOrigin) -> None:
    origin.put_if_absent(KEY, [CONTENT])
    with (
        mock.patch.object(RadosObjects, "_bury", side_effect=Killed),
        pytest.raises(Killed),
    ):
        origin.delete(KEY)
    assert not origin.exists(KEY)
    assert len(stripes_of(origin)) == 3
    assert swept(origin) == 1
    assert stripes_of(origin) == []


def test_full_pool_fails_writes_and_deletes(origin: RadosOrigin, ceph: CephNode) -> None:
    origin.put_if_absent(KEY, [CONTENT])
    token = origin.swap_ref("ring", None, b"x" * 100)
    pools = ceph.run("ceph", "osd", "pool", "ls").split()
    numbers = itertools.count()

    def is_refused(call: Callable[[], object]) -> bool:
        try:
            call()
        except exception.ExhaustedError:
            return True
        return False

    def is_full() -> bool:
        """Try both pools: OSDs hear of each at another time."""
        number = next(numbers)
        return is_refused(
            lambda: origin.put_if_absent(f"packs/aa/{number}", [b"x"])
        ) and is_refused(lambda: origin.swap_ref(f"images/{number}", None, b"x"))

    for pool in pools:
        ceph.run("ceph", "osd", "pool", "set-quota", pool, "max_bytes", "1")
    try:
        processes.wait_until(is_full, "the pool is full", timeout_s=rados_calls.HANGS_AFTER_S)
        with pytest.raises(exception.ExhaustedError):
            origin.swap_ref("other", None, b"x")
        assert origin.get(KEY, len(CONTENT)) == CONTENT
        assert origin.swap_ref("ring", token, None) is None
        origin.sweep()
        assert origin.delete(KEY)
        assert stripes_of(origin) == []
    finally:
        for pool in pools:
            ceph.run("ceph", "osd", "pool", "set-quota", pool, "max_bytes", "0")
    processes.wait_until(
        lambda: not is_refused(lambda: origin.put_if_absent(KEY, [CONTENT])),
        "the pools are not full",
        timeout_s=rados_calls.HANGS_AFTER_S,
    )
    assert origin.get(KEY, len(CONTENT)) == CONTENT


def test_osds_that_stop_answering_fail_every_call_until_they_are_back(
    ceph: CephNode,
) -> None:
    patient = rados_origin(ceph, POOL, namespace="stopped")
    patient.put_if_absent(rados_calls.KEY, [rados_calls.LARGE])
    token = patient.swap_ref("ring", None, b"before")
    patient.close()
    origin = rados_origin(ceph, POOL, rados_calls.DEADLINE_S, namespace="stopped")
    for osd in ceph.osds:
        osd.send_signal(signal.SIGSTOP)
    try:
        ended = rados_calls.outcomes(origin)
    finally:
        for osd in ceph.osds:
            osd.send_signal(signal.SIGCONT)
    assert ended == dict.fromkeys(rados_calls.CALLS, exception.UnavailableError)

    def is_back() -> bool:
        try:
            return origin.get_ref("ring") == base.Ref(str(token), b"before")
        except exception.UnavailableError:
            return False

    processes.wait_until(is_back, "the OSDs answer", timeout_s=rados_calls.HANGS_AFTER_S)
    origin.close()


def test_osd_that_starts_again_is_found_by_who_writes_meanwhile(ceph: CephNode) -> None:
    """Both in its first seconds and later: what a client knows of it may be too old by then."""
    origin = rados_origin(ceph, POOL, RESTART_DEADLINE_S, namespace="restarted")
    numbers = itertools.count()

    def writes() -> bool:
        try:
            return origin.put_if_absent(f"packs/aa/{next(numbers)}", [b"x" * 65536])
        except exception.UnavailableError:
            return False

    processes.wait_until(writes, "writes pass", timeout_s=rados_calls.HANGS_AFTER_S)
    osd = ceph.osds[0]
    osd.kill()
    osd.wait(rados_calls.HANGS_AFTER_S)
    assert not writes()
    ceph.start_osd()
    processes.wait_until(writes, "writes pass again", timeout_s=rados_calls.HANGS_AFTER_S)
    origin.close()


@pytest.mark.parametrize("lacking", ["pool", "configuration"])
def test_what_is_not_there_is_said(ceph: CephNode, tmp_path: pathlib.Path, lacking: str) -> None:
    conf = tmp_path / "none" if lacking == "configuration" else ceph.configuration
    origin = RadosOrigin("none", conf=str(conf), client="admin")
    with pytest.raises(exception.InvalidError, match="pool none" if lacking == "pool" else "admin"):
        origin.get_ref("ring")
    origin.close()


def test_listing_that_is_not_allowed_is_no_end(ceph: CephNode) -> None:
    ceph.make_client("writer", mon="allow r", osd="allow w, allow x")
    origin = rados_origin(ceph, POOL, client="writer")
    for call in (origin.list, origin.list_refs):
        with pytest.raises(exception.InvalidError, match="Operation not permitted"):
            list(call())
    origin.close()


@pytest.mark.extended
def test_erasure_coded_pool_of_refs_is_refused(ceph: CephNode) -> None:
    origin = rados_origin(ceph, ERASURE_POOL, pool=ERASURE_POOL)
    with pytest.raises(exception.InvalidError, match=f"{ERASURE_POOL} is erasure-coded"):
        origin.get_ref("ring")
    origin.close()


def test_pool_without_an_application_is_told_of(
    ceph: CephNode, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        """Return the commands that a client logs when it connects."""
        caplog.clear()
        origin = rados_origin(ceph, POOL, ref_pool=REF_POOL)
        with caplog.at_level(logging.WARNING, logger=pools.LOG.name):
            origin.get_ref("ring")
        origin.close()
        return [one.getMessage().rpartition(": ")[2].strip("'") for one in caplog.records]

    prefix = "ceph osd pool application enable"
    commands = told()
    assert f"{prefix} {REF_POOL} acstor" in commands
    for one in commands:
        ceph.run(*one.split())
    assert told() == []


@pytest.mark.extended
def test_listing_of_a_pool_that_is_removed_is_no_end(ceph: CephNode) -> None:
    ceph.make_pool("short-lived")
    origin = RadosOrigin("short-lived", conf=str(ceph.configuration), client="admin")
    origin.swap_ref("images/one", None, b"x")
    assert list(origin.list_refs()) == ["images/one"]
    really = "--yes-i-really-really-mean-it"
    ceph.run("ceph", "osd", "pool", "rm", "short-lived", "short-lived", really)

    def is_refused() -> bool:
        try:
            return list(origin.list_refs()) == []
        except exception.InvalidError:
            return True

    processes.wait_until(
        is_refused, "the client has the map without the pool", timeout_s=rados_calls.HANGS_AFTER_S
    )
    with pytest.raises(exception.InvalidError, match="pool short-lived"):
        list(origin.list_refs())
    origin.close()
