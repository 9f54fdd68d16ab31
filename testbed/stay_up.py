"""Hosts with ACStor that stay up: to look around, to boot guests by hand, to break things."""

import pathlib

from testbed import accelerator, boot_storm
from testbed.approaches.collaborative import Acstor
from testbed.exception import TestbedError
from testbed.guest import build
from testbed.guest.recipe import GuestRecipe
from testbed.live_view import LiveView
from testbed.measurement import ApproachResult
from testbed.run_directory import RunDirectory
from testbed.testbed import Testbed, TestbedSettings


def bring_up(settings: TestbedSettings, root: pathlib.Path) -> str:
    """Start hosts with ACStor, leave them up, and return what to tell the user.

    :raises TestbedError: when something does not start; nothing is left then.
    """
    image = build.build_guest(GuestRecipe(), root / "guests")
    with Testbed.create(settings, root) as testbed:
        approach = Acstor(testbed, image)
        approach.start()
        lines = [f"run {testbed.run.id} is up, below {testbed.run.path}", ""]
        for host in approach.hosts.values():
            lines.append(f"{host.host.name}  namespace {host.host.namespace}  {host.host.address}")
            lines.append(f"    {host.disk(approach.repository.image_id)}")
            lines.append(f"    acstor --config-file {host.config_path} dataplane status")
        lines += ["", "boot guests:  tools/testbed boot", "remove it:    tools/testbed down", ""]
        testbed.detach()
        return "\n".join(lines)


def boot_guests(
    run_id: str | None, root: pathlib.Path, view: LiveView, *, check_content: bool
) -> ApproachResult:
    """Boot a guest on each host of a run that is up; the run stays up.

    :param run_id: None: the newest run that is up.
    :raises TestbedError: when there is no such run.
    """
    runs = [run for run in RunDirectory.all(root) if run.is_detached]
    runs = [run for run in runs if run_id in (None, run.id)]
    if not runs:
        raise TestbedError("there is no such run", hint="tools/testbed up starts one")
    image = build.build_guest(GuestRecipe(), root / "guests")
    chosen = accelerator.choose(image.kernel, root / "guests")
    with Testbed.open(runs[-1]) as testbed:
        approach = Acstor(testbed, image)
        approach.take_over()
        settings = boot_storm.StormSettings(chosen, check_content=check_content)
        with view.approach(approach.title, approach.explanation):
            storm = boot_storm.run_storm(approach, settings, view.watch)
            approach.measure()
        result = boot_storm.result(approach, storm)
    view.approach_over(result)
    return result
