"""Finding weight policies, threshold policies, forecasts and orders of hints by their names."""

from typing import Any

import stevedore.driver
import stevedore.exception
import stevedore.extension

from acstor import exception
from acstor.policy.forecasts.base import Forecast
from acstor.policy.neighbourhoods.base import Neighbourhood
from acstor.policy.settings import PolicySettings
from acstor.policy.thresholds.base import ThresholdPolicy
from acstor.policy.weights.base import WeightPolicy

WEIGHTS = "acstor.policy.weights"
THRESHOLDS = "acstor.policy.thresholds"
FORECASTS = "acstor.policy.forecasts"
NEIGHBOURHOODS = "acstor.policy.neighbourhoods"


def weight_policy(settings: PolicySettings) -> WeightPolicy:
    """Return the weight policy that the settings name.

    :raises UnsupportedError: when there is none of that name.
    """
    policy: WeightPolicy = _made(WEIGHTS, settings.weights, settings)
    return policy


def threshold_policy(settings: PolicySettings) -> ThresholdPolicy:
    """Return the threshold policy that the settings name; errors as in :func:`weight_policy`."""
    policy: ThresholdPolicy = _made(THRESHOLDS, settings.thresholds, settings)
    return policy


def forecast(settings: PolicySettings) -> Forecast:
    """Return the forecast that the settings name; errors as in :func:`weight_policy`."""
    found: Forecast = _made(FORECASTS, settings.forecast, settings)
    return found


def neighbourhood(name: str, fan_out: int) -> Neighbourhood:
    """Return an order of hints; errors as in :func:`weight_policy`.

    :param fan_out: hosts to which each passes hints on, where the order has a choice.
    """
    found: Neighbourhood = _made(NEIGHBOURHOODS, name, fan_out)
    return found


def _made(namespace: str, name: str, argument: PolicySettings | int) -> Any:
    try:
        return stevedore.driver.DriverManager(namespace, name).driver(argument)
    except stevedore.exception.NoMatches as error:
        known = sorted(stevedore.extension.ExtensionManager(namespace).names())
        raise exception.UnsupportedError(
            f"there is no {name!r} in {namespace}",
            hint=f"choose one of {', '.join(known)}, or install the package that provides it",
        ) from error
