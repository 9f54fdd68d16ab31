"""'acstor image revoke' and 'acstor revocation ...' on a directory, with made-up agents."""

import contextlib
import io
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.cli import app, revocation
from acstor.cluster import member_list
from acstor.cluster.member import Member
from acstor.origin.posix import PosixOrigin
from acstor.repository.images import revocation as records
from acstor.repository.repository import Repository
from acstor.revocation import beginning, proof
from acstor.revocation.answers import PageAnswer
from testbed.fixtures.usage_records import write_usage
from tests.unit.repository import images

IMAGE = images.image_id(1)


def member(name: str) -> Member:
    return Member(name, "127.0.0.1:7420", "127.0.0.1:9471", 1 << 30, "1", "", False)


class Deployment:
    """The command line over one origin; hosts answer what the test says."""

    def __init__(self, folder: pathlib.Path) -> None:
        (folder / "origin").mkdir()
        self.config = folder / "acstor.conf"
        self.config.write_text(
            "[DEFAULT]\nhost = here\ntransport_url = fake://\n"
            f"state_path = {folder / 'state'}\n[origin]\nurl = posix://{folder / 'origin'}\n"
        )
        self.origin = PosixOrigin(str(folder / "origin"))
        self.repository = images.open_repository(self.origin)
        images.register(self.repository, 1, images.disk(1, 2, 3))
        images.register(self.repository, 2, images.disk(3, 4))
        self.members = ["h1"]
        self.held: dict[str, int] = {}
        self.away: set[str] = set()
        self.error = ""

    def call(self, host: str, method: str, **arguments: Any) -> object:
        assert Repository.open(self.origin).find_image(IMAGE) is None, "it is withdrawn first"
        if host in self.away:
            raise exception.DeadlineError(f"host {host} did not answer in 60 s")
        held = self.held.get(host, 0)
        if method == proof.DROP:
            self.held[host] = 0
        return PageAnswer(2, held, self.held.get(host, 0), False).to_answer()

    def __call__(self, *arguments: str) -> tuple[int, str]:
        output, error = io.StringIO(), io.StringIO()
        application = app.Application(stdout=output, stderr=error)
        for name, command in (
            ("image revoke", revocation.RevokeImage),
            ("revocation list", revocation.ListRevocations),
            ("revocation show", revocation.ShowRevocation),
            ("revocation forget", revocation.ForgetRevocation),
        ):
            application.command_manager.add_command(name, command)
        status = application.run(["--config-file", str(self.config), *arguments])
        self.error = error.getvalue()
        return status, output.getvalue()

    def rows(self, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
        status, output = self(*arguments, "-f", "json")
        rows = json.loads(output) if output else []
        return status, {str(row.get("Host", row.get("Image"))): row for row in rows}


@pytest.fixture
def deployment(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    made = Deployment(tmp_path)

    @contextlib.contextmanager
    def agents(conf: object) -> Iterator[Deployment]:
        yield made

    monkeypatch.setattr(revocation, "_agents", agents)
    monkeypatch.setattr(
        member_list,
        "list_members",
        lambda conf: {name: member(name) for name in made.members},
    )
    return made


def test_image_is_withdrawn_and_its_absence_proven(deployment: Deployment) -> None:
    deployment.held["h1"] = 2
    write_usage(deployment.origin, "left")
    status, rows = deployment.rows("image", "revoke", IMAGE)
    assert status == 0, deployment.error
    assert {host: row["State"] for host, row in rows.items()} == {"h1": "absent", "left": "absent"}
    assert (rows["h1"]["Held before"], rows["h1"]["Dropped"], rows["h1"]["Held after"]) == (2, 2, 0)
    assert "2 chunks are its own, 1 are others'" in deployment.error
    status, rows = deployment.rows("revocation", "list")
    assert (rows[IMAGE]["Hosts"], rows[IMAGE]["Proven"]) == (2, 2)


def test_host_that_is_away_makes_the_proof_incomplete_until_it_answers(
    deployment: Deployment,
) -> None:
    deployment.members = ["h1", "h2"]
    deployment.held = {"h1": 2, "h2": 1}
    deployment.away = {"h2"}
    status, rows = deployment.rows("image", "revoke", IMAGE)
    assert status == 5
    assert (rows["h1"]["State"], rows["h2"]["State"]) == ("absent", "unreachable")
    assert "h2 (unreachable)" in deployment.error
    deployment.members = ["h1"]  # it is remembered, also when it is no member any more
    assert deployment.rows("revocation", "show", IMAGE)[1]["h2"]["State"] == "unreachable"
    assert deployment("revocation", "forget", IMAGE)[0] == 5
    deployment.away = set()
    status, rows = deployment.rows("image", "revoke", IMAGE)
    assert status == 0, deployment.error
    assert (rows["h2"]["State"], rows["h2"]["Held before"]) == ("absent", 1)
    assert rows["h1"]["Dropped"] == 2, "what was discarded before stays known"
    assert deployment("revocation", "forget", IMAGE)[0] == 0
    assert records.find(deployment.origin, IMAGE) is None


def test_host_that_is_gone_for_good_is_left_out(deployment: Deployment) -> None:
    deployment.members, deployment.away = ["h1", "h2"], {"h2"}
    status, rows = deployment.rows("image", "revoke", IMAGE, "--exclude", "h2")
    assert status == 0, deployment.error
    assert rows["h2"]["State"] == "excluded"


def test_image_in_use_is_revoked_only_by_force(deployment: Deployment) -> None:
    write_usage(deployment.origin, "h1", [IMAGE])
    status, _ = deployment("image", "revoke", IMAGE)
    assert status == 8
    assert "is in use on h1" in deployment.error
    assert deployment.repository.find_image(IMAGE) is not None
    assert deployment("image", "revoke", IMAGE, "--force")[0] == 0


def test_image_that_is_unknown_is_told(deployment: Deployment) -> None:
    assert deployment("image", "revoke", images.image_id(9))[0] == 4
    for command in ("show", "forget"):
        assert deployment("revocation", command, IMAGE)[0] == 4
        assert "is not revoked" in deployment.error


def test_image_that_was_registered_again_meanwhile_is_told(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Repository, "find_image", lambda self, image_id: object())
    monkeypatch.setattr(
        beginning,
        "begin",
        lambda repository, image, shown: records.write(
            repository.origin, records.Revocation(image, "leaked", "", 0), [bytes(32), bytes(32)]
        ),
    )
    monkeypatch.setattr(Deployment, "call", lambda *_, **__: PageAnswer(2, 0, 0, False).to_answer())
    assert deployment("image", "revoke", IMAGE)[0] == 8
    assert "registered again" in deployment.error
