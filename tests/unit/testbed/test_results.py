"""Results of record: their format, and what is drawn of them."""

import json
import pathlib
from decimal import Decimal
from typing import Any

import pytest

from testbed.fixtures.drawings import labels
from testbed.results import curves, drawing, record, tables
from testbed.results.record import Curve, Curves, Lines, Panel, Record, RecordError, Table

STORED = """\
{
 "format": "acstor-results",
 "version": 1,
 "title": "Boot times",
 "about": "Of a test.",
 "source": "a test",
 "conditions": {"hosts": 2},
 "tables": {
  "storms": {
   "columns": ["cv", "approach", "mean_s", "gains"],
   "rows": [
    [0, "acstor", 2.50, [1.0, 2]],
    [1.2, "acstor", null, {"median": 3, "low": 2, "high": 4}]
   ],
   "headings": ["CV", "approach", "mean", "gains"]
  }
 },
 "notes": ["One."],
 "plot": {"table": "storms", "x": "cv", "y": "mean_s", "line": ["approach"]}
}
"""


def over_time(**changes: Any) -> Record:
    curve = Curve([1, 2, 1])
    plot = Curves("s", "MB", [Panel("one", {"a": curve}), Panel("two", {"a": curve})], x_step=0.5)
    return Record("Traffic", "a test", {}, plot=plot, **changes)


@pytest.fixture
def stored(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "stored.json"
    path.write_text(STORED)
    return path


def test_format_is_that_of_its_version(stored: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Raise FORMAT_VERSION when this fails, and write the files of ``bench/results`` in it."""
    assert record.FORMAT_VERSION == 1
    found = record.read(stored)
    record.write(found, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == STORED


def test_curves_are_read_as_they_were_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "below" / "curves.json"
    record.write(over_time(), path)
    again = record.read(path)
    assert isinstance(again.plot, Curves)
    assert again.plot.panels[1].lines["a"].y == [1, 2, 1]
    assert again.plot.x_label == "s"
    assert float(again.plot.x_step) == 0.5
    assert again.plot.is_y_shared


def test_figures_are_shown_with_the_digits_that_the_file_has(stored: pathlib.Path) -> None:
    text = tables.rst_of(record.read(stored).tables["storms"])
    assert text.splitlines()[3] == "0    acstor    2.50  1.0, 2"
    assert text.splitlines()[4] == "1.2  acstor          3 (2-4)"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"version": 1', '"version": 2', "version 1"),
        ('"acstor-results"', '"x"', "no result"),
        ('"source": "a test"', '"source": ""', "source"),
        ('"y": "mean_s"', '"y": "p99_s"', "p99_s"),
        ('"table": "storms"', '"table": "boots"', "boots"),
        ('"headings": ["CV"', '"headings": ["CV", "x"', "heading"),
        ('"columns": ["cv"', '"columns": ["approach"', "twice"),
        ('[0, "acstor", 2.50', '[0, "acstor"', "lengths"),
        ('"notes"', '"remarks"', "notes"),
        ("{", "[", "Expecting"),
    ],
)
def test_other_files_are_refused_and_say_why(
    old: str, new: str, said: str, stored: pathlib.Path
) -> None:
    stored.write_text(STORED.replace(old, new, 1))
    with pytest.raises(RecordError, match=said) as raised:
        record.read(stored)
    assert str(stored) in raised.value.message


def test_size_is_bounded(tmp_path: pathlib.Path, stored: pathlib.Path) -> None:
    rows = [[number, "x" * 20] for number in range(record.BYTES_MAX // 20)]
    large = Record("Large", "a test", {"all": Table(["number", "text"], rows)})
    with pytest.raises(RecordError, match="bytes"):
        record.write(large, tmp_path / "large.json")
    assert not (tmp_path / "large.json").exists()
    stored.write_text(STORED + " " * record.BYTES_MAX)
    with pytest.raises(RecordError, match="bytes"):
        record.read(stored)


def test_what_is_written_can_be_read(tmp_path: pathlib.Path) -> None:
    broken = Record("Broken", "a test", {}, plot=Lines("none", "x", "y", ["approach"]))
    with pytest.raises(RecordError, match="none"):
        record.write(broken, tmp_path / "broken.json")


def test_lines_are_drawn_of_the_table(stored: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plot.svg"
    drawing.draw(record.read(stored), path)
    assert {"CV of the extra traffic", "mean boot time (s)", "acstor"} <= set(labels(path))


def test_curves_have_a_panel_each(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plot.svg"
    drawing.draw(over_time(), path)
    assert {"one", "two", "s", "MB", "a"} <= set(labels(path))
    again = tmp_path / "again.svg"
    drawing.draw(over_time(), again)
    assert again.read_bytes() == path.read_bytes(), "the same record is the same drawing"


def test_record_without_a_plot_is_not_drawn(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RecordError, match="nothing to plot"):
        drawing.draw(Record("Text", "a test", {}), tmp_path / "plot.svg")


def test_lines_that_have_no_colour_of_their_own_are_told_apart() -> None:
    names = ["acstor", "acstor-pod", "acstor-rack", "acstor-uplinks", "static-pod", "local-cache"]
    found = drawing._colours(names)
    assert len({found[name] for name in names}) == len(names)


def test_curves_are_bounded_and_keep_their_ends() -> None:
    kept = curves.curve_of([(float(at), at % 7 / 3) for at in range(5000)])
    assert len(kept.y) <= curves.POINTS_MAX
    assert (kept.x[0], kept.x[-1]) == (0, 4999)
    flat = curves.curve_of([(float(at), 1.5) for at in range(5000)])
    assert (list(flat.x), [float(y) for y in flat.y]) == ([0, 4999], [1.5, 1.5])
    assert curves.curve_of([]) == Curve([], [])


def test_rounded_figures_are_json_numbers_of_as_many_digits() -> None:
    found = [tables.rounded(one) for one in (59.1837, 0.0005134, 1402.44, 8.0, 7, None, "a")]
    assert found == [Decimal("59.2"), Decimal("0.000513"), Decimal("1402.4"), 8, 7, None, "a"]
    assert json.loads(record._text(found, 0))[:3] == [59.2, 0.000513, 1402.4]
