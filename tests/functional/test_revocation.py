"""Revoking an image on real hosts, one of which is away: over a real broker, by the command."""

import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from acstor.origin.opening import open_origin
from acstor.repository.images import revocation
from testbed.fixtures import broker as brokers
from testbed.fixtures.broker import Broker, broker_in
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host, Image

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not brokers.is_installed(), reason="needs rabbitmq-server"),
]

SIZE = 16 * MIB


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("revocation") / "broker") as running:
        yield running


def add_hosts(cloud: Cloud, broker: Broker, count: int) -> list[Host]:
    return [
        cloud.add_host(
            DEFAULT={"transport_url": broker.url},
            readpath={"load_aware": "false", "read_deadline": 60, "peer_deadline": 30},
        )
        for _ in range(count)
    ]


def ready(cloud: Cloud, image: Image) -> None:
    cloud.wait_ready(image)
    for host in cloud.hosts:
        wait_for(f"{host.name} listens\n{host.log()}", functools.partial(is_listening, host), 60)


def is_listening(host: Host) -> bool:
    return "listening as" in host.log_path.read_text(errors="replace")


def fill(host: Host, image: Image) -> None:
    """Bring all of an image to a host."""
    host.ask("preload.start", image=image.id, what="full", rate_bytes_per_s=0, pin=False)

    def is_done() -> bool:
        jobs = {job["image"]: job["state"] for job in host.ask("preload.status") or []}
        return jobs.get(image.id) == "done"

    wait_for(f"{host.name} has it all\n{host.log()}", is_done, 90)


def revoke(host: Host, image: Image, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run the command; return its exit status, its rows by host, and stderr."""
    result = host.command("image", "revoke", image.id, *arguments, "-f", "json", timeout=200)
    rows = json.loads(result.stdout or "[]")
    return result.returncode, {row["Host"]: row for row in rows}, result.stderr


def held(cloud: Cloud, host: Host, image: Image, work: pathlib.Path) -> int:
    """Return how many of the revoked chunks a host's data plane has."""
    origin = open_origin(cloud.origin_url, 5)
    found = revocation.find(origin, image.id)
    assert found is not None
    total = 0
    for page in range(len(found.page_sizes)):
        (work / "page").write_bytes(revocation.read_page(origin, found, page))
        total += int(host.ask("chunks.count", path=str(work / "page"))["held"])
    return total


def has_detached(host: Host, image: Image) -> bool:
    return image.id not in {str(each["id"]) for each in host.ask("image.list") or []}


def test_image_is_gone_from_every_host_also_from_one_that_was_away(
    cloud: Cloud, broker: Broker, tmp_path: pathlib.Path
) -> None:
    here, there, away = add_hosts(cloud, broker, 3)
    image, other = cloud.register(SIZE), cloud.register(SIZE)
    for each in (image, other):
        ready(cloud, each)
        for host in cloud.hosts:
            fill(host, each)
    away.kill("agent")
    status, rows, error = revoke(here, image, "--timeout", "60s")
    assert status == 5, error
    assert {host: row["State"] for host, row in rows.items()} == {
        "h0": "absent", "h1": "absent", "h2": "unreachable",
    }  # fmt: skip
    assert "h2 (unreachable)" in error
    own = rows["h0"]["Held before"]
    assert own > SIZE / (64 << 10) / 2
    assert (rows["h0"]["Dropped"], rows["h0"]["Held after"]) == (own, 0)
    assert [held(cloud, host, image, tmp_path) for host in (here, there)] == [0, 0]
    assert held(cloud, away, image, tmp_path) == own
    estimate = here.ask("preload.estimate", image=other.id, what="full")
    assert estimate["missing_bytes"] == 0, "chunks of another image stay"
    away.start_agent()
    wait_for(f"it is rid of it\n{away.log()}", lambda: held(cloud, away, image, tmp_path) == 0, 90)
    wait_for("it has it no more", lambda: has_detached(away, image), 90)
    status, rows, error = revoke(here, image, "--timeout", "60s")
    assert status == 0, error
    assert {row["State"] for row in rows.values()} == {"absent"}
    assert other.content == here.file(other).read_bytes()


def test_image_that_a_guest_has_open_is_revoked_by_force_and_told(
    cloud: Cloud, broker: Broker, tmp_path: pathlib.Path
) -> None:
    (host,) = add_hosts(cloud, broker, 1)
    image = cloud.register(SIZE)
    ready(cloud, image)
    with host.file(image).open("rb", buffering=0) as disk:
        assert disk.read(MIB) == image.content[:MIB]

        def is_used() -> bool:
            users = host.command("image", "users", image.id, "-f", "json")
            return any(row["State"] == "used" for row in json.loads(users.stdout or "[]"))

        wait_for("the host says that it uses it", is_used, 90)
        assert revoke(host, image)[0] == 8
        status, rows, error = revoke(host, image, "--force", "--timeout", "2s")
        assert (status, rows["h0"]["State"]) == (5, "attached"), error
        disk.seek(SIZE - MIB)
        assert disk.read(MIB) == image.content[-MIB:], "its guest goes on"
    wait_for("it is closed", lambda: has_detached(host, image), 90)
    status, rows, error = revoke(host, image, "--force", "--timeout", "60s")
    assert (status, rows["h0"]["State"]) == (0, "absent"), error
    assert held(cloud, host, image, tmp_path) == 0
    assert host.command("revocation", "forget", image.id).returncode == 0
