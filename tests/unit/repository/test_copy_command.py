"""The command that copies a repository, run by the program itself on directories."""

import json
import pathlib
import shutil

import pytest

from acstor.repository.copying.copier import Copier
from acstor.repository.copying.report import CopyReport
from tests.unit.repository.test_commands import IMAGE_ID, Program

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Program:
    """The command line over a repository with an image."""
    made = Program(tmp_path)
    made.json("repository", "init")
    made.json(
        *("image", "register", "--id", IMAGE_ID, "--name", "one"),
        *("--disk-format", "raw", made.image("one.raw")),
    )
    return made


@pytest.fixture
def destination(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "copy"
    made.mkdir()
    return made


def test_copy_is_made_updated_and_restored(
    program: Program, destination: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    url = f"posix://{destination}"
    first = program.json("repository", "copy", url, "--verify", "all")
    assert (first["images"], first["is_complete"], first["damages"]) == (1, True, [])
    assert first["objects"] == first["objects_copied"] == first["objects_verified"]
    assert first["bytes"] == first["bytes_copied"] > 1 << 20
    second = program.json("repository", "copy", url, "--prune", "--verify", "none")
    assert (second["objects_copied"], second["objects_present"]) == (0, first["objects"])
    live = tmp_path / "live"
    live.mkdir()
    program.config.write_text(
        program.config.read_text().replace(str(program.origin), str(destination))
    )
    assert program.json("repository", "copy", f"posix://{live}", "--restore")["is_complete"]
    program.config.write_text(program.config.read_text().replace(str(destination), str(live)))
    assert program.json("image", "verify", IMAGE_ID) == []
    assert program("repository", "copy", f"posix://{live}")[0] == 3
    assert "itself" in program.error


def test_damage_is_named_and_is_exit_status_7(
    program: Program, destination: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (pack,) = program.origin.glob("packs/*/*")
    pack.chmod(0o644)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 0xFF
    pack.write_bytes(content)
    url = f"posix://{destination}"
    status, output = program("repository", "copy", url, "-f", "json")
    assert status == 7
    report = json.loads(output)
    (damage,) = report["damages"]
    assert damage["name"] == str(pack.relative_to(program.origin))
    assert (report["images"], report["refs_left"]) == (0, 1)
    assert "--with-damaged" in program.error
    live = tmp_path / "live"
    live.mkdir()
    status, _ = program("repository", "copy", f"posix://{live}", "--restore")
    assert status == 7
    assert "not finished" in program.error
    assert not (live / "format").exists()


def test_missing_directory_is_refused(program: Program, tmp_path: pathlib.Path) -> None:
    assert program("repository", "copy", f"posix://{tmp_path}/nowhere")[0] == 3
    assert "does not exist" in program.error


def test_interruption_is_told(
    program: Program, destination: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: object) -> CopyReport:
        raise KeyboardInterrupt

    monkeypatch.setattr(Copier, "copy", interrupted)
    status, _ = program("repository", "copy", f"posix://{destination}")
    assert status == 130
    assert "the same command goes on" in program.error


@pytest.mark.parametrize("arguments", [("--jobs", "0"), ("--restore", "--prune")])
def test_bad_arguments_are_refused(
    program: Program, destination: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program("repository", "copy", f"posix://{destination}", *arguments)
    assert ended.value.code == 2
