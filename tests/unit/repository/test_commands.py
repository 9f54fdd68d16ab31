"""The commands on images and the repository, run by the program itself on a directory."""

import configparser
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
from typing import Any

import pytest
from cliff import commandmanager

from acstor.cli import app

ROOT = pathlib.Path(__file__).parents[3]
IMAGE_ID = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")


class Program:
    """The command line over one origin and one configuration file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.origin = folder / "origin"
        self.origin.mkdir()
        self.config = folder / "acstor.conf"
        self.config.write_text(
            f"[DEFAULT]\nhost = here\nstate_path = {folder / 'state'}\n"
            f"[origin]\nurl = posix://{self.origin}\n"
        )
        self.error = ""

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """Run a command; return its exit status and its output."""
        output, error = io.StringIO(), io.StringIO()
        application = app.Application(stdout=output, stderr=error)
        for name, target in commands().items():
            application.command_manager.add_command(name.replace("_", " "), target)
        status = application.run(["--config-file", str(self.config), *arguments])
        self.error = error.getvalue()
        return status, output.getvalue()

    def json(self, *arguments: str) -> Any:
        status, output = self(*arguments, "-f", "json")
        assert status == 0, self.error
        return json.loads(output)

    def image(self, name: str, size: int = 1 << 20) -> str:
        path = self.folder / name
        path.write_bytes(b"\0" * 1024 + random.Random(name).randbytes(size - 1024))
        return str(path)


def commands() -> dict[str, type]:
    """Return the commands that setup.cfg names, whatever is installed."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    found = {}
    for line in setup["entry_points"]["acstor.cli"].strip().splitlines():
        name, target = (part.strip() for part in line.split("=", 1))
        if target.startswith(
            (
                "acstor.cli.image:",
                "acstor.cli.repository:",
                "acstor.cli.repository_compact:",
                "acstor.cli.repository_copy:",
                "acstor.cli.repository_space:",
                "acstor.cli.signing:",
            )
        ):
            module, attribute = target.split(":")
            found[name] = getattr(__import__(module, fromlist=[attribute]), attribute)
    return found


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Program:
    """Return the command line over a new repository, made with the options of the parameter."""
    made = Program(tmp_path)
    made.json("repository", "init", *getattr(request, "param", ()))
    return made


def test_every_command_is_registered() -> None:
    assert set(commands()) == {
        "image_register", "image_list", "image_show", "image_verify", "image_remove",
        "repository_init", "repository_show", "repository_upgrade", "repository_verify", "gc",
        "repository_keygen", "repository_sign", "repository_space", "repository_copy",
        "repository_compact", "image_profile",
    }  # fmt: skip
    assert isinstance(app.Application().command_manager, commandmanager.CommandManager)


def test_life_of_an_image(program: Program) -> None:
    path = program.image("image")
    report = program.json("image", "register", path, "--id", IMAGE_ID, "--name", "first")
    assert (report["status"], report["chunks"], report["new"]) == ("registered", 16, 16)
    again = program.json("image", "register", path, "--id", IMAGE_ID)
    assert (again["status"], again["bytes_stored"]) == ("already registered", 0)
    (listed,) = program.json("image", "list")
    assert (listed["id"], listed["name"]) == (IMAGE_ID, "first")
    assert program.json("image", "show", IMAGE_ID)["size_bytes"] == 1 << 20
    assert program("image", "verify", IMAGE_ID)[0] == 0
    assert "0 damages" in program.error
    assert program("image", "remove", IMAGE_ID)[0] == 0
    assert program.json("gc")["condemned"] == 2
    assert program.json("gc")["waiting"] == 2


@pytest.mark.parametrize("program", [("--format-version", "5")], indirect=True)
def test_space_is_shown_in_either_format(program: Program) -> None:
    path = program.image("image")
    program.json("image", "register", path, "--id", IMAGE_ID)
    shown = program.json("repository", "show", "--space")
    assert (shown["version"], shown["packs"], shown["unreadable"]) == (5, 1, "")
    assert (shown["live_bytes"], shown["garbage_bytes"]) == (1 << 20, 0)
    upgraded = program.json("repository", "upgrade")
    assert upgraded["version"] == 8
    other = "00000000-0000-4000-8000-000000000001"
    program.json("image", "register", path, "--id", other)
    rows = program.json("repository", "space")
    assert {row["id"] for row in rows} == {IMAGE_ID, other}
    assert all(row["unique_bytes"] == row["used_bytes"] == 1 << 20 for row in rows)
    assert program.json("repository", "upgrade", "--format-version", "5")["version"] == 8
    assert "stored_bytes" not in program.json("repository", "show")


def test_packs_are_compacted_at_once_or_only_listed(program: Program) -> None:
    path, kept = program.image("image", 4 << 20), program.folder / "kept"
    kept.write_bytes(pathlib.Path(path).read_bytes()[: 1 << 20])
    other = "00000000-0000-4000-8000-000000000001"
    program.json("image", "register", path, "--id", IMAGE_ID)
    program.json("image", "register", str(kept), "--id", other)
    assert program.json("repository", "compact") == [], "everything is needed"
    assert program("image", "remove", IMAGE_ID)[0] == 0
    (listed,) = program.json("repository", "compact", "--dry-run")
    assert (listed["class"], listed["reason"]) == ("image", "sparse")
    assert (listed["live_bytes"], listed["live_share"]) == (1 << 20, 0.25)
    assert "would copy 1048576 bytes out of 1 packs" in program.error
    assert not (program.origin / "moved").exists()
    assert program.json("repository", "compact") == [listed]
    assert "compacted: " in program.error
    assert "moved 1, overtaken 0, damaged 0" in program.error
    assert (program.origin / "moved" / listed["pack"][:2] / listed["pack"]).is_file()
    assert program.json("repository", "compact", "--dry-run") == []
    assert program("repository", "verify")[0] == 0


@pytest.mark.parametrize("program", [("--format-version", "6")], indirect=True)
def test_older_repository_is_not_compacted(program: Program) -> None:
    assert program("repository", "compact", "--dry-run")[0] != 0
    assert "format version 6, compaction needs 7" in program.error


def test_image_of_a_project_is_its_own_where_projects_share_nothing(program: Program) -> None:
    path, project = program.image("image"), "0f9d8c7b6a594837a6b5c4d3e2f10918"
    others = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]
    first = program.json("image", "register", path, "--id", others[0], "--project", project)
    assert (first["new"], program.json("image", "show", others[0])["dedup_scope"]) == (16, None)
    with program.config.open("a") as config:
        config.write("[repository]\ndedup_scope = project\n")
    second = program.json("image", "register", path, "--id", others[1], "--project", project)
    assert (second["new"], program.json("image", "show", others[1])["dedup_scope"]) == (16, project)
    assert program.json("image", "register", path, "--id", others[2])["new"] == 0, "everybody's"
    assert program("repository", "verify")[0] == 0
    assert "0 damages" in program.error


def test_registration_leaves_the_reserve_of_the_origin(program: Program) -> None:
    space = os.statvfs(program.origin)
    free = 100 * space.f_bavail // (space.f_blocks - space.f_bfree + space.f_bavail)
    if free > 80:
        pytest.skip("the file system is too empty for what the option takes")
    path = program.image("image")
    with program.config.open("a") as config:
        config.write(f"reserve_percent = {free + 10}\n")
    status, output = program("image", "register", path, "--id", IMAGE_ID)
    assert (status, output) == (10, "")
    assert "of it to volumes ([origin] reserve_percent); enlarge the origin's" in program.error
    assert program.json("image", "list") == []


def test_damage_is_listed_and_fails(program: Program) -> None:
    program.json("image", "register", program.image("image"), "--id", IMAGE_ID)
    (pack,) = (path for path in (program.origin / "packs").rglob("*") if path.is_file())
    pack.chmod(0o644)
    with pack.open("r+b") as file:
        file.seek(4096 + 3 * 65536 + 17)
        file.write(b"damage")
    status, output = program("image", "verify", "-f", "json")
    assert status == 7
    (damage,) = json.loads(output)
    assert (damage["image"], damage["chunk"], damage["pack"], damage["offset"]) == (
        IMAGE_ID, 3, pack.name, 4096 + 3 * 65536,
    )  # fmt: skip
    assert program.error.strip().splitlines()[-1].startswith("acstor: error: 1 damages found; ")


@pytest.mark.parametrize(
    ("size", "arguments", "text"),
    [
        ("1T", [], "more than disk_size_max = 274877906944"),
        ("1P", [], "more than disk_size_max = 274877906944"),
        (
            "1P",
            ["--disk-size-max", "2048TiB"],
            "more than the 70368744177664 that a manifest can",
        ),
    ],
)
def test_disk_costs_no_memory_by_its_size(
    program: Program, size: str, arguments: list[str], text: str
) -> None:
    """In a process of its own, whose memory is bounded as that of none that has its manifest."""
    path = str(program.folder / "image")
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, size], check=True, timeout=60)
    command = [
        *(sys.executable, "-m", "tests.unit.repository.limited_command", str(2 << 30)),
        *("--config-file", str(program.config)),
        *("image", "register", path, "--disk-format", "qcow2", *arguments),
    ]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    _, error = child.communicate(timeout=120)
    assert child.returncode == 3, error
    assert text in error


def test_limit_of_the_disk_is_the_operators(program: Program) -> None:
    path = program.image("image")
    status, _ = program("image", "register", path, "--disk-size-max", "1MiB")
    assert status == 0
    larger = program.image("larger", (1 << 20) + 512)
    status, _ = program("image", "register", larger, "--disk-size-max", "1MiB")
    assert status == 3
    assert "more than disk_size_max = 1048576" in program.error


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["image", "show", IMAGE_ID], 4, "is not registered; 'acstor image list'"),
        (["image", "show", "name"], 3, "is no UUID"),
        (["image", "remove", IMAGE_ID], 4, "is not registered"),
        (["image", "register", "/missing"], 3, "No such file"),
        (["image", "register", "IMAGE", "--disk-format", "qcow2"], 3, "its content is raw"),
        (["image", "register", "IMAGE", "--checksum", "md5:" + "0" * 32], 3, "has md5"),
    ],
)
def test_errors_are_one_line_with_what_to_do(
    program: Program, arguments: list[str], status: int, text: str
) -> None:
    path = program.image("image")
    found, output = program(*[path if argument == "IMAGE" else argument for argument in arguments])
    assert found == status
    assert output == ""
    (line,) = program.error.strip().splitlines()
    assert line.startswith("acstor: error: ")
    assert text in line


def test_uninitialised_origin_is_refused(tmp_path: pathlib.Path) -> None:
    status, _ = Program(tmp_path)("image", "list")
    assert status == 4
