"""Nova's forced disconnect of a volume that is still being resumed, by Nova's own driver.

A hard reboot, a start and a resume at the boot of the host all call it: nothing may be lost.
"""

import threading
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from nova import exception as nova_exception
from nova.virt.libvirt import driver as nova_driver
from oslo_config import cfg

from acstor import exception
from acstor.backoff import BackOff
from acstor.dataplane.volumes import local_volume, reconciler
from acstor.drivers.brick import options
from acstor.drivers.nova.volumes import registration
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.volumes.store import VolumeStore
from testbed.doubles.memory_runtime import MemoryRuntime
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest
from tests.unit.drivers.nova.volumes.conftest import INSTANCE, Host, connection

INFO = {**connection(), "data": {**connection()["data"], "volume_id": VOLUME}}


@pytest.fixture
def nova(host: HostUnderTest) -> Any:
    """Nova's libvirt driver, for the volume socket of the host."""
    options.register_opts(cfg.CONF)
    cfg.CONF.set_override("volume_socket", host.conf.volumes.control_socket, options.GROUP)
    registration.register()
    driver = nova_driver.LibvirtDriver.__new__(nova_driver.LibvirtDriver)
    driver.volume_drivers = {}
    driver.disk_cachemodes = {}
    driver._host = Host()
    driver._volume_api = None
    yield driver
    cfg.CONF.clear_override("volume_socket", options.GROUP)


def disconnect(nova: Any) -> None:
    """Do what ``LibvirtDriver._cleanup`` does with each volume."""
    nova._disconnect_volume(None, INFO, INSTANCE, destroy_secrets=False, force=True)


def connect(nova: Any) -> None:
    nova._connect_volume(None, INFO, INSTANCE)


def reboot(nova: Any) -> None:
    disconnect(nova)
    connect(nova)


def lose_power(host: HostUnderTest, **runtime: Any) -> MemoryRuntime:
    """Write 512 bytes that are not pushed, and start the process after the one that is gone."""
    host.open()
    host.device.write(512)
    host.plane.stop_for_next()

    def prepare(made: MemoryRuntime) -> None:
        for name, value in runtime.items():
            setattr(made, name, value)

    return host.plane.start(prepare)


def test_volume_whose_resume_is_held_is_waited_for(
    host: HostUnderTest, store: VolumeStore, nova: Any
) -> None:
    may_open = threading.Event()
    runtime = lose_power(host, may_open=may_open)
    assert runtime.is_opening.wait(60)
    rebooting = threading.Thread(target=reboot, args=(nova,))
    rebooting.start()
    may_open.set()
    rebooting.join(60)
    assert host.state == "serving"
    record = store.get(VOLUME).record
    assert sum(len(one) for one in record.logs) == 1, "what was not pushed is part of the disk"
    assert host.client.call("volume.list_aside") == []


def test_resume_that_takes_too_long_is_left_alone(
    host: HostUnderTest, nova: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open = threading.Event()
    runtime = lose_power(host, may_open=may_open)
    assert runtime.is_opening.wait(60)
    with monkeypatch.context() as short:  # the connection is to wait for its turn
        short.setattr(local_volume, "_TURN_TIMEOUT", 0.05)
        disconnect(nova)
    assert host.state == "opening"
    may_open.set()
    connect(nova)
    assert host.state == "serving"
    assert (host.device.epoch, host.device.dirty_bytes) == (1, 512)


def test_volume_is_resumed_for_a_disconnect_that_comes_first(
    host: HostUnderTest,
    store: VolumeStore,
    nova: Any,
    monkeypatch: pytest.MonkeyPatch,
    origin: MemoryOrigin,
) -> None:
    """The check of the record, which comes first, has no answer yet."""
    monkeypatch.setattr(reconciler, "_CHECK_TIMEOUT", 60.0)
    get_ref, may_answer, is_asked = origin.get_ref, threading.Event(), threading.Event()

    def held(name: str) -> Any:
        is_check = threading.current_thread().name == reconciler.CHECK_THREAD
        if name == layout.volume_ref(VOLUME) and is_check:
            is_asked.set()
            may_answer.wait()
        return get_ref(name)

    monkeypatch.setattr(origin, "get_ref", held)
    lose_power(host)
    assert is_asked.wait(60)
    assert host.state == "opening"
    disconnect(nova)
    record = store.get(VOLUME).record
    assert record.owner is None
    assert sum(len(one) for one in record.logs) == 1
    connect(nova)
    may_answer.set()
    assert host.state == "serving"
    assert host.call("status")["epoch"] == 2


@pytest.mark.parametrize("kind", ["exhausted", "corrupt"])
def test_volume_that_cannot_be_resumed_is_not_given_up(
    host: HostUnderTest, nova: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "RETRY", BackOff(0.04, 0.1))
    runtime = lose_power(host, fail_every_open=kind)
    wait_for("a resume that fails", lambda: "does not open" in str(host.call("status")["error"]))
    disconnect(nova)
    with pytest.raises(nova_exception.VolumeAttachFailed, match="does not open"):
        connect(nova)
    with pytest.raises(exception.UnavailableError, match="give-up"):
        host.call("close", force=True)
    runtime.fail_every_open = None
    wait_for("the volume is served", lambda: host.state == "serving")
    assert (host.device.epoch, host.device.dirty_bytes) == (1, 512)


def test_writes_that_the_origin_does_not_take_stay_for_the_guest(
    host: HostUnderTest, nova: Any, monkeypatch: pytest.MonkeyPatch, origin: MemoryOrigin
) -> None:
    def is_away(key: str, buffers: object) -> bool:
        raise exception.UnavailableError("the origin is away")

    monkeypatch.setattr(origin, "put_if_absent", is_away)
    lose_power(host)
    disconnect(nova)
    connect(nova)
    assert host.state == "serving"
    assert (host.device.epoch, host.device.dirty_bytes) == (1, 512)
