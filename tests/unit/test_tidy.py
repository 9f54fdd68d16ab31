"""The layout rules: what they find, and that exceptions are still needed."""

import pathlib
import types

import pytest

from testbed.fixtures.documents import ROOT
from tests.unit.test_front_doors import tidy

MARKED = ("# Written by a program: do not edit.\n", "<!-- Created with matplotlib -->\n",
          "<dc:title>Matplotlib v3.11.2</dc:title>\n", "// DO NOT EDIT\n")  # fmt: skip


@pytest.fixture(scope="module")
def rules() -> types.ModuleType:
    return tidy()


def findings(check: object, name: str, path: pathlib.Path) -> list[str]:
    assert callable(check)
    return list(check(name, path))


@pytest.mark.parametrize("text", MARKED)
def test_generated_files_are_found(
    rules: types.ModuleType, text: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "page.rst"
    path.write_text("A page\n======\n" + text)
    (found,) = findings(rules.check_generated, "doc/source/page.rst", path)
    assert "bench/results" in found
    path.write_text("A page\n" * 50 + text)
    assert findings(rules.check_generated, "doc/source/page.rst", path) == [], "it says it above"


def test_large_drawings_are_found(rules: types.ModuleType, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plot.svg"
    path.write_text("<svg/>" + " " * rules.SVG_BYTES_MAX)
    (found,) = findings(rules.check_generated, "doc/source/plot.svg", path)
    assert str(rules.SVG_BYTES_MAX) in found
    path.write_text("<svg/>")
    assert findings(rules.check_generated, "doc/source/plot.svg", path) == []


@pytest.mark.parametrize("suffix", [".py", ".pyi", ".rs"])
def test_long_files_are_found(rules: types.ModuleType, suffix: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"long{suffix}"
    path.write_text("\n" * (rules.FILE_LINES_MAX + 1))
    (found,) = findings(rules.check_size, f"acstor/long{suffix}", path)
    assert "601 lines" in found
    assert findings(rules.check_size, "acstor/_dataplane.pyi", path) == []


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".py", '"""{}."""\n'),
        (".pyi", '"""A name.\n\nWhat it is."""\n\nclass Name:\n    """{}.\n\n    How."""\n'),
        (".py", 'class Name:\n    def call(self) -> None:\n        """{}."""\n'),
        (".py", 'NAME = 1\n"""{}."""\n'),
        (".py", 'class Name:\n    is_it: bool\n    """{}."""\n'),
        (
            ".py",
            "class Name:\n    def __init__(self) -> None:\n        self.name = 1\n"
            '        """{}."""\n',
        ),
        (".rs", "//! {}.\n//!\n//! What it is.\n"),
        (".rs", "//! A name.\n\n/// {}.\n/// What it is.\nstruct Name;\n"),
        (".rs", "struct Name {{\n    /// {}.\n    is_it: bool,\n}}\n"),
    ],
)
def test_heads_that_ask_are_found(
    rules: types.ModuleType, suffix: str, text: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / f"name{suffix}"
    name = f"testbed/{path.name}"
    for head in ("What it is", "Who asks", "Whose turn it is", "Where: here"):
        path.write_text(text.format(head))
        (found,) = findings(rules.check_heads, name, path)
        assert head in found
    for head in ("A name", "Wherever", "Whatever comes", "Show who asks"):
        path.write_text(text.format(head))
        assert findings(rules.check_heads, name, path) == []


def test_flat_folders_are_found(rules: types.ModuleType) -> None:
    flat = [f"acstor/flat/{letter}.py" for letter in "abcdefghijklmnopqrstu"]
    (found,) = rules.flat_folders(flat)
    assert found.startswith("acstor/flat: 21 source files")
    assert list(rules.flat_folders(flat[1:])) == []
    assert list(rules.flat_folders([*flat[1:], "acstor/flat/__init__.py"])) == []
    assert list(rules.flat_folders([*flat, "acstor/flat/below/a.py"])) == []
    assert len(list(rules.flat_folders([*flat, "acstor/flat/below/a.toml"]))) == 1


def test_exceptions_have_a_reason_and_are_needed(rules: types.ModuleType) -> None:
    names = {str(path.relative_to(ROOT)) for path in rules.tracked_files()}
    for exceptions in (rules.GENERATED, rules.LONG_FILES):
        assert set(exceptions) <= names
        assert all(exceptions.values())
    assert all(rules.FLAT_FOLDERS.values())
    for name in rules.LONG_FILES:
        assert (ROOT / name).read_text().count("\n") > rules.FILE_LINES_MAX
    found = {line.partition(":")[0] for line in rules.flat_folders(names, exceptions={})}
    assert found == set(rules.FLAT_FOLDERS)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("crates/selection/src/a.rs", "use std::time::Instant;\n", "Instant"),
        ("crates/selection/src/a.rs", "\nuse std::sync::Mutex;\n", "std::sync"),
        ("crates/selection/src/a.rs", "use std::sync::Arc;\n", ""),
        ("crates/selection/src/a.rs", "use std::time::Duration;\n", ""),
        ("crates/selection/tests/a.rs", "std::fs::read(path)\n", ""),
        ("crates/readpath/src/a.rs", "use std::time::Instant;\n", ""),
        ("crates/selection/Cargo.toml", "[dependencies]\nrand = 1\n", "dependencies"),
        ("crates/selection/Cargo.toml", "[dev-dependencies]\nrand = 1\n", ""),
    ],
)
def test_impurity_is_found(
    rules: types.ModuleType, name: str, text: str, expected: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / name.rpartition("/")[2]
    path.write_text(text)
    found = findings(rules.check_pure_crates, name, path)
    assert [expected in line for line in found] == ([True] if expected else [])


@pytest.mark.parametrize(
    ("suffix", "text", "found"),
    [
        (".py", "class HostWish:", "HostWish: say desired state, request or demand, not wish"),
        (".py", "    def read_wishes(self):", "read_wishes: say"),
        (".rs", "pub(crate) struct Ledger {", "Ledger: say trace, not ledger"),
        (".rs", "const MOOD: u32 = 1;", "MOOD: say fault mode"),
        (".py", "# def duty(", None),
        (".py", "party = 1", None),
        (".py", "def heavyduty():", None),
        (".rst", "def duty(", None),
    ],
)
def test_declarations_with_former_words_are_found(
    rules: types.ModuleType, tmp_path: pathlib.Path, suffix: str, text: str, found: str | None
) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_text(f"\n{text}\n")
    told = list(rules.check_words("file", path))
    assert len(told) == (found is not None)
    assert found is None or told[0].startswith(f"file:2: {found}")
