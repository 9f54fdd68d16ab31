"""The client's wheel: pure Python, and the OpenStack client finds its commands."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from testbed.fixtures.documents import ROOT

BUILD_TIMEOUT = 600


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the wheel of a copy, with the installed build requirements."""
    outside = tmp_path_factory.mktemp("client")
    source = outside / "clients"
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__", "build")
    shutil.copytree(ROOT / "clients", source, ignore=ignored)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run(
        [*build, "-w", str(outside), str(source)],
        env=os.environ | {"PBR_VERSION": "0.1.0"},  # the copy is in no repository
        check=True,
        timeout=BUILD_TIMEOUT,
    )
    (found,) = outside.glob("*.whl")
    return found


@pytest.mark.timeout(700)
def test_wheel_is_pure_and_complete(wheel: pathlib.Path) -> None:
    assert wheel.name == "python_acstorclient-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        requirements = archive.read(metadata).decode()
    sources = (ROOT / "clients" / "acstorclient").rglob("*.py")
    own = {str(path.relative_to(ROOT / "clients")) for path in sources}
    assert own | {"acstorclient/py.typed"} == {name for name in names if ".dist-info/" not in name}
    assert "Requires-Dist: openstacksdk>=" in requirements
    assert "Requires-Dist: acstor" not in requirements


@pytest.mark.timeout(700)
def test_openstack_client_finds_the_commands(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    command = [sys.executable, "-P", "-m", "openstackclient.shell"]
    done = subprocess.run(
        [*command, "acstor", "version", "create", "--help"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT,
    )
    assert "acstor version create [-h]" in done.stdout
    assert "--consistency" in done.stdout
