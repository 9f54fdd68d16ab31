"""Pools of an origin in Ceph: what is in which, and pools that do not fit."""

import errno
import logging
import urllib.parse

import pytest

from acstor import exception
from acstor.origin.rados import pools
from acstor.origin.rados.origin import RadosOrigin
from testbed.doubles import memory_rados
from testbed.doubles.memory_rados import MemoryRados

LARGE = bytes(9 << 20)


@pytest.fixture
def rados(monkeypatch: pytest.MonkeyPatch) -> MemoryRados:
    made = MemoryRados()
    monkeypatch.setattr("acstor.origin.rados.cluster.distributed", lambda: made.binding)
    return made


def opened(url: str) -> RadosOrigin:
    return RadosOrigin.from_url(urllib.parse.urlsplit(url))


def test_refs_are_in_their_pool_and_nothing_else_is(rados: MemoryRados) -> None:
    origin = opened("rados://acstor@data?ref_pool=refs&stripe_pool=stripes")
    origin.put_if_absent("packs/aa/large", [LARGE])
    origin.put_if_absent("packs/aa/small", [b"small"])
    origin.swap_ref("images/one", None, b"ref")
    by_pool = {
        pool: {space for place, space, _ in rados.stored if place == pool}
        for pool, _, _ in rados.stored
    }
    assert by_pool == {
        "data": {"acstor.o.packs"},
        "stripes": {"acstor.s.packs"},
        "refs": {"acstor.r.images"},
    }
    assert list(origin.list_refs()) == ["images/one"]
    assert list(origin.list("packs/")) == ["packs/aa/large", "packs/aa/small"]


@pytest.mark.parametrize("options", ["", "?stripe_pool=other", "?ref_pool=data", "?ref_pool=ec"])
def test_erasure_coded_pool_of_refs_is_refused(rados: MemoryRados, options: str) -> None:
    rados.erasure_coded = frozenset({"data", "ec"})
    origin = opened(f"rados://data{options}")
    for _ in range(2):
        with pytest.raises(exception.InvalidError, match="erasure-coded") as caught:
            origin.get_ref("ring")
        assert caught.value.hint is not None
        assert "ref_pool=" in caught.value.hint
    with pytest.raises(exception.InvalidError, match="erasure-coded"):
        origin.put_if_absent("packs/aa/one", [b"x"])
    assert rados.stored == {}


@pytest.mark.parametrize("options", ["ref_pool=refs", "ref_pool=refs&stripe_pool=ec"])
def test_pools_of_objects_may_be_erasure_coded(rados: MemoryRados, options: str) -> None:
    rados.erasure_coded = frozenset({"data", "ec"})
    origin = opened(f"rados://data?{options}")
    origin.swap_ref("ring", None, b"x")
    assert origin.put_if_absent("packs/aa/one", [LARGE])


def test_pool_without_an_application_is_told_of(
    rados: MemoryRados, caplog: pytest.LogCaptureFixture
) -> None:
    rados.tags = {"data": {}, "refs": {pools.APPLICATION: {}}, "others": {}}
    with caplog.at_level(logging.WARNING):
        origin = opened("rados://data?ref_pool=refs")
        assert origin.get_ref("ring") is None
        assert origin.get_ref("ring") is None
    assert [one.getMessage() for one in caplog.records] == [
        "pool data has no application, of which Ceph's health warns: "
        "'ceph osd pool application enable data acstor'"
    ]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES])
def test_client_that_may_not_ask_for_kinds_uses_the_pools(rados: MemoryRados, code: int) -> None:
    rados.command_error = code
    assert opened("rados://data").get_ref("ring") is None


def test_kinds_that_nobody_tells_are_no_kinds(
    rados: MemoryRados, monkeypatch: pytest.MonkeyPatch
) -> None:
    rados.command_error = errno.ETIMEDOUT
    with pytest.raises(exception.UnavailableError, match="kinds of pools"):
        opened("rados://data").get_ref("ring")
    rados.command_error = 0
    for answer in (b"", b"7", b"[7]", b"{}x", b'[{"pool_name": "data"}]'):
        told = (0, answer, "")
        monkeypatch.setattr(memory_rados.Handle, "mon_command", lambda *_, told=told: told)
        with pytest.raises(exception.UnavailableError, match="list of pools"):
            opened("rados://data").get_ref("ring")
