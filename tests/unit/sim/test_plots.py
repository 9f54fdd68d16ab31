"""Plots of the simulator."""

import pathlib
from typing import Any

from sim import plots
from testbed.fixtures.drawings import labels


def document() -> dict[str, Any]:
    results = [
        {"seed": 1, "variant": "acstor", "axes": {"cv": cv, "mean": mean}, "boot_mean_s": cv * mean}
        for cv in (0.5, 1.0)
        for mean in (40.0, 80.0)
    ]
    return {"scenario": "test", "plot": {"x": "mean", "facet": "cv"}, "results": results}


def test_all_panels_show_all_that_was_found(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plot.svg"
    plots.draw(document(), path)
    found = labels(path)
    of_values = found[found.index("mean") + 1 : found.index("mean boot time (s)")]
    assert "80" in of_values, f"the second panel reaches 80: {found}"
    assert {"cv: 0.5", "cv: 1.0"} <= set(found)
