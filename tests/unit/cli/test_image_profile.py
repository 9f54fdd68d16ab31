"""``acstor image profile``."""

import io
import json
import pathlib
from collections.abc import Callable

import pytest

from acstor.cli.app import Application
from acstor.origin.posix import PosixOrigin
from acstor.repository.images import boot_profile
from acstor.repository.images.boot_kinds import Boot
from acstor.repository.repository import Repository
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, register

Run = Callable[..., tuple[int, str, str]]
IMAGE = image_id(1)
CHUNKS = 40


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> PosixOrigin:
    (tmp_path / "origin").mkdir()
    repository = Repository.init(PosixOrigin(f"{tmp_path}/origin"), CHUNK_SIZE)
    register(repository, 1, disk(*range(1, CHUNKS + 1)))
    return PosixOrigin(str(tmp_path / "origin"))


@pytest.fixture
def run(tmp_path: pathlib.Path, origin: PosixOrigin) -> Run:
    config = tmp_path / "acstor.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {tmp_path}\n[origin]\nurl = posix://{tmp_path}/origin\n"
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        status = Application(out, err).run(["--config-file", str(config), *arguments])
        return status, out.getvalue(), err.getvalue()

    return run


def test_kinds_are_listed_with_what_hosts_use(run: Run, origin: PosixOrigin) -> None:
    boots = [
        Boot("h1", 1, tuple(range(20))),
        Boot("h2", 1, tuple(range(20))),
        Boot("h2", 2, tuple(range(22, 40))),
    ]
    boot_profile.add(origin, IMAGE, CHUNKS, boots)
    status, out, _ = run("image", "profile", IMAGE, "-f", "json")
    assert status == 0
    assert json.loads(out) == [
        {
            "kind": 1,
            "boots": 1,
            "hosts": ["h2"],
            "chunks": 18,
            "bytes": 18 * CHUNK_SIZE,
            "used": False,
        },
        {
            "kind": 2,
            "boots": 2,
            "hosts": ["h1", "h2"],
            "chunks": 20,
            "bytes": 20 * CHUNK_SIZE,
            "used": True,
        },
    ]
    _, out, _ = run("image", "profile", IMAGE)
    assert all(name in out for name in ("h1", "h2", "kind", "used"))


def test_image_that_nobody_booted_has_no_kinds(run: Run) -> None:
    status, out, _ = run("image", "profile", IMAGE, "-f", "json")
    assert (status, json.loads(out)) == (0, [])


def test_unknown_image_is_an_error(run: Run) -> None:
    status, _, err = run("image", "profile", image_id(7))
    assert status != 0
    assert image_id(7) in err
