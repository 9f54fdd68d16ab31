"""The commands on volumes that are given up, against a data plane that notes what it is asked."""

import io
import json
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cliff import command

from acstor.cli import app
from acstor.cli import volume_aside as commands
from acstor.control.server import AdminServer

VOLUME = str(uuid.UUID(int=7))
NAME = f"{VOLUME}.1"
ASIDE = {
    "name": NAME,
    "volume": VOLUME,
    "why": "another host owns the volume",
    "put_aside_at": 1700000000.5,
    "bytes": 3 << 20,
    "path": f"/var/lib/acstor/volumes/aside/{NAME}",
}
COMMANDS: dict[str, type[command.Command]] = {
    "volume give-up": commands.GiveUpVolume,
    "volume aside list": commands.ListAside,
    "volume aside restore": commands.RestoreAside,
    "volume aside remove": commands.RemoveAside,
    "volume aside export": commands.ExportAside,
}


class DataPlane:
    """``status`` is what the volume's status says; ``asked`` what it was asked to change."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.status: dict[str, Any] = {"volume": VOLUME, "state": "opening", "error": "no room"}
        self.asked: list[tuple[str, Any]] = []
        self._config = folder / "acstor.conf"
        self._config.write_text(
            f"[origin]\nurl = posix://{folder}\n[dataplane]\nadmin_socket = {folder}/admin.sock\n"
        )
        change = {
            "volume.give_up": {"aside": ASIDE},
            "volume.remove_aside": ASIDE,
            "volume.restore_aside": {"done": True},
            "volume.export_aside": {"path": "/x.raw", "size_bytes": 1 << 30},
        }
        methods: dict[str, Callable[[Any], object]] = {
            name: self._method(name, answer) for name, answer in change.items()
        }
        methods["volume.status"] = lambda params: self.status
        methods["volume.list_aside"] = lambda params: [ASIDE]
        self.server = AdminServer(f"{folder}/admin.sock", methods)
        self.error = ""

    def _method(self, name: str, answer: object) -> Callable[[Any], object]:
        def method(params: Any) -> object:
            self.asked.append((name, params))
            return answer

        return method

    def run(self, *arguments: str) -> tuple[int, str]:
        output, error = io.StringIO(), io.StringIO()
        application = app.Application(stdout=output, stderr=error)
        for name, target in COMMANDS.items():
            application.command_manager.add_command(name, target)
        status = application.run(["--config-file", str(self._config), *arguments])
        self.error = error.getvalue()
        return status, output.getvalue()


@pytest.fixture
def data_plane(tmp_path: pathlib.Path) -> Iterator[DataPlane]:
    made = DataPlane(tmp_path)
    made.server.start()
    yield made
    made.server.stop()


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_giving_up_names_what_is_lost_and_wants_the_id(
    data_plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("", "yes\n", "y\n"):
        typed(monkeypatch, text)
        assert data_plane.run("volume", "give-up", VOLUME)[0] == 3
        assert data_plane.asked == []
    assert "an unknown number of bytes" in data_plane.error
    assert "no room" in data_plane.error
    typed(monkeypatch, f"{VOLUME}\n")
    status, output = data_plane.run("volume", "give-up", VOLUME, "-f", "json")
    assert status == 0
    assert json.loads(output)["path"] == ASIDE["path"]
    assert data_plane.asked == [("volume.give_up", {"volume": VOLUME})]


def test_giving_up_tells_how_much_is_not_pushed_and_how_old_it_is(data_plane: DataPlane) -> None:
    data_plane.status |= {"state": "closing", "dirty_bytes": 5 << 20, "recovery_point_age_s": 90.4}
    assert data_plane.run("volume", "give-up", VOLUME, "--yes")[0] == 0
    assert "5.0 MiB" in data_plane.error
    assert "90 s ago" in data_plane.error


def test_logs_are_listed(data_plane: DataPlane) -> None:
    (row,) = json.loads(data_plane.run("volume", "aside", "list", "-f", "json")[1])
    assert row == {**ASIDE, "put_aside_at": "2023-11-14T22:13:20+00:00"}
    assert "3.0 MiB" in data_plane.run("volume", "aside", "list")[1]


def test_log_is_removed_when_its_name_is_typed(
    data_plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_plane.run("volume", "aside", "remove", f"{VOLUME}.2", "--yes")[0] == 4
    typed(monkeypatch, VOLUME)
    assert data_plane.run("volume", "aside", "remove", NAME)[0] == 3
    assert data_plane.asked == []
    assert "another host owns the volume" in data_plane.error
    typed(monkeypatch, NAME)
    assert data_plane.run("volume", "aside", "remove", NAME)[0] == 0
    assert data_plane.asked == [("volume.remove_aside", {"name": NAME})]


def test_log_is_put_back(data_plane: DataPlane) -> None:
    assert data_plane.run("volume", "aside", "restore", NAME)[0] == 0
    assert data_plane.asked == [("volume.restore_aside", {"name": NAME})]


def test_log_is_exported_to_a_file_of_this_directory(data_plane: DataPlane) -> None:
    assert data_plane.run("volume", "aside", "export", NAME, "x.raw")[0] == 0
    path = str(pathlib.Path.cwd() / "x.raw")
    assert data_plane.asked == [("volume.export_aside", {"name": NAME, "path": path})]
