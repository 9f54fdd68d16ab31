"""The commands that show and remove links, and that forget a host."""

import io
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from acstor.agent.desired_host import HostWish, read_wish, write_wish
from acstor.agent.member import Member
from acstor.agent.membership import CoordinationSettings, open_coordinator
from acstor.cli.app import Application
from acstor.drivers.nova.image_links import known_links
from acstor.drivers.nova.image_links.known_links import KnownLink, KnownLinks
from acstor.drivers.nova.image_links.link_states import LinkState
from acstor.origin.opening import open_origin
from acstor.repository.usage import read_usage, write_usage
from tests.fixtures.nova_host import NovaHost
from tests.unit.drivers.nova.conftest import IMAGE, OTHER, make_planter

Run = Callable[..., tuple[int, str, str]]

HOLD = """
import sys
from acstor.drivers.nova.image_links.only_linker import OnlyLinker
linker = OnlyLinker(sys.argv[1])
linker.take()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def nova(tmp_path: pathlib.Path) -> NovaHost:
    return NovaHost(tmp_path / "nova")


@pytest.fixture
def run(tmp_path: pathlib.Path, nova: NovaHost) -> Run:
    (tmp_path / "origin").mkdir()
    config = tmp_path / "acstor.conf"
    config.write_text(
        f"""
[DEFAULT]
host = h1
state_path = {tmp_path}/state
[origin]
url = posix://{tmp_path}/origin
[dataplane]
mount_point = /mount
[coordination]
backend_url = file://{tmp_path}/coordination
[image_links]
enabled = true
nova_config_file = {nova.config}
"""
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        status = Application(out, err).run(["--config-file", str(config), *arguments])
        return status, out.getvalue(), err.getvalue()

    return run


def plant(nova: NovaHost, *images: str) -> None:
    planter = make_planter(nova, pathlib.Path("/mount"))
    planter.prepare()
    for image_id in images:
        planter.plant(image_id)


def test_links_are_listed_as_the_agent_saw_them(
    run: Run, nova: NovaHost, tmp_path: pathlib.Path
) -> None:
    links = {
        IMAGE: KnownLink(LinkState.PLANTED),
        OTHER: KnownLink(LinkState.NOVAS, "Nova has downloaded it itself"),
    }
    known = KnownLinks(str(nova.base), links)
    known_links.save(known_links.path_in(f"{tmp_path}/state"), known)
    status, out, _ = run("links", "list", "-f", "json")
    assert status == 0
    assert json.loads(out) == [
        {"Image": IMAGE, "Link": str(nova.link(IMAGE)), "State": "planted", "Reason": ""},
        {
            "Image": OTHER,
            "Link": str(nova.link(OTHER)),
            "State": "nova's",
            "Reason": "Nova has downloaded it itself",
        },
    ]


def test_list_before_the_first_look_says_what_to_do(run: Run) -> None:
    status, _, err = run("links", "list")
    assert status == 4
    assert "start acstor-agent" in err


@pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")
def test_all_links_are_removed_but_those_in_use(run: Run, nova: NovaHost) -> None:
    plant(nova, IMAGE, OTHER)
    nova.add_overlay(OTHER)
    status, out, err = run("links", "remove", "--all", "-f", "json")
    assert status == 8
    assert "1 links stay" in err
    states = {row["Image"]: row["State"] for row in json.loads(out)}
    assert states == {IMAGE: "removed", OTHER: "kept"}
    assert not nova.link(IMAGE).is_symlink()
    assert nova.link(OTHER).is_symlink()
    status, out, _ = run("links", "list", "-f", "json")
    assert [row["Image"] for row in json.loads(out)] == [OTHER]
    nova.remove_instances()
    assert run("links", "remove", "--all")[0] == 0
    assert not nova.link(OTHER).is_symlink()
    assert run("links", "remove", "--all")[0] == 0, "nothing is left to do"


def test_links_are_not_removed_under_a_running_agent(
    run: Run, nova: NovaHost, tmp_path: pathlib.Path
) -> None:
    plant(nova, IMAGE)
    agent = subprocess.Popen(
        [sys.executable, "-c", HOLD, f"{tmp_path}/state"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"held\n"
        status, _, err = run("links", "remove", "--all")
        assert status == 8
        assert "stop acstor-agent first" in err
        assert nova.link(IMAGE).is_symlink()
    finally:
        agent.communicate(timeout=20)
    assert run("links", "remove", "--all")[0] == 0


def test_host_that_is_gone_is_forgotten(run: Run, tmp_path: pathlib.Path) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    write_usage(origin, "h9", [IMAGE])
    write_wish(origin, "h9", HostWish(is_drained=True))
    status, _, err = run("host", "forget", "h9")
    assert status == 0, err
    assert read_usage(origin, "h9") is None
    assert read_wish(origin, "h9") == HostWish()
    status, _, err = run("host", "forget", "h9")
    assert status == 4
    assert "there is no host h9" in err


def test_host_that_is_alive_is_not_forgotten(run: Run, tmp_path: pathlib.Path) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    write_usage(origin, "h1", [IMAGE])
    settings = CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 1, 60)
    coordinator = open_coordinator(settings, "h1")
    coordinator.create_group(b"acstor").get()
    member = Member("h1", "10.0.0.1:7420", "127.0.0.1:1", 20 << 30, "1.0")
    coordinator.join_group(b"acstor", member.to_capabilities()).get()
    status, _, err = run("host", "forget", "h1")
    assert status == 3
    assert "is alive" in err
    assert read_usage(origin, "h1") is not None
    coordinator.stop()
