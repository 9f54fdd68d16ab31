"""The pages by which people enter name everything that is there, and nothing that is not."""

import importlib.util
import pathlib
import re
import subprocess
import types

import pytest

from testbed.fixtures.documents import ROOT, SOURCE

ROOMS = ("acstor", "crates", "testbed", "tools")
"""Folders whose folders are all on the code map, beside those of the top."""
INDEXES = sorted(
    str(page.parent.relative_to(SOURCE))
    for page in SOURCE.rglob("index.rst")
    if page.parent != SOURCE
)
ARCHITECTURE = SOURCE / "contributor" / "architecture.rst"
TOUR = SOURCE / "contributor" / "index.rst"
_LITERAL = re.compile(r"``([^`]+)``")
_DOC = re.compile(r":doc:`(?:[^`<]*<)?([^`>]+)>?`")


def tracked_files() -> list[pathlib.PurePath]:
    """Return the files that git tracks or would track, relative to the top."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [pathlib.PurePath(name) for name in names]


def tidy() -> types.ModuleType:
    """Return ``tools/tidy.py``, whose tables of floors the gate goes by."""
    spec = importlib.util.spec_from_file_location("tidy", ROOT / "tools" / "tidy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rooms() -> set[str]:
    """Return the folders that the code map has to name, and the programs of ``tools/``."""
    found = set()
    for path in tracked_files():
        if len(path.parts) > 1:
            found.add(path.parts[0])
        if len(path.parts) > 2 and path.parts[0] in ROOMS:
            found.add("/".join(path.parts[:2]))
        if path.parts[0] == "tools":
            found.add(str(path))
    return found


def mapped() -> list[str]:
    """Return what the code map of the README names, in its order."""
    code_map = (ROOT / "README.md").read_text().partition("\n## Code map\n")[2]
    cells = re.findall(r"^\| (`[^|]+) \|", code_map.partition("\n## ")[0], re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def section(page: pathlib.Path, title: str) -> str:
    """Return the text of one section of a page, up to the next title of its level."""
    lines = page.read_text().splitlines()
    begin = lines.index(title) + 1
    underline = lines[begin]
    ends = [
        number - 1
        for number in range(begin + 1, len(lines))
        if lines[number] and set(lines[number]) == {underline[0]}
    ]
    return "\n".join(lines[begin + 1 : ends[0] if ends else None])


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of the list tables of a text, row by row, without the heads."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        if cell := re.match(r" {3}(\* | {2})- (.*)$|^ {3}(\* | {2})-()$", line):
            if "*" in (cell[1] or cell[3]):
                rows.append([])
            rows[-1].append(cell[2] or "")
        elif rows and line.startswith("       "):
            rows[-1][-1] += " " + line.strip()
    return [row for row in rows if "``" in row[0] or ":doc:" in row[0] or row[0].isdigit()]


def paths_named(text: str) -> list[str]:
    """Return the files and folders of this repository that a text names."""
    tops = {path.parts[0] for path in tracked_files() if len(path.parts) > 1}
    names = [name for name in _LITERAL.findall(text) if re.fullmatch(r"[\w./-]+", name)]
    return [name for name in names if name.partition("/")[0] in tops and "/" in name]


def test_the_code_map_names_every_room() -> None:
    assert sorted(rooms() - set(mapped())) == []


def test_the_code_map_names_nothing_that_is_not_there() -> None:
    assert [name for name in mapped() if not list(ROOT.glob(name))] == []


def test_the_code_map_names_nothing_twice() -> None:
    names = mapped()
    assert sorted(names) == sorted(set(names))


def test_the_commands_of_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    programs = set(re.findall(r"\btools/[a-z.]+\b", readme))
    assert {"tools/quickstart", "tools/test"} <= programs
    assert [name for name in programs if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", [ARCHITECTURE, TOUR], ids=lambda page: str(page.name))
def test_files_that_are_named_exist(page: pathlib.Path) -> None:
    named = paths_named(page.read_text())
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_files_that_the_readme_names_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    named = re.findall(r"`((?:acstor|crates|doc|etc|tests|testbed|tools)/[\w./-]+)`", readme)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_floors_of_the_packages_are_those_of_the_gate() -> None:
    shown = [
        set(_LITERAL.findall(row[1]))
        for row in table_rows(section(ARCHITECTURE, "Floors of the Python packages"))
    ]
    assert list(reversed(shown)) == list(tidy().PACKAGE_FLOORS)


def test_the_arrows_of_the_crates_are_those_of_the_gate() -> None:
    shown = {
        row[0].strip("`"): set(_LITERAL.findall(row[1]))
        for row in table_rows(section(ARCHITECTURE, "Floors of the crates"))
    }
    assert shown == tidy().CRATE_ARROWS


def test_every_program_is_among_the_processes() -> None:
    setup = (ROOT / "setup.cfg").read_text()
    scripts = setup.partition("console_scripts =")[2].partition("\n\n")[0]
    processes = section(ARCHITECTURE, "Processes")
    programs = re.findall(r"^ +([\w-]+) =", scripts, re.MULTILINE)
    assert [program for program in programs if f"``{program}``" not in processes] == []


def test_the_tour_has_ten_rules_and_a_file_for_each() -> None:
    rows = re.findall(r"^#\. (.+(?:\n   .+)*)", section(TOUR, "The tour"), re.MULTILINE)
    assert len(rows) == 10
    assert [row for row in rows if len(paths_named(row)) != 1] == []


@pytest.mark.parametrize("folder", INDEXES)
def test_an_index_names_all_its_pages(folder: str) -> None:
    index = SOURCE / folder / "index.rst"
    text = index.read_text()
    trees = re.findall(r"^\.\. toctree::\n(?:   .*\n|\n)*", text, re.MULTILINE)
    listed = {
        line.strip()
        for tree in trees
        for line in tree.splitlines()[1:]
        if line.strip() and not line.strip().startswith(":")
    }
    own = {page.stem for page in index.parent.glob("*.rst")} - {"index"}
    below = {f"{page.parent.name}/index" for page in index.parent.glob("*/index.rst")}
    assert listed == own | below
    described = {_DOC.findall(row[0])[0] for row in table_rows(text) if ":doc:" in row[0]}
    assert described >= own | below
    assert [row[0] for row in table_rows(text) if ":doc:" in row[0] and not row[1]] == []


def test_the_first_page_leads_to_every_guide() -> None:
    text = (SOURCE / "index.rst").read_text()
    folders = {folder for folder in INDEXES if "/" not in folder}
    assert [folder for folder in folders if f"{folder}/index" not in text] == []
    named = {name.lstrip("/") for name in _DOC.findall(text)}
    assert [name for name in named if not (SOURCE / f"{name}.rst").is_file()] == []


def test_the_documentation_has_the_version_of_the_package() -> None:
    setup = (ROOT / "setup.cfg").read_text()
    version = re.search(r"^version = (\S+)$", setup, re.MULTILINE)
    assert version is not None
    settings: dict[str, object] = {"__file__": str(SOURCE / "conf.py")}
    exec(compile((SOURCE / "conf.py").read_text(), "conf.py", "exec"), settings)
    assert (settings["version"], settings["release"]) == (version[1], version[1])


def test_the_glossary_is_in_the_order_of_the_alphabet() -> None:
    glossary = (SOURCE / "reference" / "glossary.rst").read_text().partition(".. glossary::")[2]
    terms = re.findall(r"^ {3}(\S.*)$", glossary, re.MULTILINE)
    assert terms == sorted(terms, key=str.casefold)
