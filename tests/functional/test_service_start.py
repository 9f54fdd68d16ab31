"""The notification driver in the real start of the services that load it."""

import configparser
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from acstor.drivers.brick import registration as brick
from acstor.drivers.nova.volumes import registration as nova

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "functional" / "programs" / "service_start.py"
CONFIGURATION = """
[DEFAULT]
transport_url = fake://
state_path = {path}
compute_driver = {compute_driver}
enabled_backends = none
[database]
connection = sqlite://
[api_database]
connection = sqlite://
[oslo_concurrency]
lock_path = {path}
[coordination]
backend_url = file://{path}
[notifications]
notification_format = both
[oslo_messaging_notifications]
{drivers}
"""


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """Return an environment with the entry point of the sources, whatever else is installed."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    namespace = "oslo.messaging.notify.drivers"
    info = tmp_path / "site" / "acstor_entry_point-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acstor_entry_point\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[{namespace}]\n{setup['entry_points'][namespace].strip()}\n"
    )
    return {
        **os.environ,
        "PYTHONPATH": f"{info.parent}:{ROOT}",
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "OS_NOVA_DISABLE_EVENTLET_PATCHING": "1",
    }


def start(
    program: str,
    environment: dict[str, str],
    tmp_path: pathlib.Path,
    drivers: tuple[str, ...] = ("messagingv2", "acstor"),
    compute_driver: str = "libvirt.LibvirtDriver",
) -> dict[str, Any]:
    pytest.importorskip(program.partition(".")[0])
    path = tmp_path / "service.conf"
    path.write_text(
        CONFIGURATION.format(
            path=tmp_path,
            compute_driver=compute_driver,
            drivers="\n".join(f"driver = {driver}" for driver in drivers),
        )
    )
    result = subprocess.run(
        [sys.executable, str(PROGRAM), program, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert "cannot be used by this service" not in result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_compute_service_knows_volumes_before_it_serves(
    environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    assert start("nova.cmd.compute", environment, tmp_path) == {
        "protocol": brick.CONNECTOR,
        "properties": 1,
        "volume_driver": nova.VOLUME_DRIVER,
        "is_wrapped": True,
    }


@pytest.mark.parametrize(
    "options",
    [{"drivers": ("messagingv2",)}, {"compute_driver": "fake.FakeDriver"}],
    ids=["not configured", "no libvirt"],
)
def test_compute_service_that_does_not_want_them_is_left_alone(
    environment: dict[str, str], tmp_path: pathlib.Path, options: dict[str, Any]
) -> None:
    found = start("nova.cmd.compute", environment, tmp_path, **options)
    assert not found.get("protocol")
    assert not found.get("volume_driver")


@pytest.mark.parametrize("program", ["cinder.cmd.volume", "cinder.cmd.backup"])
def test_cinder_services_know_the_connector(
    environment: dict[str, str], tmp_path: pathlib.Path, program: str
) -> None:
    found = start(program, environment, tmp_path)
    assert found["protocol"] == brick.CONNECTOR
    assert found["properties"] == 1
    assert "volume_driver" not in found
