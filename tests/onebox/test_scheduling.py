"""Placement of instances by the real nova-scheduler, from the states that agents report."""

import contextlib
import functools
import re
import time
import urllib.request
from collections.abc import Iterator

import pytest

from acstor.agent.metrics import COVERAGE, HOST_STATES
from testbed.fixtures.cloud_api import POLL_SECONDS, Template
from testbed.fixtures.compute_host import ComputeHost, samples
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.instances import FLAVOR, Instance, Instances
from testbed.fixtures.one_box import RunningBox
from testbed.fixtures.tiny_guest import MEMORY_MIB
from testbed.onebox.configuration import acstor, compute

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.onebox]

AGENT, DATA_PLANE, SCHEDULER = "acstor-agent", "acstor-dataplane", "nova-scheduler"
REQUIRING = "tiny-requiring"
TELL_TIMEOUT = 60.0
PRELOAD_SECONDS = 5.0
"""Seconds between two preloads: what one has brought is told by then."""
COLD = 0.9
"""Coverage below which a host has far from all."""
EACH_FIRST = (0, pytest.param(1, marks=pytest.mark.extended))
COUNT = 2
"""Nova spreads two over two hosts, where nothing tells it otherwise."""


@pytest.fixture
def weighty(box: RunningBox) -> Iterator[None]:
    """Coverage outweighs what Nova thinks of two nearly empty hosts, by an aggregate's word."""
    with box.aggregate("weighty", box.hosts) as name:
        box.api.compute.set_aggregate_metadata(
            box.api.compute.find_aggregate(name, ignore_missing=False),
            {"boot_coverage_weight_multiplier": "100"},
        )
        yield


@pytest.fixture
def requiring(box: RunningBox, flavors: None) -> str:
    """A flavour whose instances must have a data plane."""
    name = box.api.flavor(REQUIRING, MEMORY_MIB, 1)
    box.api.compute.create_flavor_extra_specs(name, {"acstor:required": "true"})
    return name


def pair(box: RunningBox, first: int) -> tuple[ComputeHost, ComputeHost]:
    """Return both hosts, one of them first: what holds for one must hold for the other."""
    chosen = box.hosts[first]
    (other,) = (host for host in box.hosts if host is not chosen)
    return chosen, other


def state_ttl(box: RunningBox) -> float:
    """Return for how long the scheduler believes what it was told, seconds."""
    text = box.controller.path(compute.CONFIG_FILE).read_text()
    found = re.search(r"^state_ttl = (\d+)$", text, re.MULTILINE)
    assert found is not None, "nova.conf of the one-box has no [acstor] state_ttl"
    return float(found[1])


def agent_metric(host: ComputeHost, name: str, **labels: str) -> float | None:
    """Return a metric of a host's agent, None where it has none, or does not answer."""
    url = f"http://{host.host.address}:{acstor.METRICS_PORT}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode()
    except OSError:
        return None  # it has no turn, or is not there
    found = [
        value
        for each, series, value in samples(text)
        if each == name and labels.items() <= series.items()
    ]
    return found[0] if found else None


def coverage(host: ComputeHost, image: Template) -> float | None:
    return agent_metric(host, COVERAGE, image=image.id)


def has_coverage(host: ComputeHost, image: Template, at_least: float = 0.0) -> bool:
    share = coverage(host, image)
    return share is not None and share >= at_least


def wait_told(*hosts: ComputeHost) -> None:
    """Wait until the schedulers were told of what is so now."""
    for host in hosts:
        before = agent_metric(host, f"{HOST_STATES}_total", outcome="sent") or 0.0

        def is_told(host: ComputeHost = host, before: float = before) -> bool:
            # The first may have been composed before; the second was not.
            return (agent_metric(host, f"{HOST_STATES}_total", outcome="sent") or 0.0) >= before + 2

        wait_for(f"{host.name} tells its state", is_told, TELL_TIMEOUT, POLL_SECONDS)


def ask_for(box: RunningBox, host: ComputeHost, command: str) -> None:
    program = box.directory.program("acstor")
    box.controller.run(
        program, "--config-file", acstor.CONFIG_FILE, "host", command, host.name, "--wait", "60"
    )


@contextlib.contextmanager
def drained(box: RunningBox, *hosts: ComputeHost) -> Iterator[None]:
    """Within the block hosts are drained, and the schedulers know."""
    try:
        for host in hosts:
            ask_for(box, host, "drain")
        wait_told(*hosts)
        yield
    finally:
        for host in hosts:
            ask_for(box, host, "undrain")
        wait_told(*hosts)


def places(servers: list[Instance]) -> list[str]:
    """Wait for servers and return the hosts that they are on."""
    for server in servers:
        server.wait()
    return [server.host.name for server in servers]


@pytest.mark.parametrize("first", EACH_FIRST)
def test_image_warm_on_one_host_gets_its_instances_there(
    box: RunningBox, unseen: Template, instances: Instances, weighty: None, first: int
) -> None:
    """Although the other host is the emptier one, and has all that the ring made it keep."""
    warm, cold = pair(box, first)
    image = unseen
    box.wait_planted(image.id)
    instances.create(image, host=warm).checked()
    # What hosts hear first is what the boot read first: the head, which each of them has pinned.
    wait_for(
        f"{cold.name} knows that boots read more than it has",
        lambda: has_coverage(cold, image) and not has_coverage(cold, image, COLD),
        TELL_TIMEOUT,
        POLL_SECONDS,
    )
    is_warm = functools.partial(has_coverage, warm, image, 0.99)

    def is_warm_after_preload() -> bool:
        # A boot that is not over yet has more to read than is known by now: ask again.
        box.controller.acstor("image", "preload", image.id, "--hosts", warm.name, "--working-set")
        return is_warm()

    wait_for(f"{warm.name} has all of it", is_warm_after_preload, TELL_TIMEOUT, PRELOAD_SECONDS)
    assert not has_coverage(cold, image, COLD), "both hosts are warm: this shows nothing"
    wait_told(*box.hosts)
    assert places(instances.request(image, count=COUNT)) == [warm.name] * COUNT


@pytest.mark.parametrize("first", EACH_FIRST)
def test_drained_host_gets_no_instance(
    box: RunningBox, tiny: Template, instances: Instances, first: int
) -> None:
    """Whichever it is; afterwards it takes them again."""
    leaving, staying = pair(box, first)
    with drained(box, leaving):
        assert places(instances.request(tiny, count=COUNT)) == [staying.name] * COUNT
    with drained(box, staying):
        assert places(instances.request(tiny)) == [leaving.name]


@pytest.mark.extended
def test_cloud_of_drained_hosts_still_takes_instances_but_those_that_require_a_data_plane(
    box: RunningBox, tiny: Template, instances: Instances, requiring: str
) -> None:
    with drained(box, *box.hosts):
        assert len(places(instances.request(tiny))) == 1
        (refused,) = instances.request(tiny, flavor=requiring)
        fault = refused.wait("ERROR").fault
    assert "No valid host" in fault["message"]
    assert len(places(instances.request(tiny, flavor=requiring))) == 1


@pytest.mark.disruptive
@pytest.mark.parametrize("first", EACH_FIRST)
def test_host_without_data_plane_gets_no_instance(
    box: RunningBox, tiny: Template, instances: Instances, requiring: str, first: int
) -> None:
    down, up = pair(box, first)
    down.stop(DATA_PLANE)
    try:
        wait_told(down)
        servers = [
            server
            for flavor in (FLAVOR, requiring)
            for server in instances.request(tiny, count=COUNT, flavor=flavor)
        ]
        assert places(servers) == [up.name] * 2 * COUNT
    finally:
        down.start(DATA_PLANE)


@pytest.mark.extended
@pytest.mark.disruptive
def test_instances_are_scheduled_when_no_agent_tells_anything(
    box: RunningBox, tiny: Template, instances: Instances, requiring: str
) -> None:
    """One host drained, so that what the scheduler remembers of it would show; then no word."""
    drained_host, _ = box.hosts
    start = box.controller.log_size(SCHEDULER)
    with drained(box, drained_host):
        for host in box.all_hosts:
            host.stop(AGENT)
        try:
            told_until = time.monotonic() + state_ttl(box)
            assert len(places(instances.request(tiny))) == 1
            wait_for(
                "what was told is too old",
                lambda: time.monotonic() > told_until,
                state_ttl(box) + 10,
                POLL_SECONDS,
            )
            # Nova can ask for this host by name only when the filter lets it pass.
            servers = instances.request(tiny, host=drained_host, flavor=requiring)
            assert places(servers) == [drained_host.name]
            assert places(instances.request(tiny, flavor=FLAVOR))
        finally:
            for host in box.all_hosts:
                host.start(AGENT)
    assert "no host has told its state" in box.controller.log(SCHEDULER, start)


@pytest.mark.extended
@pytest.mark.disruptive
def test_scheduler_hears_again_when_the_broker_is_back(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    leaving, staying = box.hosts
    box.controller.stop("rabbitmq")
    box.controller.start("rabbitmq")
    box.wait_reported()
    box.wait_settled()

    def is_heard() -> bool:
        return places(instances.request(tiny, count=COUNT)) == [staying.name] * COUNT

    # What is sent before the scheduler listens at the new broker is lost; nobody says when it does.
    with drained(box, leaving):
        wait_for("the scheduler hears again", is_heard, TELL_TIMEOUT, POLL_SECONDS)


@pytest.mark.disruptive
def test_restarted_scheduler_knows_the_hosts_before_it_decides(
    box: RunningBox, tiny: Template, instances: Instances
) -> None:
    """Its worker listens from its start on; the first instance is placed with what it heard."""
    leaving, staying = box.hosts
    with drained(box, leaving):
        start = box.controller.log_size(SCHEDULER)
        box.controller.stop(SCHEDULER)
        box.controller.start(SCHEDULER)
        wait_for(
            "the scheduler listens",
            lambda: "listening to the states" in box.controller.log(SCHEDULER, start),
            TELL_TIMEOUT,
            POLL_SECONDS,
        )
        wait_told(*box.hosts)
        assert places(instances.request(tiny, count=COUNT)) == [staying.name] * COUNT
