"""Gauge of the services that another one depends on."""

import prometheus_client

LABEL = "dependency"
FORMER_LABEL = "neighbour"
"""The same as :data:`LABEL`, for one release more."""


class DependencyGauge:
    """1 for each dependency that was in order when last asked, 0 for the others.

    :param name: of the metric.
    """

    def __init__(
        self, name: str, help_text: str, registry: prometheus_client.CollectorRegistry
    ) -> None:
        self._gauge = prometheus_client.Gauge(
            name, help_text, [LABEL, FORMER_LABEL], registry=registry
        )

    def set(self, dependency: str, is_in_order: bool) -> None:
        """Set the state of a dependency."""
        self._gauge.labels(dependency, dependency).set(is_in_order)
