"""Metrics of the worker, for Prometheus. ``doc/source/admin/worker.rst`` lists them.

Names are constants so that a test can compare them with the page.
"""

import prometheus_client
from prometheus_client.openmetrics import exposition

LEADER = "acstor_worker_leader"
TASKS = "acstor_worker_tasks"
RUNS = "acstor_worker_schedule_runs"
IMAGES = "acstor_worker_left_images_deleted"

ALL = (LEADER, TASKS, RUNS, IMAGES)


class WorkerMetrics:
    """The worker's metrics in a registry of their own."""

    def __init__(self) -> None:
        """Count nothing yet."""
        registry = self._registry = prometheus_client.CollectorRegistry()
        self.leader = prometheus_client.Gauge(
            LEADER, "1 for the worker that ticks schedules, 0 for others", registry=registry
        )
        self.tasks = prometheus_client.Counter(
            TASKS, "Tasks that this worker brought to an end", ["kind", "state"], registry=registry
        )
        self.runs = prometheus_client.Counter(
            RUNS, "Slots of schedules for which a task was queued", registry=registry
        )
        self.images = prometheus_client.Counter(
            IMAGES,
            "Images in Glance that tasks had left behind and that this worker deleted",
            registry=registry,
        )

    def text(self) -> str:
        """Return the metrics as OpenMetrics text."""
        return exposition.generate_latest(self._registry).decode()  # type: ignore[no-untyped-call,no-any-return]
