"""The commands on volumes and snapshots, run by the program itself on a directory."""

import io
import json
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from cliff import command

from acstor.cli import app
from acstor.cli import volume as commands
from acstor.control.server import AdminServer
from acstor.origin.posix import PosixOrigin
from acstor.repository import layout
from acstor.repository.repository import Format, Repository
from acstor.repository.volumes.durability import Durability, DurabilityClass, Region
from acstor.repository.volumes.log_object import check_log_object
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.volumes.log_objects import log_object

HOME, SCRATCH, SNAPSHOT = (str(uuid.UUID(int=number)) for number in (7, 8, 9))


class Program:
    """The command line over one origin."""

    def __init__(self, folder: pathlib.Path) -> None:
        (folder / "origin").mkdir()
        self.origin = PosixOrigin(str(folder / "origin"))
        self.socket = str(folder / "admin.sock")
        self.config = folder / "acstor.conf"
        self.config.write_text(
            f"[origin]\nurl = posix://{folder / 'origin'}\n"
            f"[dataplane]\nadmin_socket = {self.socket}\n"
        )
        self.error = ""

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """Run a command; return its exit status and its output."""
        output, error = io.StringIO(), io.StringIO()
        application = app.Application(stdout=output, stderr=error)
        targets: dict[str, type[command.Command]] = {
            "volume list": commands.ListVolumes,
            "volume show": commands.ShowVolume,
            "volume status": commands.ShowVolumeStatus,
            "volume fold": commands.FoldVolume,
            "volume settle": commands.SettleVolume,
            "snapshot list": commands.ListSnapshots,
        }
        for name, target in targets.items():
            application.command_manager.add_command(name, target)
        status = application.run(["--config-file", str(self.config), *arguments])
        self.error = error.getvalue()
        return status, output.getvalue()

    def json(self, *arguments: str) -> Any:
        status, output = self(*arguments, "-f", "json")
        assert status == 0, self.error
        return json.loads(output)


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Program:
    """Two volumes: one owned, with a snapshot, and one that nobody uses."""
    made = Program(tmp_path)
    store = VolumeStore(Repository.init(made.origin))
    swap = Region(DurabilityClass.NONE, partition="swap")
    store.create(NewVolume(HOME, 1 << 30, Durability(regions=(swap,)), "home", {"a": "b"}))
    store.create(NewVolume(SCRATCH, 1 << 20, Durability(DurabilityClass.NONE), "scratch"))
    store.allow_host(HOME, "compute-1")
    record = store.acquire(HOME, "compute-1").after
    content = log_object(HOME, 1, record.next)
    made.origin.put_if_absent(layout.log_key(HOME, 1, record.next), [content])
    store.release(HOME, "compute-1", 1, record.next)
    store.snapshot(HOME, SNAPSHOT, name="before")
    record = store.acquire(HOME, "compute-1").after
    store.record_takeover(HOME, "compute-1", 2, last=record.next - 1, seal=record.next)
    return made


def test_volumes_are_listed_for_people_and_programs(program: Program) -> None:
    home, scratch = program.json("volume", "list")
    assert home == {
        "id": HOME, "name": "home", "size": 1 << 30, "state": "owned", "owner": "compute-1",
        "hosts": "compute-1", "durability": "write-through and 1 regions", "log_objects": 1,
    }  # fmt: skip
    assert (scratch["state"], scratch["durability"], scratch["owner"]) == ("available", "none", "")
    status, output = program("volume", "list")
    assert status == 0
    assert "1.0 GiB" in output


def test_damaged_record_does_not_hide_the_others(program: Program) -> None:
    for name in (layout.volume_ref(SCRATCH), layout.snapshot_ref(SNAPSHOT)):
        ref = program.origin.get_ref(name)
        assert ref is not None
        program.origin.swap_ref(name, ref.token, b"damage")
    program.origin.swap_ref("volumes/no-uuid", None, b"{}")
    states = {row["id"]: row["state"] for row in program.json("volume", "list")}
    assert states == {HOME: "owned", SCRATCH: "unreadable", "no-uuid": "unreadable"}
    (row,) = program.json("snapshot", "list")
    assert (row["id"], row["volume"]) == (SNAPSHOT, "unreadable")


def test_volume_is_shown_with_everything(program: Program) -> None:
    shown = program.json("volume", "show", HOME)
    assert (shown["epoch"], shown["snapshots"], shown["metadata"]) == (2, 1, {"a": "b"})
    assert (shown["durability"], shown["period_s"]) == ("write-through", 30.0)
    assert shown["regions"] == [{"class": "none", "partition": "swap"}]
    assert "swap=none" in program("volume", "show", HOME)[1]
    (logs,) = shown["logs"]
    assert (logs["volume"], logs["epoch"]) == (HOME, 1)
    assert program("volume", "show", str(uuid.UUID(int=99)))[0] == 4
    assert "'acstor volume list'" in program.error
    assert program("volume", "show", "home")[0] == 3


def test_snapshots_are_listed(program: Program) -> None:
    (row,) = program.json("snapshot", "list")
    assert (row["id"], row["volume"], row["name"]) == (SNAPSHOT, HOME, "before")
    assert (row["size"], row["log_objects"]) == (1 << 30, 1)
    assert program.json("snapshot", "list", "--volume", HOME) == [row]
    assert program.json("snapshot", "list", "--volume", SCRATCH) == []
    assert program("snapshot", "list", "--volume", "home")[0] == 3


def test_volume_of_a_lost_host_is_settled(program: Program) -> None:
    assert program("volume", "settle", HOME)[0] == 8, "it may be attached there"
    assert "compute-1" in program.error
    store = VolumeStore(Repository.open(program.origin))
    record = store.get(HOME).record
    content = log_object(HOME, 2, record.next)
    program.origin.put_if_absent(layout.log_key(HOME, 2, record.next), [content])
    store.disallow_host(HOME, "compute-1")
    settled = program.json("volume", "settle", HOME)
    assert settled == {
        "id": HOME, "former_owner": "compute-1", "state": "available", "log_objects": 2,
    }  # fmt: skip
    # The data plane's own seal is in the next place: the lost owner can store nothing more.
    key = layout.log_key(HOME, 2, record.next + 1)
    assert not program.origin.put_if_absent(key, [b"late"])
    check_log_object(key, program.origin.get(key, 1 << 20))
    assert store.clone(NewVolume(str(uuid.UUID(int=10)), 1 << 30), HOME).record.logs
    assert program("volume", "settle", HOME)[0] == 0, "once more"


@pytest.fixture
def data_plane(program: Program) -> Iterator[list[tuple[str, Any]]]:
    """A data plane that notes what it is asked."""
    asked: list[tuple[str, Any]] = []

    def status(params: Any) -> dict[str, object]:
        asked.append(("status", params))
        return {"epoch": 2, "recovery_point_age_s": 1.5, "durability": {"default": "none"}}

    def fold(params: Any) -> dict[str, object]:
        asked.append(("fold", params))
        return {"manifest": "ab" * 32}

    server = AdminServer(program.socket, {"volume.status": status, "volume.fold": fold})
    server.start()
    yield asked
    server.stop()


def test_data_plane_is_asked_for_status_and_fold(
    program: Program, data_plane: list[tuple[str, Any]]
) -> None:
    shown = program.json("volume", "status", HOME)
    assert (shown["epoch"], shown["recovery_point_age_s"]) == (2, 1.5)
    assert program.json("volume", "fold", HOME)["manifest"] == "ab" * 32
    assert data_plane == [("status", {"volume": HOME}), ("fold", {"volume": HOME})]


def test_absent_data_plane_is_unavailable(program: Program) -> None:
    assert program("volume", "status", HOME)[0] == 5


def test_repository_without_volumes_says_what_to_do(tmp_path: pathlib.Path) -> None:
    program = Program(tmp_path)
    older = Format(str(uuid.UUID(int=1)), 65536, version=1)
    program.origin.put_if_absent("format", [older.encode()])
    assert program("volume", "list")[0] == 9
    assert "'acstor repository upgrade'" in program.error
