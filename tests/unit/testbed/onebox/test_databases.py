"""The cache of what a one-box begins with: what is kept, when it is put in place."""

import pathlib
from collections.abc import Sequence
from typing import cast

import pytest

from testbed import processes
from testbed.onebox import environment
from testbed.onebox.databases import Databases
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host


class NoHost:
    """A controller on which nothing may run."""


class Box:
    """The databases of a one-box, with files in the place of MariaDB's."""

    def __init__(self, path: pathlib.Path, cache: pathlib.Path) -> None:
        directory = OneBoxDirectory(pathlib.Path("/nowhere"))
        directory.hosts, directory.cache = path / "hosts", cache
        self.state = directory.host("controller")
        self.state.mkdir(parents=True)
        cache.mkdir(exist_ok=True)
        self.databases = Databases(directory, cast("Host", NoHost()))

    def fill(self, text: str) -> None:
        for name in ("mariadb/ibdata1", "keystone/fernet-keys/0", "glance/images/guest"):
            (self.state / name).parent.mkdir(parents=True, exist_ok=True)
            (self.state / name).write_text(text)

    def content(self) -> dict[str, str]:
        files = [path for path in self.state.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.state)): path.read_text() for path in files}


@pytest.fixture(autouse=True)
def told_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB may not be installed here."""
    run = processes.run

    def run_but_mariadb(argv: Sequence[str], *, timeout_s: float = 60.0) -> str:
        if argv[0] == "/usr/sbin/mariadbd":
            return "mariadbd Ver 10.11"
        return run(argv, timeout_s=timeout_s)

    monkeypatch.setattr(processes, "run", run_but_mariadb)


def test_what_was_completed_is_restored_in_another_one_box(tmp_path: pathlib.Path) -> None:
    one, two = Box(tmp_path / "one", tmp_path / "cache"), Box(tmp_path / "two", tmp_path / "cache")
    one.fill("filled")
    order: list[str] = []
    one.databases.complete(lambda: order.append("stop"), lambda: order.append("start"))
    assert order == ["stop", "start"]
    assert one.databases.are_complete
    one.fill("used since")
    two.databases.restore()
    assert two.databases.are_complete
    assert two.content() == {
        "mariadb/ibdata1": "filled",
        "keystone/fernet-keys/0": "filled",
        "glance/images/guest": "used since",  # linked: Glance never changes an image's data
        "databases-complete": "",
    }


def test_incomplete_databases_are_thrown_away(tmp_path: pathlib.Path) -> None:
    """Databases that a run filled and that ended half-way have unknown content."""
    box = Box(tmp_path / "one", tmp_path / "cache")
    box.fill("half")
    box.databases.restore()
    assert not box.databases.are_complete
    assert box.content() == {}


def test_complete_databases_are_left_alone(tmp_path: pathlib.Path) -> None:
    box = Box(tmp_path / "one", tmp_path / "cache")
    box.fill("filled")
    box.databases.complete(lambda: None, lambda: None)
    box.fill("used since")
    before = box.content()
    box.databases.restore()
    assert box.content() == before


def test_other_releases_have_another_cache(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Box(tmp_path / "one", tmp_path / "cache")
    box.fill("filled")
    box.databases.complete(lambda: None, lambda: None)
    before = box.databases.cached
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("nova==35.0.0\n")
    monkeypatch.setattr(environment, "CONSTRAINTS", constraints)
    assert box.databases.cached != before
    box.databases.complete(lambda: None, lambda: None)
    # Only the newest is kept.
    assert [path.name for path in box.databases.cached.parent.iterdir()] == [
        box.databases.cached.name
    ]
