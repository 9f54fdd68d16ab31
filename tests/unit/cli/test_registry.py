"""``acstor registry`` and the state in ``acstor image list``."""

import io
import json
import pathlib
from collections.abc import Callable

import pytest

from acstor.cli.app import Application
from acstor.origin.posix import PosixOrigin
from acstor.repository.images.image_registry import Entry, EntryState, ImageRegistry, registry_ref
from acstor.repository.repository import Repository
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, register

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def origin(tmp_path: pathlib.Path) -> PosixOrigin:
    (tmp_path / "origin").mkdir()
    Repository.init(PosixOrigin(f"{tmp_path}/origin"), CHUNK_SIZE)
    return PosixOrigin(str(tmp_path / "origin"))


@pytest.fixture
def entries(origin: PosixOrigin) -> ImageRegistry:
    found = ImageRegistry(origin)
    for number, entry in enumerate(
        (
            Entry(EntryState.REGISTERED, name="debian", size_bytes=2 << 30, pin=True),
            Entry(
                EntryState.FAILED, name="bad", reason="no room", attempts=4,
                retry_at="2026-11-21T14:06:00+00:00",
            ),
            Entry(EntryState.LEFT, name="kernel", reason="it is a kernel"),
        )
    ):  # fmt: skip
        found.replace(image_id(number), None, entry)
    return found


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


def test_entries_are_listed_by_state(run: Run, entries: ImageRegistry) -> None:
    status, out, _ = run("registry", "list", "-f", "json")
    assert status == 0
    rows = json.loads(out)
    assert [row["state"] for row in rows] == ["failed", "left", "registered"]
    assert rows[0]["reason"] == "no room"
    assert rows[0]["retry_at"] == "2026-11-21T14:06:00+00:00"
    assert rows[2]["size_bytes"] == 2 << 30
    out = run("registry", "list", "--state", "left", "--state", "failed", "-f", "json")[1]
    assert {row["name"] for row in json.loads(out)} == {"bad", "kernel"}
    assert "2.0 GiB" in run("registry", "list")[1]


def test_unreadable_entry_is_named_and_the_others_are_listed(
    run: Run, entries: ImageRegistry, origin: PosixOrigin
) -> None:
    origin.swap_ref(registry_ref(image_id(9)), None, b"{")
    status, out, err = run("registry", "list", "-f", "json")
    assert status == 7
    assert len(json.loads(out)) == 3
    assert image_id(9) in err


def test_entry_is_shown(run: Run, entries: ImageRegistry) -> None:
    shown = json.loads(run("registry", "show", image_id(1), "-f", "json")[1])
    assert (shown["state"], shown["attempts"]) == ("failed", 4)
    status, _, err = run("registry", "show", image_id(7))
    assert status == 4
    assert "the image registry has no image" in err
    assert run("registry", "show", "nonsense")[0] == 3


def test_retry_clears_the_failure(run: Run, entries: ImageRegistry) -> None:
    for number in (1, 2):
        status, out, _ = run("registry", "retry", image_id(number))
        assert status == 0
        assert "waits for the registrar" in out
        listed = entries.find(image_id(number))
        assert listed is not None
        entry = listed.entry
        assert (entry.state, entry.attempts, entry.retry_at) == (EntryState.WAITING, 0, None)
    status, _, err = run("registry", "retry", image_id(0))
    assert status == 3
    assert "is registered, there is nothing to retry" in err


def test_registered_images_are_listed_with_their_state(
    run: Run, origin: PosixOrigin, entries: ImageRegistry
) -> None:
    repository = Repository.init(origin, CHUNK_SIZE)
    register(repository, 0, disk(1, 2))
    register(repository, 5, disk(3))
    origin.swap_ref(registry_ref(image_id(6)), None, b"{")
    register(repository, 6, disk(4))
    rows = json.loads(run("image", "list", "-f", "json")[1])
    assert {row["id"]: row["state"] for row in rows} == {
        image_id(0): "registered", image_id(5): "", image_id(6): "unknown",
    }  # fmt: skip
