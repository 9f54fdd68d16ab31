"""'acstor origin promote' on directories: said first, confirmed, and never beside a home."""

import json
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


def code_in(text: str) -> str:
    """Return the code that a refused promotion wants confirmed."""
    return text.split("--confirm ")[1].split()[0].rstrip(".,;'")


def test_loss_is_said_and_confirmed_first(deployment: Deployment) -> None:
    lose_home(deployment)
    report = str(deployment.folder / "lost")
    status, text = deployment("origin", "promote", "near", "--report", report)
    assert status != 0
    assert "images: 1 kept, 0 lost" in text
    assert "was not confirmed" in text
    assert deployment("origin", "promote", "near", "--confirm", "0123456789ab")[0] != 0
    deployment.configure("near", "far")
    assert deployment("origin", "list")[0] != 0, "nothing is changed"
    deployment.configure(*NAMES)
    said = deployment.run("origin", "promote", "near", "--confirm", code_in(text))
    assert "member near is the home of origin" in said
    assert "repeat this" not in said
    assert json.loads((deployment.folder / "lost").read_text())["members"] == ["near", "far"]
    deployment.configure("near", "far")
    rows = deployment.list()
    assert (rows["near"]["Home"], rows["near"]["State"]) == (True, "active")
    assert (rows["home"]["State"], rows["far"]["State"]) == ("failed", "active")
    deployment.lead()
    assert "home is removed" in deployment.run("origin", "remove", "home")
    repository = Repository.open(PosixOrigin(str(deployment.folder / "near")))
    assert images.read_back(repository, 1) == images.disk(1, 2, 3)


def test_home_that_answers_is_not_lost(deployment: Deployment) -> None:
    for more in ((), ("--confirm", "0123456789ab")):
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
    said = deployment.run("origin", "promote", "near", "--confirm", code_in(text))
    assert "far does not follow yet: repeat this" in said
    away.rename(far)
    said = deployment.run("origin", "promote", "near")
    assert "does not follow" not in said
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


def test_another_loss_is_not_what_was_confirmed(deployment: Deployment) -> None:
    near, far = deployment.folder / "near", deployment.folder / "far"
    for pack in deployment.packs("near"):
        (near / pack).unlink()
    lose_home(deployment)
    _, text = deployment("origin", "promote", "near")
    assert "images: 1 kept, 0 lost" in text
    far.rename(deployment.folder / "away")
    status, said = deployment("origin", "promote", "near", "--confirm", code_in(text))
    assert status != 0
    assert "far is not used" in said
    assert "images: 0 kept, 1 lost" in said


def test_home_that_is_not_mounted_is_named(deployment: Deployment) -> None:
    home = deployment.folder / "home"
    home.rename(deployment.folder / "elsewhere")
    home.mkdir()
    status, text = deployment("origin", "promote", "near")
    assert status != 0
    assert "home is not used: it is not the member of that name" in text


def test_there_is_no_second_home(deployment: Deployment) -> None:
    far, away = deployment.folder / "far", deployment.folder / "away"
    lose_home(deployment)
    far.rename(away)
    _, text = deployment("origin", "promote", "near")
    deployment.run("origin", "promote", "near", "--confirm", code_in(text))
    away.rename(far)
    status, text = deployment("origin", "promote", "far")
    assert status != 0
    assert "'acstor origin promote near'" in text


def test_only_one_that_is_left_is_an_origin_of_one_store(tmp_path: pathlib.Path) -> None:
    alone = Deployment(tmp_path)
    alone.run("origin", "create")
    for _ in range(2):
        alone.lead()
    lose_home(alone)
    _, text = alone("origin", "promote", "near")
    said = alone.run("origin", "promote", "near", "--confirm", code_in(text))
    assert "make it [origin] url" in said
    alone.config.write_text(f"[origin]\nurl = posix://{tmp_path / 'near'}\n")
    assert images.image_id(1) in alone.run("image", "list")
