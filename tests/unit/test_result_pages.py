"""Results on pages: taken from ``bench/results`` only, all of which a build of them draws."""

import os
import pathlib
import re
import subprocess
import sys
import types

import pytest

from sim import page, scenario
from testbed.fixtures.documents import ROOT, SOURCE
from testbed.results import drawing, record

RECORDS = sorted(record.DIRECTORY.rglob("*.json"))
TOTAL_BYTES_MAX = 1_000_000
_IMAGE = re.compile(r"^ *\.\. (?:image|figure):: (\S+)$", re.MULTILINE)
_TABLE = re.compile(r"^ *\.\. results-table:: (\S+) (\S+)$", re.MULTILINE)
SHOWN_BY_THE_PAGE_OF_RESULTS = "simulator/"


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "doc" / "ext"))
    import acstor_results

    return acstor_results


def pages() -> list[pathlib.Path]:
    """Return the pages that people write."""
    generated = SOURCE / "contributor" / "simulator"
    return [path for path in sorted(SOURCE.rglob("*.rst")) if generated not in path.parents]


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(record.DIRECTORY).with_suffix(""))


@pytest.mark.parametrize("path", RECORDS, ids=name_of)
def test_record_can_be_read_and_says_where_it_is_from(path: pathlib.Path) -> None:
    assert record.read(path).source


def test_records_are_small() -> None:
    assert sum(path.stat().st_size for path in RECORDS) < TOTAL_BYTES_MAX


def test_every_image_of_a_page_is_drawn_of_a_record(extension: types.ModuleType) -> None:
    drawn = {str(SOURCE / name) for _, name in extension.drawings()}
    for found in pages():
        for image in _IMAGE.findall(found.read_text()):
            assert os.path.normpath(found.parent / image) in drawn, f"{found.name}: {image}"


def test_every_record_is_on_a_page_and_every_table_in_a_record() -> None:
    shown = set()
    for found in pages():
        for file, table in _TABLE.findall(found.read_text()):
            held = record.read(record.DIRECTORY / f"{file}.json").tables
            assert table in held, f"{found.name}: {file} {table}"
            shown.add((file, table))
    kept = {
        (name_of(path), table)
        for path in RECORDS
        if not name_of(path).startswith(SHOWN_BY_THE_PAGE_OF_RESULTS)
        for table in record.read(path).tables
    }
    assert shown == kept


def test_page_of_results_has_every_scenario_with_all_figures() -> None:
    assert sorted((*page.ORDER, *page.UNRECORDED)) == scenario.names()
    assert sorted(page.ORDER) == sorted(path.stem for path in RECORDS if "simulator" in path.parts)
    text = page.render(record.DIRECTORY / "simulator")
    for name in page.ORDER:
        found = record.read(record.DIRECTORY / "simulator" / f"{name}.json")
        assert f"Scenario ``{name}``; {found.conditions['runs']} runs" in text
        assert all(
            str(cell) in text for row in found.tables["medians"].rows for cell in row if cell
        )


def test_build_draws_all_that_is_missing_or_old(
    extension: types.ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That each can be drawn is for the build itself, in the stage ``docs``."""

    def draw(_record: record.Record, path: pathlib.Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<svg/>")

    monkeypatch.setattr(drawing, "draw", draw)
    with_plot = [path for path in RECORDS if record.read(path).plot is not None]
    assert extension.make_all(tmp_path) == len(with_plot) > 10
    assert (tmp_path / "contributor/simulator/results.rst").read_text().startswith("====")
    assert extension.make_all(tmp_path) == 0
    os.utime(tmp_path / "contributor/capo.svg", (0, 0))
    assert extension.make_all(tmp_path) == 1


def test_build_needs_nothing_of_the_simulator() -> None:
    """The host that builds the documentation has no compiler of loops."""
    code = "import sys; sys.path[:0] = sys.argv[1:]; import acstor_results; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "doc" / "ext"), str(ROOT)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert not {"sim._simcore", "rich", "acstor._dataplane"} & set(run.stdout.split())
