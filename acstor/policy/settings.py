"""Parameters of a decision beside the loads: numbers and names of plug-ins."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acstor import exception
from acstor.cluster.ring.decision import MEAN_WEIGHT, WEIGHT_MAX

RELATIVE_MAX = WEIGHT_MAX / MEAN_WEIGHT
"""Largest weight of a decision, in ordinary hosts'."""
_RECORDED = {"quiet_period": "calm_after"}
"""Names of fields in decision logs, where they are others."""


@dataclass(frozen=True)
class PolicySettings:
    """Settings of a decision maker.

    Parts of a link and of an ordinary host's weight are numbers from 0 on; durations are counted
    in collections.

    :raises InvalidError: when one is out of its range.
    """

    weights: str = "headroom"
    """Plug-in of ``acstor.policy.weights``."""
    weight_lambda: float = 1.67
    """The factor of Equation (1)."""
    traffic: str | None = None
    """Traffic that counts for weights: ``in``, ``out``, ``sum`` or ``max`` of the extra traffic;
    None: what the plug-in takes by itself."""
    traffic_floor: float | None = None
    """Of the link: the least traffic that ``equation1`` takes a host to have, and the least spare
    bandwidth that ``headroom`` does; None: what the plug-in takes by itself."""
    weight_floor: float = 0.005
    """Least weight, in ordinary hosts'."""
    weight_ceiling: float = 4.0
    """Largest weight, in ordinary hosts'."""
    overload: float = 0.8
    """A host is overloaded when this part of its link is busy in a direction, ..."""
    overload_extra_min: float = 0.1
    """... and at least this part by extra traffic: where the data plane alone makes a link busy,
    weights are not what helps."""
    successive: int = 2
    """Collections in a row in which a host must be overloaded."""
    cool_down: int = 2
    """Collections after a change of weights in which there is no other one."""
    moved_share_max: float = 0.34
    """Largest part of the circle that one change moves."""
    hysteresis: float = 0.2
    """Weight, in ordinary hosts', by which a host must be off before it is relieved."""
    quiet_period: int = 6
    """Collections in a row without any busy host after which weights may go back."""
    thresholds: str = "none"
    """Plug-in of ``acstor.policy.thresholds``."""
    threshold_min: int = 3
    """Hops below which the threshold is never set: at 1 every read would fall on the origin."""
    threshold_max: int | None = None
    """The threshold while no switch is overloaded, and the largest: what Algorithm 2 begins with;
    None: nobody is too far then, as with the paper's 7 in its tree."""
    switch_overload: float = 0.8
    """A switch is overloaded when this part of its bandwidth is used (Algorithm 2)."""
    forecast: str = "none"
    """Plug-in of ``acstor.policy.forecasts``."""
    horizon: int = 1
    """Collections that a forecast looks ahead."""

    def __post_init__(self) -> None:
        _check_range(self, "weight_lambda", 0.01, 1000.0)
        for name in ("overload", "switch_overload"):
            _check_range(self, name, 0.001, 1.0)
        if self.traffic_floor is not None:
            _check_range(self, "traffic_floor", 0.001, 1.0)
        for name in ("overload_extra_min", "hysteresis"):
            _check_range(self, name, 0.0, 1.0)
        _check_range(self, "weight_floor", 1 / MEAN_WEIGHT, 1.0)
        _check_range(self, "weight_ceiling", 1.0, RELATIVE_MAX)
        _check_range(self, "moved_share_max", 0.01, 1.0)
        _check_range(self, "successive", 1, 100)
        _check_range(self, "cool_down", 0, 1000)
        _check_range(self, "quiet_period", 1, 1000)
        _check_range(self, "threshold_min", 1, 255)
        if self.threshold_max is not None:
            _check_range(self, "threshold_max", self.threshold_min, 255)
        _check_range(self, "horizon", 1, 100)
        if self.traffic not in {None, "in", "out", "sum", "max"}:
            raise exception.InvalidError(f"traffic = {self.traffic!r:.30}")

    @classmethod
    def immediate(cls, **changes: Any) -> "PolicySettings":
        """Return settings that follow the paper to the letter: nothing bounds or delays a step.

        Only the trigger (two successive collections) stays. For comparisons, not for operation.
        """
        plain: dict[str, Any] = {
            "weight_floor": 1 / MEAN_WEIGHT,
            "weight_ceiling": RELATIVE_MAX,
            "cool_down": 0,
            "moved_share_max": 1.0,
            "hysteresis": 0.0,
            "threshold_min": 1,
        }
        return cls(**{**plain, **changes})

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, for journals."""
        return {
            _RECORDED.get(name, name): value for name, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "PolicySettings":
        """Return what :meth:`to_json` returned; unknown fields are ignored.

        :raises InvalidError: when a value is out of its range.
        """
        known = {
            _RECORDED.get(field.name, field.name): field.name for field in dataclasses.fields(cls)
        }
        try:
            return cls(**{known[name]: value for name, value in fields.items() if name in known})
        except TypeError as error:
            raise exception.InvalidError(f"malformed settings: {error!r:.100}") from error


def _check_range(settings: PolicySettings, name: str, lowest: float, highest: float) -> None:
    value = getattr(settings, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not lowest <= value <= highest:
        raise exception.InvalidError(
            f"{name} = {value!r:.30} of the policy", hint=f"choose {lowest} to {highest}"
        )
