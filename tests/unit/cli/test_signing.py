"""The commands on the keys of signed images, by the program itself, on a directory."""

import json
import pathlib

import pytest

from tests.unit.repository.test_commands import IMAGE_ID, Program

OTHER = "00000000-0000-4000-8000-000000000001"


class Deployment(Program):
    """A program with a directory of trusted keys."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.keys = folder / "keys"
        self.keys.mkdir()
        self.configure()
        self.json("repository", "init")

    def configure(self, signing: str | None = None, required: str = "false") -> None:
        base = self.config.read_text().partition("[repository]")[0]
        key = f"signing_key = {self.folder / signing}.pem\n" if signing else ""
        self.config.write_text(
            f"{base}[repository]\npublic_keys = {self.keys}\nrequire_signatures = {required}\n{key}"
        )

    def keygen(self, name: str) -> str:
        made = self.json("repository", "keygen", str(self.folder / f"{name}.pem"))
        assert made["public_key"] == str(self.folder / f"{name}.pub")
        return str(made["key"])

    def trust(self, *names: str) -> None:
        for path in self.keys.iterdir():
            path.unlink()
        for name in names:
            content = (self.folder / f"{name}.pub").read_bytes()
            (self.keys / f"{name}.pub").write_bytes(content)

    def signature(self) -> str:
        (listed,) = self.json("image", "list")
        return str(listed["signature"])


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Deployment:
    return Deployment(tmp_path)


def test_life_of_a_key(deployment: Deployment) -> None:
    """As the guide has it: begin, rotate, revoke."""
    deployment.json("image", "register", deployment.image("image"), "--id", IMAGE_ID)
    assert deployment.signature() == "unsigned"
    first = deployment.keygen("first")
    deployment.trust("first")
    deployment.configure("first")
    assert deployment("repository", "sign", "-f", "json")[0] == 7, "unsigned: not on its own"
    assert "1 records were not signed" in deployment.error
    signed = deployment.json("repository", "sign", "--adopt-unsigned")
    assert (signed["key"], signed["signed"], signed["refused"]) == (first, 1, [])
    assert deployment.signature() == "verified"
    deployment.configure("first", required="true")
    deployment.keygen("second")
    deployment.trust("first", "second")
    deployment.configure("second", required="true")
    assert deployment.json("repository", "sign")["signed"] == 1
    deployment.trust("second")
    assert deployment.signature() == "verified"
    shown = deployment.json("image", "show", IMAGE_ID)
    assert (shown["signature"], shown["key"] == first) == ("verified", False)
    deployment.trust()
    assert deployment.signature() == "unverified: unknown_key"


def test_images_are_registered_with_the_key(deployment: Deployment) -> None:
    deployment.keygen("first")
    deployment.trust("first")
    deployment.configure("first", required="true")
    path = deployment.image("image")
    deployment.json("image", "register", path, "--id", IMAGE_ID)
    assert deployment.signature() == "verified"
    deployment.configure(None, required="true")
    deployment("image", "remove", IMAGE_ID)
    deployment.json("image", "register", path, "--id", OTHER)
    assert deployment.signature() == "unverified: unsigned"


def test_refusals_are_listed(deployment: Deployment) -> None:
    deployment.keygen("first")
    deployment.keygen("thief")
    deployment.configure("thief")
    deployment.json("image", "register", deployment.image("image"), "--id", IMAGE_ID)
    deployment.configure("first")
    status, output = deployment("repository", "sign", "-f", "json")
    (refused,) = json.loads(output)["refused"]
    assert (status, refused["image"]) == (7, IMAGE_ID)
    assert "which is not trusted here" in refused["why"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["repository", "sign"], "there is no key to sign with"),
        (["repository", "keygen", "key.pub"], "is the name of a public key"),
        (["repository", "keygen", "/missing/key.pem"], "No such file"),
    ],
)
def test_mistakes_are_told(deployment: Deployment, arguments: list[str], text: str) -> None:
    status, output = deployment(*arguments)
    assert status != 0
    assert output == ""
    assert text in deployment.error


def test_key_that_others_can_read_signs_nothing(deployment: Deployment) -> None:
    deployment.keygen("first")
    deployment.configure("first")
    (deployment.folder / "first.pem").chmod(0o640)
    path = deployment.image("image")
    for arguments in (["repository", "sign"], ["image", "register", path, "--id", IMAGE_ID]):
        assert deployment(*arguments)[0] == 3
        assert "has mode 0640, others may read it; chmod 0600" in deployment.error
    assert deployment.json("image", "list") == []


def test_key_is_not_written_over(deployment: Deployment) -> None:
    deployment.keygen("first")
    before = (deployment.folder / "first.pem").read_bytes()
    assert deployment("repository", "keygen", str(deployment.folder / "first.pem"))[0] == 3
    assert (deployment.folder / "first.pem").read_bytes() == before
