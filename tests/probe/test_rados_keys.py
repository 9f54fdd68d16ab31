"""Hosts and controllers in a real Ceph, each with the key that the page for operators tells of."""

import functools
import logging
import pathlib
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados import doorbell as rados_doorbell
from acstor.origin.rados.classes import ClassedObjects
from acstor.origin.rados.objects import RadosObjects
from acstor.origin.rados.origin import RadosOrigin
from testbed.ceph_clients import CONTROLLER, HOST, READER
from testbed.fixtures import host_volumes
from testbed.fixtures.ceph import CephNode
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, cloud_in
from tests.ceph import POOL, REF_POOL
from tests.compliance.origins import RADOS_SECONDS, rados_origin
from tests.probe import rados_keys

NAMESPACE = "hosts"
SIZE = 4 * MIB
QUOTA = 256 << 20
LARGE = bytes(range(256)) * (5 << 12)
PACK, SMALL, MANIFEST = "packs/aa/large", "packs/aa/small", "manifests/aa/one"
IMAGES = {PACK: LARGE, SMALL: b"small", MANIFEST: b"manifest"}
REFS_OF_ALL = [
    *("usage/one", "ring", "ring-term", "ring-generation"),
    *("working-sets/one", "boot-profiles/one"),
]
REFS_OF_VOLUMES = ["volumes/one", "volume-heads/one", "volume-bells/one", "gc/condemned/one"]
REFS_OF_CONTROLLERS = [
    "images/one", "image-index", "image-generation", "catalogue/one", "snapshots/one", "hosts/one",
    "withdrawals", "decision", "policy-pins", "format",
]  # fmt: skip


@pytest.fixture(scope="module")
def clients(ceph: CephNode) -> Iterator[dict[str, RadosOrigin]]:
    """Have a repository with an image, and a client of each kind."""
    rados_keys.make(ceph, ref_pool=REF_POOL)
    found = {name: opened(ceph, name) for name in (CONTROLLER, HOST, READER)}
    for key, content in IMAGES.items():
        found[CONTROLLER].put_if_absent(key, [content])
    for name in REFS_OF_CONTROLLERS:
        found[CONTROLLER].swap_ref(name, None, b"controller's")
    yield found
    for one in found.values():
        one.close()


def is_refused(call: Callable[[], object]) -> bool:
    """Return whether Ceph does not permit it."""
    try:
        call()
    except exception.InvalidError as error:
        return "permi" in str(error)
    return False


def opened(node: CephNode, name: str) -> RadosOrigin:
    """Open the repository as one of the clients."""
    url = rados_keys.url(node, name, ref_pool=REF_POOL)
    return RadosOrigin.from_url(urllib.parse.urlsplit(url))


def listed(origin: RadosOrigin) -> list[str]:
    """List one folder."""
    return list(origin.list("packs/"))


@pytest.mark.parametrize("name", [HOST, READER])
def test_host_reads_images_and_destroys_none(clients: dict[str, RadosOrigin], name: str) -> None:
    host = clients[name]
    for key, content in IMAGES.items():
        assert host.get(key, len(content)) == content
        assert is_refused(functools.partial(host.delete, key))
    assert set(host.list("packs/")) >= {PACK, SMALL}
    assert set(host.list_refs("images/")) == {"images/one"}
    assert host.space() is not None
    for ref in REFS_OF_CONTROLLERS:
        present = host.get_ref(ref)
        assert present is not None
        for after in (b"host's", None):
            assert is_refused(functools.partial(host.swap_ref, ref, present.token, after))
    for key, content in IMAGES.items():
        assert clients[CONTROLLER].get(key, len(content)) == content


@pytest.mark.parametrize("name", [HOST, READER])
def test_host_cannot_write_below_the_driver_either(
    clients: dict[str, RadosOrigin], name: str
) -> None:
    objects = clients[name].objects
    assert isinstance(objects, ClassedObjects)
    of_controllers: RadosObjects = objects.controllers
    head = of_controllers._head(PACK)
    assert head is not None
    cluster = of_controllers._cluster
    stripes = of_controllers._stripes(PACK)._context
    for context, names in [
        (of_controllers._context(PACK), [PACK, SMALL, "packs/aa/new"]),
        (of_controllers._notes(), ["note"]),
        (stripes, [f"{PACK}@{head.nonce.hex()}.0"]),
    ]:
        for one in names:
            for call in (
                functools.partial(context.write_full, one, b"host's"),
                functools.partial(context.append, one, b"host's"),
                functools.partial(context.trunc, one, 0),
                functools.partial(context.remove_object, one),
            ):
                with pytest.raises(exception.InvalidError), cluster.map_errors("writing"):
                    call()
    assert clients[CONTROLLER].get(PACK, len(LARGE)) == LARGE


def test_host_with_volumes_stores_what_they_are_made_of(clients: dict[str, RadosOrigin]) -> None:
    host, controller = clients[HOST], clients[CONTROLLER]
    keys = {"packs/bb/large": LARGE, "manifests/bb/one": b"x", "volume-log/one/1": b"log"}
    for key, content in keys.items():
        assert host.put_if_absent(key, [content])
        assert not host.put_if_absent(key, [content])
        assert controller.get(key, len(content)) == content
    for ref in REFS_OF_ALL + REFS_OF_VOLUMES:
        token = host.swap_ref(ref, None, b"host's")
        token = host.swap_ref(ref, token, b"changed")
        assert controller.swap_ref(ref, token, None) is None
    assert controller.sweep() == 0
    for key in keys:
        assert controller.delete(key)


def test_host_without_volumes_writes_what_it_says_of_itself(
    clients: dict[str, RadosOrigin],
) -> None:
    host = clients[READER]
    for ref in REFS_OF_ALL:
        token = host.swap_ref(ref, None, b"host's")
        assert host.swap_ref(ref, token, None) is None
    for ref in REFS_OF_VOLUMES:
        assert is_refused(functools.partial(host.swap_ref, ref, None, b"x"))
    for key in ("packs/cc/one", "manifests/cc/one", "volume-log/two/1"):
        assert is_refused(functools.partial(host.put_if_absent, key, [b"x"]))


def test_nobody_reads_another_repository(clients: dict[str, RadosOrigin], ceph: CephNode) -> None:
    for name in clients:
        other = RadosOrigin(
            "acstor", conf=str(ceph.configuration), client=f"{name}.acstor", namespace="other"
        )
        assert is_refused(functools.partial(other.get_ref, "ring"))
        assert is_refused(functools.partial(listed, other))
        other.close()


@pytest.mark.parametrize("name", [HOST, READER])
def test_host_hears_what_a_controller_changes(clients: dict[str, RadosOrigin], name: str) -> None:
    heard = threading.Event()
    clients[name].doorbell().listen(heard.set)
    assert heard.wait(RADOS_SECONDS)
    heard.clear()
    clients[CONTROLLER].doorbell().ring()
    assert heard.wait(RADOS_SECONDS)


def test_host_that_may_not_watch_says_so_once(
    ceph: CephNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rados_doorbell, "REFUSED_SECONDS", 0.1)
    ceph.make_client("deaf", mon="profile simple-rados-client", osd="allow r")
    host = rados_origin(ceph, POOL, client="deaf")
    attempts = mock.Mock(wraps=host.doorbell()._context)
    monkeypatch.setattr(host.doorbell(), "_context", attempts)
    heard = threading.Event()
    with caplog.at_level(logging.WARNING):
        host.doorbell().listen(heard.set)
        wait_for("three attempts", lambda: attempts.call_count >= 3, RADOS_SECONDS)
        assert host.get_ref("image-index") is None
        host.close()
    told = [one for one in caplog.records if "usual looks" in one.getMessage()]
    assert len(told) == 1
    assert "capabilities" in told[0].getMessage()
    assert not heard.is_set()


@pytest.fixture
def cloud(ceph: CephNode, tmp_path: pathlib.Path) -> Iterator[Cloud]:
    rados_keys.make(ceph, NAMESPACE)
    with cloud_in(tmp_path, rados_keys.url(ceph, CONTROLLER, NAMESPACE)) as running:
        yield running


@pytest.fixture
def add_host(ceph: CephNode, cloud: Cloud) -> Callable[[], Host]:
    url = rados_keys.url(ceph, HOST, NAMESPACE)
    return functools.partial(cloud.add_host, origin={"url": url})


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hosts_serve_images_and_volumes_with_their_keys(
    cloud: Cloud, add_host: Callable[[], Host], tmp_path: pathlib.Path
) -> None:
    hosts = [add_host(), add_host()]
    image = cloud.register(8 * MIB)
    cloud.wait_ready(image)
    for host in hosts:
        assert host.file(image).read_bytes() == image.content

    control, (host, other) = host_volumes.Volumes(cloud), hosts
    volume = control.create(SIZE, host)
    opened = host_volumes.open_volume(host, volume)
    writer = host_volumes.CheckedWriter(opened, first=0, length=SIZE, seed=1)
    try:
        writer.wait_requests(20)
        killed = host.dataplane_pid()
        host.kill_dataplane()
        assert killed is not None
        host.wait_restarted(killed)
        writer.wait_requests(20)
    finally:
        writer.stop()
    assert writer.problems == []
    assert host_volumes.call(host, "fold", volume)["is_folded"]
    assert host_volumes.content(opened, tmp_path / "here") == writer.model
    host_volumes.call(host, "close", volume, force=False)
    control.move(volume, host, other)
    assert (
        host_volumes.content(host_volumes.open_volume(other, volume), tmp_path / "there")
        == writer.model
    )

    assert list(control.origin.list("packs/")) != list(control.origin.list_protected("packs/"))
    for one in hosts:
        wait_for(
            "the record of use", functools.partial(control.origin.get_ref, f"usage/{one.name}")
        )
        text = one.log_path.read_text()
        assert "ermission" not in text
        assert "not permitted" not in text


@pytest.mark.parametrize("name", [CONTROLLER, HOST, READER])
def test_room_is_within_the_quota_of_the_pool(
    ceph: CephNode, clients: dict[str, RadosOrigin], name: str
) -> None:
    def bounded() -> base.Space | None:
        found = clients[name].space()
        return found if found is not None and found.total_bytes <= QUOTA else None

    assert bounded() is None
    ceph.run("ceph", "osd", "pool", "set-quota", POOL, "max_bytes", str(QUOTA))
    try:
        # Of a pool that was just made monitors have no figures yet.
        found = wait_for("the figures of the pool", bounded, interval=0.5)
    finally:
        ceph.run("ceph", "osd", "pool", "set-quota", POOL, "max_bytes", "0")
    assert 0 < found.free_bytes <= found.total_bytes
