"""'acstor origin ...' on directories: an origin gets members, and loses them."""

import io
import json
import pathlib

import pytest

from acstor import exception
from acstor.cli import app
from acstor.origin.opening import open_driver
from acstor.origin.posix import PosixOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.registrar.member_upkeep import check_readable
from tests.unit.repository import images

NAMES = ("home", "near", "far")


class Deployment:
    """The command line over directories; the first holds a repository with an image."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.config = folder / "acstor.conf"
        for name in NAMES:
            (folder / name).mkdir()
        repository = images.open_repository(PosixOrigin(str(folder / "home")))
        images.register(repository, 1, images.disk(1, 2, 3))
        self.configure("home", "near")

    def configure(self, *names: str) -> None:
        """Have the configuration name these members."""
        self.addresses = [MemberAddress(name, f"posix://{self.folder / name}") for name in names]
        members = ",".join(f"{one.name}={one.url}" for one in self.addresses)
        self.config.write_text(
            f"[DEFAULT]\nstate_path = {self.folder / 'state'}\n"
            f"[origin]\nurl = posix://{self.folder / 'none'}\nmembers = {members}\n"
        )

    def __call__(self, *arguments: str) -> tuple[int, str]:
        output, error = io.StringIO(), io.StringIO()
        found = app.Application(output, error)
        status = found.run(["--config-file", str(self.config), *arguments])
        return int(status or 0), output.getvalue() + error.getvalue()

    def run(self, *arguments: str) -> str:
        """Run a command that succeeds."""
        status, text = self(*arguments)
        assert status == 0, text
        return text

    def list(self) -> dict[str, dict[str, object]]:
        """Return the rows of the list by the members' names."""
        text = self.run("origin", "list", "-f", "json")
        rows = json.loads(text[text.index("[") : text.rindex("]") + 1])
        return {row["Name"]: row for row in rows}

    def lead(self) -> None:
        """Make a pass of the process that leads."""
        origin = ReplicatedOrigin(self.addresses, open_driver)
        MemberKeeping(origin, check_readable, 1 << 30, "registrar").run()
        origin.close()

    def packs(self, name: str) -> set[str]:
        return set(PosixOrigin(str(self.folder / name)).list("packs/"))


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Deployment:
    return Deployment(tmp_path)


def test_origin_gets_a_second_member_that_is_filled(deployment: Deployment) -> None:
    assert "has 2 members" in deployment.run("origin", "create")
    assert "has 2 members" in deployment.run("origin", "create"), "it may be repeated"
    assert deployment.list()["near"]["State"] == "joining"
    assert deployment.list()["near"]["Reachable"] is None
    deployment.lead()
    rows = deployment.list()
    assert {name: row["State"] for name, row in rows.items()} == {
        "home": "active",
        "near": "active",
    }
    assert (rows["home"]["Home"], rows["near"]["Home"]) == (True, False)
    assert (rows["near"]["Lacks"], rows["near"]["Alone Has"], rows["near"]["Problem"]) == (0, 0, "")
    assert rows["near"]["Refs Behind"] == 0
    assert deployment.packs("near") == deployment.packs("home") != set()


def test_other_commands_read_what_the_home_has_lost(deployment: Deployment) -> None:
    deployment.run("origin", "create")
    deployment.lead()
    for pack in deployment.packs("home"):
        (deployment.folder / "home" / pack).unlink()
    assert deployment("image", "verify")[0] == 0


def test_member_joins_later_and_is_drained_and_removed(deployment: Deployment) -> None:
    deployment.run("origin", "create")
    deployment.lead()
    deployment.configure(*NAMES)
    assert "far is joining" in deployment.run("origin", "join", "far")
    deployment.lead()
    assert deployment.list()["far"]["State"] == "active"
    lonely = "packs/00/" + "0" * 64
    PosixOrigin(str(deployment.folder / "far")).put_if_absent(lonely, [b"not copied yet"])
    assert "far is draining" in deployment.run("origin", "drain", "far")
    status, text = deployment("origin", "remove", "far")
    assert status != 0
    assert "1 objects are in member far alone" in text
    assert lonely in text
    PosixOrigin(str(deployment.folder / "far")).delete(lonely)
    assert "far is removed" in deployment.run("origin", "remove", "far")
    deployment.configure("home", "near")
    assert deployment.list()["far"]["Kind"] == "not configured"
    status, text = deployment("origin", "join", "far")
    assert status != 0
    assert "not in [origin] members" in text


def test_joining_member_is_not_removed_with_what_it_alone_has(deployment: Deployment) -> None:
    deployment.run("origin", "create")
    lonely = "packs/00/" + "0" * 64
    PosixOrigin(str(deployment.folder / "near")).put_if_absent(lonely, [b"alone"])
    status, text = deployment("origin", "remove", "near")
    assert status != 0
    assert lonely in text
    PosixOrigin(str(deployment.folder / "near")).delete(lonely)
    assert "near is removed" in deployment.run("origin", "remove", "near")


def test_create_says_who_has_not_joined(deployment: Deployment) -> None:
    deployment.run("origin", "create")
    deployment.configure(*NAMES)
    assert "far is none of them: 'acstor origin join far'" in deployment.run("origin", "create")


def test_drain_is_given_up(deployment: Deployment) -> None:
    deployment.run("origin", "create")
    deployment.lead()
    deployment.run("origin", "drain", "near")
    assert "near is active" in deployment.run("origin", "keep", "near")


def test_giving_up_a_member_wants_the_loss_confirmed(deployment: Deployment) -> None:
    deployment.run("origin", "create")
    deployment.lead()
    status, text = deployment("origin", "fail", "near")
    assert status != 0
    assert "0 bytes of images and volumes are lost with it" in text
    assert "--lost-bytes 0" in text
    assert deployment("origin", "fail", "near", "--lost-bytes", "7")[0] != 0
    assert "near is failed" in deployment.run("origin", "fail", "near", "--lost-bytes", "0")
    assert "near is removed" in deployment.run("origin", "remove", "near")


@pytest.mark.parametrize("command", ["drain", "fail", "remove"])
def test_home_cannot_be_taken_away(deployment: Deployment, command: str) -> None:
    deployment.run("origin", "create")
    deployment.lead()
    more = ("--lost-bytes", "0") if command == "fail" else ()
    status, text = deployment("origin", command, "home", *more)
    assert status != 0
    assert deployment.list()["home"]["State"] == "active", text


def test_store_with_a_repository_of_its_own_is_refused(deployment: Deployment) -> None:
    images.open_repository(PosixOrigin(str(deployment.folder / "near")))
    status, text = deployment("origin", "create")
    assert status != 0
    assert "near is not empty: there is format" in text


def test_home_without_a_repository_is_refused(deployment: Deployment) -> None:
    deployment.configure("near", "far")
    assert deployment("origin", "create")[0] != 0
    assert not list(PosixOrigin(str(deployment.folder / "near")).list_refs())


def test_origin_of_one_store_has_no_members(deployment: Deployment) -> None:
    deployment.config.write_text(f"[origin]\nurl = posix://{deployment.folder / 'home'}\n")
    status, text = deployment("origin", "list")
    assert status != 0
    assert "the origin is one store" in text
    with pytest.raises(exception.ConfigurationError):
        ReplicatedOrigin(deployment.addresses, open_driver)
