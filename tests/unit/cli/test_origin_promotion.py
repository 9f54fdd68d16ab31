"""'acstor origin promote' on directories: said first, confirmed, and never beside a home."""

import pathlib
import shutil

import pytest

from acstor.origin.posix import PosixOrigin
from acstor.repository.repository import Repository
from tests.unit.cli.test_origin import NAMES, Deployment
from tests.unit.repository import images


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Deployment:
    """Three members that have all of one image."""
    made = Deployment(tmp_path)
    made.configure(*NAMES)
    made.run("origin", "create")
    for _ in range(2):
        made.lead()
    return made


def lose_home(deployment: Deployment) -> None:
    shutil.rmtree(deployment.folder / "home")


def time_in(text: str) -> str:
    """Return the time that a refused promotion wants confirmed."""
    return text.split("--as-of ")[1].split()[0].rstrip(".,;'")


def test_loss_is_said_and_confirmed_first(deployment: Deployment) -> None:
    lose_home(deployment)
    status, text = deployment("origin", "promote", "near")
    assert status != 0
    assert "images: 1 kept, 0 lost" in text
    assert "was not confirmed" in text
    assert deployment("origin", "promote", "near", "--as-of", "2001-01-01T00:00:00Z")[0] != 0
    deployment.configure("near", "far")
    assert deployment("origin", "list")[0] != 0, "nothing is changed"
    deployment.configure(*NAMES)
    said = deployment.run("origin", "promote", "near", "--as-of", time_in(text))
    assert "member near is the home of origin" in said
    assert "repeat this" not in said
    deployment.configure("near", "far")
    rows = deployment.list()
    assert (rows["near"]["Home"], rows["near"]["State"]) == (True, "active")
    assert (rows["home"]["State"], rows["far"]["State"]) == ("failed", "active")
    deployment.lead()
    assert "home is removed" in deployment.run("origin", "remove", "home")
    repository = Repository.open(PosixOrigin(str(deployment.folder / "near")))
    assert images.read_back(repository, 1) == images.disk(1, 2, 3)


def test_home_that_answers_is_not_lost(deployment: Deployment) -> None:
    for more in ((), ("--as-of", "unknown")):
        status, text = deployment("origin", "promote", "near", *more)
        assert status != 0
        assert "it is not lost" in text
    assert deployment.list()["home"]["Home"]


def test_member_that_cannot_be_reached_follows_when_the_command_is_repeated(
    deployment: Deployment,
) -> None:
    lose_home(deployment)
    far, away = deployment.folder / "far", deployment.folder / "away"
    far.rename(away)
    _, text = deployment("origin", "promote", "near")
    said = deployment.run("origin", "promote", "near", "--as-of", time_in(text))
    assert "far could not be reached: repeat this once it can" in said
    away.rename(far)
    said = deployment.run("origin", "promote", "near")
    assert "could not be reached" not in said
    deployment.configure("near", "far")
    deployment.lead()
    assert deployment.list()["far"]["Problem"] == ""


@pytest.mark.parametrize("name", ["other", "far"])
def test_member_that_is_not_there_is_refused(deployment: Deployment, name: str) -> None:
    lose_home(deployment)
    shutil.rmtree(deployment.folder / "far")
    status, text = deployment("origin", "promote", name)
    assert status != 0
    assert "cannot be reached" in text
