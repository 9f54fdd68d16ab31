"""The commands that show and remove links, and that forget a host."""

import contextlib
import io
import json
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from acstor.agent.reconcilers.desired_host import (
    DesiredState,
    read_desired_state,
    write_desired_state,
)
from acstor.cli import forgetting
from acstor.cli.app import Application
from acstor.cluster.member import Member
from acstor.cluster.membership import CoordinationSettings, open_coordinator
from acstor.cluster.ring.published_ring import RING_REF, read_ring
from acstor.drivers.nova.image_links import known_links
from acstor.drivers.nova.image_links.known_links import KnownLink, KnownLinks
from acstor.drivers.nova.image_links.link_states import LinkState
from acstor.native import RingHost, build_ring
from acstor.origin.base import Origin
from acstor.origin.opening import open_origin
from acstor.repository.images.usage import base_name, read_usage
from acstor.repository.images.withdrawal_rounds import Phase, Rounds, write_rounds
from acstor.repository.repository import Repository
from testbed.fixtures.nova_host import NovaHost
from testbed.fixtures.ports import free_port
from testbed.fixtures.usage_records import write_usage
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
    Repository.init(open_origin(f"posix://{tmp_path}/origin", 1), 4096)
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
        OTHER: KnownLink(LinkState.NOVA_DOWNLOADED, "Nova has downloaded it itself"),
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
            "State": "nova_downloaded",
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
    write_usage(origin, "h9", {IMAGE: ("instance-1",)}, time="2026-10-23T07:00:00+00:00")
    write_desired_state(origin, "h9", DesiredState(is_drained=True))
    status, _, err = run("host", "forget", "h9")
    assert status == 8
    assert f"host h9 uses {IMAGE}; it spoke last at 2026-10-23T07:00:00+00:00" in err
    assert "--force" in err
    assert read_usage(origin, "h9") is not None
    status, _, err = run("host", "forget", "h9", "--force")
    assert status == 0, err
    assert read_usage(origin, "h9") is None
    assert read_desired_state(origin, "h9") == DesiredState()
    status, _, err = run("host", "forget", "h9")
    assert status == 4
    assert "there is no host h9" in err


def test_host_that_keeps_what_nobody_else_does_is_not_forgotten(
    run: Run, tmp_path: pathlib.Path
) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    write_usage(origin, "h9", manifests={"ab" * 32: IMAGE})
    status, _, err = run("host", "forget", "h9")
    assert status == 8
    assert f"keeps what is left of {IMAGE}, registered no more" in err


ATTACHED = {"ab" * 32: IMAGE}
HERE = "h1"
"""The host of the configuration."""


@pytest.fixture
def with_image(tmp_path: pathlib.Path) -> Origin:
    """The origin, in which an image is registered."""
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    origin.swap_ref(f"images/{IMAGE}", None, b"{}")
    return origin


def test_host_whose_name_is_only_like_that_of_this_one_is_another(
    run: Run, with_image: Origin
) -> None:
    """Its guests may run elsewhere: that nobody answers here at 127.0.0.1 says nothing of them.

    Names that differ in case alone are no question: one with capitals is none.
    """
    status, _, err = run("host", "forget", HERE.upper())
    assert status == 3, err
    name = f"{HERE}.example.org"
    write_usage(with_image, HERE, manifests={"cd" * 32: IMAGE}, peer_address="127.0.0.1:1")
    write_usage(with_image, name, manifests=ATTACHED, peer_address="127.0.0.1:1")
    found = [read_usage(with_image, host) for host in (HERE, name)]
    assert found[0] != found[1], "two hosts, with a record each"
    status, _, err = run("host", "forget", name)
    assert status == 8
    assert "--force" in err
    assert read_usage(with_image, name) is not None


def test_host_outside_of_the_ring_is_asked_at_the_address_of_its_record(
    run: Run, with_image: Origin
) -> None:
    """Whoever is drained or dead has left the ring; its guests may read on."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with socket.create_server(("127.0.0.1", port)):
        write_usage(with_image, "h9", manifests=ATTACHED, peer_address=address)
        write_usage(with_image, HERE, manifests=ATTACHED, peer_address=address)
        for host in ("h9", HERE):
            status, _, err = run("host", "forget", host)
            assert status == 8
            assert f"still answers at {address}" in err
            assert read_usage(with_image, host) is not None
    assert run("host", "forget", HERE)[0] == 0, "the host says that its data plane is stopped"
    assert read_usage(with_image, HERE) is None
    status, _, err = run("host", "forget", "h9")
    assert status == 8, "and this one says nothing of another that calls itself localhost"
    assert f"nobody answers at {address}" in err


def test_data_plane_that_is_being_replaced_is_not_taken_for_stopped(
    run: Run, with_image: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    write_usage(with_image, HERE, manifests=ATTACHED, peer_address=address)
    with contextlib.ExitStack() as again:

        def listen(_: float) -> None:
            again.enter_context(socket.create_server(("127.0.0.1", port)))

        monkeypatch.setattr("acstor.cli.forgetting.time.sleep", listen)
        status, _, err = run("host", "forget", HERE)
    assert status == 8
    assert f"host {HERE} has {IMAGE} attached" in err


def test_host_that_nobody_can_ask_keeps_what_it_has_attached(run: Run, with_image: Origin) -> None:
    write_usage(with_image, "h9", manifests=ATTACHED, time="t9")
    status, _, err = run("host", "forget", "h9")
    assert status == 8
    assert f"host h9 has {IMAGE} attached" in err
    assert "its address is not known; it spoke last at t9" in err
    assert "I/O errors" in err
    assert read_usage(with_image, "h9") is not None
    assert run("host", "forget", "h9", "--force")[0] == 0
    assert read_usage(with_image, "h9") is None


def test_silence_of_a_data_plane_is_not_taken_for_its_end(
    run: Run, with_image: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "ANSWER_TIMEOUT", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listener,
        contextlib.ExitStack() as waiting,
    ):
        address = listener.getsockname()
        for _ in range(4):  # the queue is full: whoever comes now is not answered
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        text = f"{address[0]}:{address[1]}"
        write_usage(with_image, "h9", manifests=ATTACHED, peer_address=text)
        status, _, err = run("host", "forget", "h9")
        assert status == 8
        assert f"nobody answers at {text}" in err
        write_usage(with_image, "h9", manifests={})
        assert run("host", "forget", "h9")[0] == 0, "nothing is at stake"


def test_host_of_the_first_releases_does_not_say_what_it_has_attached(
    run: Run, with_image: Origin
) -> None:
    with_image.swap_ref("usage/h9", None, b'{"version": 1, "images": []}')
    status, _, err = run("host", "forget", "h9")
    assert status == 8
    assert "does not say which images are attached" in err
    assert run("host", "forget", "h9", "--force")[0] == 0


def test_host_that_stays_in_the_ring_is_told(run: Run, with_image: Origin) -> None:
    ring = build_ring([RingHost("h9", "127.0.0.1:1", 100)], 64)
    with_image.swap_ref(RING_REF, None, ring.encode())
    status, _, err = run("host", "forget", "h9")
    assert status == 0
    assert "host h9 stays in the ring" in err


def test_host_whose_record_is_damaged_is_forgotten_by_force(
    run: Run, tmp_path: pathlib.Path
) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    origin.swap_ref("usage/h9", None, b"{")
    status, _, err = run("host", "forget", "h9")
    assert status == 7
    assert "host h9" in err
    assert run("host", "forget", "h9", "--force")[0] == 0


def test_host_whose_data_plane_answers_is_not_forgotten(run: Run, tmp_path: pathlib.Path) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    port = free_port()
    address = f"127.0.0.1:{port}"
    with socket.create_server(("127.0.0.1", port)):
        ring = build_ring([RingHost("h9", address, 100)], 64)
        origin.swap_ref(RING_REF, None, ring.encode())
        status, _, err = run("host", "forget", "h9")
        assert status == 8
        assert f"still answers at {address}" in err
    assert run("host", "forget", "h9")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("host", "forget", "h9", "--force"),
        ("host", "drain", "h9"),
        ("host", "list"),
        ("host", "usage"),
        ("ring", "show"),
        ("image", "users", IMAGE),
    ],
)
def test_origin_that_is_not_mounted_is_not_taken_for_an_empty_one(
    run: Run, tmp_path: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "origin").rename(tmp_path / "elsewhere")
    (tmp_path / "origin").mkdir()
    status, _, err = run(*arguments)
    assert status in (4, 5)
    assert "the origin holds no repository" in err
    assert list((tmp_path / "origin").iterdir()) == []


def test_usage_of_all_hosts_is_listed(run: Run, tmp_path: pathlib.Path) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    asked = Rounds().changed(IMAGE, Phase.ASKED)
    write_rounds(origin, asked)
    write_usage(origin, "h1", {IMAGE: ("a",)}, round=1, time="t1", manifests={"ab" * 32: OTHER})
    write_usage(origin, "h2", time="t2")
    origin.swap_ref("usage/h3", None, b"{")
    status, out, err = run("host", "usage", "-f", "json")
    assert status == 7, "nothing is withdrawn or collected while one record cannot be read"
    assert "host h3" in err
    assert "1 of what was to be listed cannot be read" in err
    assert json.loads(out) == [
        {
            "Host": "h1", "Spoke at": "t1", "Images used": 1, "Manifests kept": 1, "Round": 1,
            "Behind": False,
        },
        {
            "Host": "h2", "Spoke at": "t2", "Images used": 0, "Manifests kept": 0, "Round": 0,
            "Behind": True,
        },
    ]  # fmt: skip


def test_users_of_an_image_are_listed_and_keep_it(run: Run, tmp_path: pathlib.Path) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    origin.swap_ref(f"images/{IMAGE}", None, b"damaged")
    write_usage(origin, "h1", {IMAGE: ("a", "b")}, time="t1")
    write_usage(origin, "h2", bases=frozenset({base_name(IMAGE)}), time="t2")
    write_usage(origin, "h3", manifests={"ab" * 32: IMAGE}, time="t3")
    write_usage(origin, "h4", [OTHER])
    status, out, _ = run("image", "users", IMAGE, "-f", "json")
    assert status == 0
    assert json.loads(out) == [
        {"Host": "h1", "State": "used", "Instances": ["a", "b"], "Spoke at": "t1"},
        {"Host": "h2", "State": "used", "Instances": [], "Spoke at": "t2"},
        {"Host": "h3", "State": "attached", "Instances": [], "Spoke at": "t3"},
    ]
    status, _, err = run("image", "remove", IMAGE)
    assert status == 8
    assert f"image {IMAGE} is in use on h1 (instances a, b), h2" in err
    assert origin.get_ref(f"images/{IMAGE}") is not None
    status, _, err = run("image", "remove", IMAGE, "--force")
    assert status == 0, err
    assert origin.get_ref(f"images/{IMAGE}") is None


def test_image_is_not_removed_while_nobody_knows_who_uses_it(
    run: Run, tmp_path: pathlib.Path
) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    origin.swap_ref(f"images/{IMAGE}", None, b"damaged")
    origin.swap_ref("usage/h1", None, b"{")
    assert run("image", "remove", IMAGE)[0] == 7
    assert run("image", "remove", IMAGE, "--force")[0] == 0


def test_host_that_is_forgotten_leaves_the_ring(run: Run, tmp_path: pathlib.Path) -> None:
    origin = open_origin(f"posix://{tmp_path}/origin", 1)
    hosts = [RingHost(name, "127.0.0.1:1", 100) for name in ("h8", "h9")]
    origin.swap_ref(RING_REF, None, build_ring(hosts, 64).encode())
    status, _, err = run("host", "forget", "h9")
    assert status == 0, err
    published = read_ring(origin)
    assert published is not None
    assert [(host.name, host.vnodes) for host in published.ring.hosts] == [("h8", 64)]


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
