"""Results of record of the simulator, and their plots."""

import pathlib
from decimal import Decimal
from typing import Any

import pytest

from sim import record
from sim.exception import ScenarioError
from testbed.fixtures.drawings import labels
from testbed.results import drawing
from testbed.results.record import Curves, Lines


def document(**changes: Any) -> dict[str, Any]:
    results = [
        {
            "seed": 1,
            "variant": "acstor",
            "axes": {"traffic.cv": cv, "traffic.mean": mean},
            "boot_mean_s": cv * mean,
            "cv_series": [(0.0, cv), (1.0, cv), (2.0, cv), (3.0, cv / 3)],
        }
        for cv in (0.5, 1.0)
        for mean in (40.0, 80.0)
    ]
    plot = {"x": "traffic.mean", "facet": "traffic.cv"}
    return {
        "scenario": "test", "title": "Test", "about": "", "metrics": ["boot_mean_s"],
        "plot": plot, "results": results,
    } | changes  # fmt: skip


def test_all_panels_show_all_that_was_found(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plot.svg"
    drawing.draw(record.of_document(document(), "a test"), path)
    found = labels(path)
    of_values = found[
        found.index("mean extra traffic (MB/s)") + 1 : found.index("mean boot time (s)")
    ]
    assert "80" in of_values, f"the second panel reaches 80: {found}"
    assert {f"CV of the extra traffic: {cv}" for cv in ("0.5", "1")} <= set(found)


def test_axis_that_is_neither_x_nor_facet_gives_lines_of_its_own() -> None:
    found = record.of_document(document(plot={"x": "traffic.mean"}), "a test")
    assert isinstance(found.plot, Lines)
    assert found.plot.line == ["variant", "traffic.cv"]


def test_series_are_kept_as_they_are_seen() -> None:
    found = record.of_document(document(plot={"kind": "series", "facet": "traffic.cv"}), "a test")
    assert isinstance(found.plot, Curves)
    curve = found.plot.panels[1].lines["acstor"]
    assert (list(curve.x), list(curve.y)) == ([0, 2, 3], [1, 1, Decimal("0.333")])


def test_plot_of_a_metric_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(ScenarioError, match="origin_mb"):
        record.of_document(document(plot={"x": "traffic.mean", "y": "origin_mb"}), "a test")
