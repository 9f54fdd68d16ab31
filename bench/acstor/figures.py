"""Tables and figures of the paper, each with the storms that it is made of."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.acstor.settings import EvaluationSettings
from testbed.approaches.names import APPROACHES

ALL = tuple(APPROACHES)
COLLABORATIVE = ("static-collaborative", "acstor")
BOOT_COLUMNS = (
    "mean_s", "trimmed_mean_s", "median_s", "p99_s", "failed", "origin_mb", "generations", "idle",
)  # fmt: skip
LOOPS = {"web-server": 40, "web-proxy": 80, "video-server": 8}
"""Loops of each mix of Figure 9: what all guests read of the origin without a cache takes it 200
s."""
Point = Mapping[str, Any]
"""Values of settings by their names."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """One table or figure."""

    name: str
    title: str
    axes: Mapping[str, Sequence[Any]]
    """Settings that vary, each with its values; every combination is run."""
    approaches: Sequence[str] = ALL
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings that this figure has of its own."""
    columns: Sequence[str] = BOOT_COLUMNS
    x: str = "cv"
    y: str = "mean_s"
    facet: str | None = None
    is_series: bool = False
    """True if the CV of all traffic is drawn over time."""

    def points(self) -> Iterator[Point]:
        """Yield every combination of the axes' values."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    def with_axes(self, values: Mapping[str, Sequence[Any]]) -> "Figure":
        """Return the figure with other values of its axes; settings that are none are left out."""
        axes = {name: values.get(name, own) for name, own in self.axes.items()}
        return dataclasses.replace(self, axes=axes)


def settings_at(base: EvaluationSettings, point: Point, turn: int) -> EvaluationSettings:
    """Return the settings of one point; each turn draws its own traffic and guests."""
    return dataclasses.replace(base, **point, seed=base.seed + turn)


FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "table-1",
            "Table 1: boot time by lambda of Equation (1)",
            {"weight_lambda": (1.0, 1.4, 1.67, 1.8, 2.2, 2.6, 3.0)},
            ("acstor",),
            {"mean": 20.0, "cv": 0.8, "weights": "equation1"},
            x="weight_lambda",
        ),
        Figure(
            "figure-6",
            "Figure 6: boot time by CV and mean of the extra traffic",
            {"mean": (70.0,), "cv": (0.0, 0.8, 1.2)},
            facet="mean",
        ),
        Figure(
            "figure-7",
            "Figure 7: boot time by mean and CV of the extra traffic",
            {"cv": (0.4, 0.8, 1.2), "mean": (0.0, 40.0, 70.0, 100.0)},
            x="mean",
            facet="cv",
        ),
        Figure(
            "figure-8",
            "Figure 8: boot time by guests per host",
            {"cv": (0.4, 0.8, 1.2), "guests_per_host": (1, 2, 3, 4, 5, 6)},
            COLLABORATIVE,
            x="guests_per_host",
            facet="cv",
        ),
        *(
            Figure(
                f"figure-9-{mix}",
                f"Figure 9: throughput of a {mix}, by mean and CV of the extra traffic",
                {"mean": (40.0, 70.0, 100.0), "cv": (0.4, 0.8, 1.2)},
                changes={"workload": mix, "loops": loops},
                columns=(
                    "throughput_mb_s",
                    "origin_mb",
                    "generations",
                    "total_cv",
                    "failed",
                    "idle",
                ),
                y="throughput_mb_s",
                facet="mean",
            )
            for mix, loops in LOOPS.items()
        ),
        Figure(
            "figure-10",
            "Figure 10: CV of all traffic of the hosts while guests boot",
            {"cv": (0.4, 0.8, 1.2)},
            COLLABORATIVE,
            {"stagger": 10.0},
            columns=("total_cv", "mean_s", "generations", "idle"),
            y="total_cv",
            facet="cv",
            is_series=True,
        ),
        Figure(
            "misses",
            "Misses caused by a remap, against the least that the new weights force",
            {"cv": (0.8, 1.2)},
            ("acstor",),
            {"is_warm": True, "reads": 400, "guests_per_host": 2},
            columns=(
                "generations",
                "moved_share",
                "remap_misses",
                "least_misses",
                "misses_ratio",
                "remap_origin_mb",
                "relief_s",
                "failed",
            ),
            y="remap_misses",
        ),
    )
}
