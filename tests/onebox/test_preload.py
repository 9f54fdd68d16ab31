"""Images brought to hosts before they are needed, in a real cloud."""

import functools

import pytest

from testbed import exception
from testbed.fixtures.cloud_api import POLL_SECONDS, Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import Instances
from testbed.fixtures.one_box import RunningBox

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

AGENT, DATA_PLANE = "acstor-agent", "acstor-dataplane"
LEARN_TIMEOUT = 60.0
FETCHED_SHARE_MAX = 0.1
"""Largest share of the working set that a boot on a preloaded host may still have to fetch."""


def fetched_bytes(host: ComputeHost) -> float:
    """Return what the data plane had to have from elsewhere."""
    return host.metric("acstor_origin_bytes") + host.metric("acstor_peer_fetch_bytes")


def knows_working_set(host: ComputeHost, image: Template) -> bool:
    found = host.ask("workingset.coverage") or []
    return any(entry["image"] == image.id and entry["wanted_chunks"] for entry in found)


def missing_bytes(host: ComputeHost, image: Template) -> int:
    return int(host.ask("preload.estimate", image=image.id, what="full")["missing_bytes"])


def state(box: RunningBox, host: ComputeHost, image: Template) -> str:
    rows = box.controller.acstor("preload", "show", image.id, "--hosts", host.name)
    return str(rows[0]["State"])


def test_aggregate_has_what_boots_read_before_they_do(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    first, second = box.hosts
    image = box.fresh(tiny)
    box.wait_planted(image.id)
    instances.create(image, host=first).checked()
    for host in box.hosts:
        is_known = functools.partial(knows_working_set, host, image)
        wait_for(f"{host.name} knows what boots read", is_known, LEARN_TIMEOUT, POLL_SECONDS)
    with box.aggregate("desktops", box.hosts) as name:
        rows = box.controller.acstor(
            "image", "preload", image.id, "--aggregate", name, "--deadline", "3m", timeout=240
        )
    assert {row["Host"]: row["State"] for row in rows} == {host.name: "done" for host in box.hosts}
    brought = max(row["Bytes"] for row in rows)
    assert brought > 0
    before = fetched_bytes(second)
    instances.create(image, host=second).checked()
    fetched = fetched_bytes(second) - before
    print(f"fetched by the boot: {fetched:.0f} of {brought} bytes of its working set")
    assert fetched <= FETCHED_SHARE_MAX * brought


def test_aggregate_that_nova_does_not_have_is_refused(box: RunningBox, tiny: Template) -> None:
    with pytest.raises(exception.ToolFailedError, match="there is no host aggregate elsewhere"):
        box.controller.acstor("image", "preload", tiny.id, "--aggregate", "elsewhere", "--full")


@pytest.mark.extended
@pytest.mark.disruptive
def test_admitted_preload_goes_on_after_agent_and_data_plane_were_killed(
    box: RunningBox, unseen: Template
) -> None:
    host, image = box.hosts[0], unseen
    box.wait_planted(image.id)
    whole = missing_bytes(host, image)
    assert whole, "there would be nothing to bring"
    rate = max(64 << 10, whole // 30)
    arguments = ("--hosts", host.name, "--full", "--rate", str(rate), "--no-wait")
    box.controller.acstor("image", "preload", image.id, *arguments)
    host.kill(AGENT, DATA_PLANE)
    host.start(DATA_PLANE)
    wait_for(f"{host.name} serves again", host.serves, 60, POLL_SECONDS)
    assert missing_bytes(host, image), "nothing would be left to be resumed"
    host.start(AGENT)
    wait_for(f"{host.name} has it all", lambda: missing_bytes(host, image) == 0, 180, POLL_SECONDS)
    wait_for("the admitted preload", lambda: state(box, host, image) == "done", 60, POLL_SECONDS)
