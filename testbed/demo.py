"""The demo: boot one guest per host at once, with each approach in turn, and compare."""

import dataclasses
import logging
import pathlib
import time

from testbed import accelerator, boot_storm, measurement
from testbed.approaches import names
from testbed.approaches.base import Approach
from testbed.exception import TestbedError
from testbed.guest import build, machine
from testbed.guest.build import GuestImage
from testbed.guest.recipe import GuestRecipe
from testbed.live_view import LiveView
from testbed.measurement import ApproachResult, Conditions, DemoResult
from testbed.run_directory import DEFAULT_ROOT
from testbed.testbed import Testbed, TestbedSettings

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """Settings of the demo."""

    testbed: TestbedSettings
    approaches: tuple[str, ...]
    guests_per_host: int = 1
    check_content: bool = False
    keep: bool = False
    root: pathlib.Path = DEFAULT_ROOT
    recipe: GuestRecipe = dataclasses.field(default_factory=GuestRecipe)


class Stopwatch:
    """Seconds that the steps of the preparation took."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._last = time.monotonic()
        self.seconds: dict[str, float] = {}

    def lap(self, step: str) -> None:
        """Note the time since the last step under a name."""
        now = time.monotonic()
        self.seconds[step] = now - self._last
        self._view.step(f"{step}: {self.seconds[step]:.1f} s")
        self._last = now


def run_demo(settings: DemoSettings, view: LiveView) -> DemoResult:
    """Run the demo; everything it made on the machine is removed when it returns.

    An approach that fails is reported and the next one goes on.

    :raises TestbedError: when the guest or the hosts cannot be made.
    """
    machine_before = measurement.machine()
    stopwatch = Stopwatch(view)
    guests = settings.root / "guests"
    image = build.build_guest(settings.recipe, guests)
    stopwatch.lap("guest image (built once, then kept)")
    chosen = accelerator.choose(image.kernel, guests)
    stopwatch.lap(f"accelerator: {chosen.name}")
    storm_settings = boot_storm.StormSettings(
        accelerator=chosen,
        guests_per_host=settings.guests_per_host,
        check_content=settings.check_content,
    )
    results = []
    with Testbed.create(settings.testbed, settings.root, keep=settings.keep) as testbed:
        stopwatch.lap(f"network of {settings.testbed.host_count} hosts and an origin")
        for name in settings.approaches:
            results.append(_run_approach(name, testbed, image, storm_settings, view))
    conditions = Conditions(
        host_count=settings.testbed.host_count,
        guests_per_host=settings.guests_per_host,
        origin_rate=str(settings.testbed.origin_rate),
        host_rate=str(settings.testbed.host_rate),
        accelerator=chosen.name,
        guest_memory_mib=machine.MEMORY_MIB,
        disk_size_bytes=image.disk_size_bytes,
        machine=machine_before,
    )
    return DemoResult(conditions, results, stopwatch.seconds)


def _run_approach(
    name: str,
    testbed: Testbed,
    image: GuestImage,
    settings: boot_storm.StormSettings,
    view: LiveView,
) -> ApproachResult:
    approach: Approach = names.APPROACHES[name](testbed, image)
    with view.approach(approach.title, approach.explanation):
        storm: boot_storm.Storm | None = None
        failure = None
        try:
            try:
                approach.start()
                storm = boot_storm.run_storm(approach, settings, view.watch)
                approach.measure()
            finally:
                approach.stop()
        except TestbedError as error:
            LOG.error("%s: %s", name, error)
            failure = str(error)
    result = boot_storm.result(approach, storm, failure)
    view.approach_over(result)
    return result
