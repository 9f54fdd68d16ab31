"""Faults around ACStor: the cloud works meanwhile, and the fault is reported."""

import contextlib
from collections.abc import Iterator, Mapping

import openstack.exceptions
import pytest
from keystoneauth1.exceptions import ConnectTimeout

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import Instances
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.slow_proxy import SlowProxy
from testbed.onebox.configuration import endpoints
from testbed.onebox.network import CONTROLLER_ADDRESS

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox, pytest.mark.disruptive,
]  # fmt: skip

MIB = 1 << 20
REGISTRAR = "acstor-registrar"
GLANCE_DELAY_S = 5.0
SPOOL_SIZE = 16 * MIB
Options = Mapping[str, Mapping[str, str]]


@contextlib.contextmanager
def registrar_behind(
    box: RunningBox, proxy: SlowProxy, options: Options | None = None
) -> Iterator[None]:
    """Within the block the registrar reaches Glance through a proxy; nobody else does."""
    with proxy.running(CONTROLLER_ADDRESS) as url:
        wanted: dict[str, dict[str, str]] = {
            "registrar": {"retry_delay": "1", "interval": "5"},
            "glance": {"endpoint_override": url},
        }
        for group, values in (options or {}).items():
            wanted.setdefault(group, {}).update(values)
        with box.reconfigured(box.controller, REGISTRAR, wanted):
            yield


def glance_proxy() -> SlowProxy:
    return SlowProxy(endpoints.CATALOGUE["image"][1])


def boots(instances: Instances, template: Template, host: ComputeHost | None = None) -> None:
    """A server of a template boots and reads its files."""
    instances.create(template, host=host).checked(boot=1)


def test_message_broker_down_guests_go_on(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """No message passes: guests read on; once it is back, images and servers are made again."""
    server = instances.create(tiny)
    before = server.checked(boot=1)
    box.controller.stop("rabbitmq")
    try:
        for host in box.hosts:
            assert host.serves()
            assert host.base_kind(tiny.id) == "link"
        reads = server.host.read_count()
        # Nova's API asks nova-compute for consoles by messages: look at the data plane instead.
        wait_for("the guest reads on", lambda: server.host.read_count() > reads + 10, 60, 0.5)
    finally:
        box.controller.start("rabbitmq")
    box.wait_reported()
    box.wait_settled()

    def console_answers() -> bool:
        try:
            server.console()
        except (ConnectTimeout, openstack.exceptions.HttpException):
            return False  # the API's own connection to the broker is not up again, or it waits
        return True

    wait_for("Nova's API reaches nova-compute again", console_answers, 300, 1.0)
    later = server.checked(after=before)
    server.checked(after=later)
    assert not server.could_not_read()
    image = box.fresh(tiny)
    box.wait_planted(image.id)
    boots(instances, image)


@pytest.mark.extended
def test_glance_slow_servers_do_not_wait_for_the_registrar(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Seconds for each request of the registrar: it takes longer, and nobody waits for it."""
    proxy = glance_proxy()
    proxy.delay = GLANCE_DELAY_S
    first, second = box.hosts
    with registrar_behind(box, proxy):
        image = box.fresh(tiny)
        boots(instances, image, first)  # by Nova's own download, or by a link that is there
        box.wait_planted(image.id, [second], timeout=180)
        boots(instances, image, second)
    assert proxy.requests


def test_glance_failing_is_said_and_made_up_for(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Each answer an error: the registrar stays, says so, and registers once Glance is back."""
    proxy = glance_proxy()
    proxy.failure = 503
    first, second = box.hosts
    start = box.controller.log_size(REGISTRAR)
    with registrar_behind(box, proxy):
        image = box.fresh(tiny)
        wait_for("the registrar has asked", lambda: proxy.requests, 60)
        boots(instances, image, first)
        wait_for(
            "the registrar says what is wrong",
            lambda: "503" in box.controller.log(REGISTRAR, start),
            60,
            0.5,
        )
        assert box.controller.is_running(REGISTRAR)
        assert second.base_kind(image.id) == "nothing"
        proxy.failure = None
        box.wait_planted(image.id, [second], timeout=180)
    boots(instances, image, second)


def test_image_deleted_while_registering_is_not_planted(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Gone in Glance when half of it is read: nothing of it is offered, the next one is."""
    proxy = glance_proxy()
    proxy.hold_after = 8 * MIB
    with registrar_behind(box, proxy, {"glance": {"filesystem_store_datadir": ""}}):
        image = box.fresh(tiny)
        wait_for("half of it is read", proxy.is_held.is_set, 60)
        assert box.wait_registry(image.id, {"registering"})
        box.api.delete_image(image.id)
        proxy.hold_after = None
        proxy.released.set()
        next_image = box.fresh(tiny)
        box.wait_planted(next_image.id)
        box.wait_unplanted(image.id)
        entry = box.registry_entry(image.id)
        assert entry is None or entry["state"] in ("withdrawn", "failed"), entry
        boots(instances, next_image)


def test_image_of_other_bytes_than_uploaded_fails(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """A byte changed in Glance's store: the registrar notices, says so, and plants nothing."""
    box.controller.stop(REGISTRAR)
    try:
        image = box.fresh(tiny)
        stored = box.glance_file(image.id)
        with stored.open("r+b") as file:
            file.seek(20 * MIB)
            changed = bytes(byte ^ 0xFF for byte in file.read(64))
            file.seek(20 * MIB)
            file.write(changed)
    finally:
        box.controller.start(REGISTRAR)
    entry = box.wait_registry(image.id, {"failed"})
    assert "sha512" in entry["reason"] or "checksum" in entry["reason"], entry
    for host in box.hosts:
        assert host.base_kind(image.id) == "nothing"
    boots(instances, tiny)


def test_image_of_another_format_than_declared_is_not_planted(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Declared qcow2, a raw disk inside: Glance refuses it, or it is left out with the reason."""
    image_id = box.api.create_image(box.test_name, disk_format="qcow2", properties=tiny.properties)
    box.delete_later(image_id)
    try:
        box.api.send_image(image_id, tiny.guest.disk)
        is_accepted = True
    except openstack.exceptions.HttpException as error:
        is_accepted = False
        status = error.response.status_code if error.response is not None else 0
    if is_accepted:
        entry = box.wait_registry(image_id, {"failed", "left"})
        assert "qcow2" in entry["reason"], entry
    else:
        assert 400 <= status < 500
    for host in box.hosts:
        assert host.base_kind(image_id) == "nothing"
    boots(instances, tiny)


@pytest.mark.extended
def test_spool_full_is_said_and_made_up_for(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """No room for a download: the reason is listed, Nova downloads, room again registers it."""
    first, second = box.hosts
    spool = "/run/small-spool"
    box.controller.run("mkdir", "-p", spool)
    box.controller.run("mount", "-t", "tmpfs", "-o", f"size={SPOOL_SIZE}", "none", spool)
    try:
        options = {
            "glance": {"filesystem_store_datadir": ""},
            "registrar": {"spool_path": spool, "spool_reserve": "0"},
        }
        with registrar_behind(box, glance_proxy(), options):
            image = box.fresh(tiny)
            entry = box.wait_registry(image.id, {"failed"})
            assert "space" in entry["reason"] or "room" in entry["reason"], entry
            boots(instances, image, first)
            assert first.base_kind(image.id) == "file"
            box.controller.run("mount", "-o", "remount,size=1g", spool)
            box.wait_planted(image.id, [second])
    finally:
        box.controller.run("umount", spool)
    boots(instances, image, second)


@pytest.mark.extended
def test_agent_killed_while_planting_plants_after_its_start(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Killed between offering an image and planting it, three times: planted in the end."""
    host = box.hosts[0]
    for _ in range(3):
        image = box.fresh(tiny)
        offered = host.path(f"{host.mount_point}/{image.id}.raw")
        wait_for("the image is offered", offered.exists, 120)
        host.kill("acstor-agent")
        assert host.base_kind(image.id) in ("nothing", "link")
        host.start("acstor-agent")
        box.wait_planted(image.id)
    boots(instances, image, host)
