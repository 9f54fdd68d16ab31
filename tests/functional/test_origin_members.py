"""An origin in two stores with real data planes and agents: one of the stores loses what it has."""

import contextlib
import hashlib
import json
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from acstor.origin.opening import open_driver
from acstor.origin.posix import PosixOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.members_status import MembersStatus
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberEvent
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.registrar.member_upkeep import check_readable
from testbed.fixtures.host_volumes import Volumes, call, content, open_volume, qemu_io
from testbed.fixtures.hosts import MIB, Cloud, Host, cloud_in

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(300)]

SIZE = 16 * MIB


class Members:
    """A cloud whose origin is in two directories; the first is the home."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.roots = {"home": cloud.origin, "near": cloud.path / "near"}
        self.roots["near"].mkdir()
        self.addresses = [
            MemberAddress(name, f"posix://{root}") for name, root in self.roots.items()
        ]
        stores = {name: PosixOrigin(str(root)) for name, root in self.roots.items()}
        Membership("home", stores).create()
        self.keep_up()

    def keep_up(self) -> MembersStatus:
        """Make a pass of the process that leads."""
        with contextlib.closing(ReplicatedOrigin(self.addresses, open_driver)) as origin:
            return MemberKeeping(origin, check_readable, 1 << 30, "test").run()

    def add_host(self) -> Host:
        members = ",".join(f"{one.name}={one.url}" for one in self.addresses)
        return self.cloud.add_host(origin={"url": "posix:///nowhere", "members": members})

    def lose_packs(self, name: str) -> None:
        """Have a member lose all packs."""
        shutil.rmtree(self.roots[name] / "packs")


@pytest.fixture
def members(tmp_path: pathlib.Path) -> Iterator[Members]:
    with cloud_in(tmp_path) as cloud:
        yield Members(cloud)


def digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def calls(host: Host, member: str, outcome: str) -> float:
    return host.metric("acstor_origin_member_calls", member=member, outcome=outcome)


def test_images_are_read_from_the_member_that_has_them(members: Members) -> None:
    image = members.cloud.register(SIZE)
    status = members.keep_up()
    assert status.members["near"].owed_bytes == 0
    members.lose_packs("home")
    host = members.add_host()
    members.cloud.wait_ready(image)
    assert digest(host.file(image)) == image.sha256
    assert calls(host, "near", "ok") > 0

    assert members.keep_up().members["home"].owed_bytes == 0, "what was lost is copied back"
    members.lose_packs("near")
    other = members.add_host()
    members.cloud.wait_ready(image)
    assert digest(other.file(image)) == image.sha256


def test_home_that_is_away_keeps_no_data_plane_from_reading(members: Members) -> None:
    image = members.cloud.register(SIZE)
    members.keep_up()
    host = members.add_host()
    members.cloud.wait_ready(image)
    hidden = members.cloud.path / "hidden"
    members.roots["home"].rename(hidden)
    try:
        assert digest(host.file(image)) == image.sha256
        killed = host.dataplane_pid()
        assert killed is not None
        host.kill_dataplane()
        host.wait_restarted(killed)
        assert digest(host.file(image)) == image.sha256, "it starts without the home, too"
    finally:
        hidden.rename(members.roots["home"])


def test_volumes_are_in_the_home_and_need_no_other_member(
    members: Members, tmp_path: pathlib.Path
) -> None:
    control = Volumes(members.cloud)
    host = members.add_host()
    members.roots["near"].rename(members.cloud.path / "away")
    volume = control.create(SIZE, host)
    opened = open_volume(host, volume)
    result = qemu_io(opened, "write -P 7 1M 1M", "flush")
    assert result.returncode == 0, result.stdout + result.stderr
    call(host, "close", volume, force=False)
    other = members.add_host()
    control.move(volume, host, other)
    expected = bytearray(SIZE)
    expected[MIB : 2 * MIB] = b"\7" * MIB
    assert content(open_volume(other, volume), tmp_path / "there") == expected


def test_commands_and_checks_of_a_host_know_the_members(members: Members) -> None:
    host = members.add_host()
    found = host.command("origin", "list", "-f", "json")
    assert found.returncode == 0, found.stderr
    rows = {row["Name"]: row for row in json.loads(found.stdout)}
    assert {name: row["State"] for name, row in rows.items()} == {
        "home": "active",
        "near": "active",
    }
    stores = {name: PosixOrigin(str(root)) for name, root in members.roots.items()}
    Membership("home", stores).change("near", MemberEvent.DRAIN)
    found = host.command("origin", "list", "-f", "json")
    assert {row["Name"]: row["State"] for row in json.loads(found.stdout)}["near"] == "draining"
    assert host.command("repository", "show").returncode == 0
