"""The built wheel: complete, importable, one for every Python from 3.11 on."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the wheel as an operator's build host does, with the installed build requirements.

    Its metadata and files are made outside the tree: other tests find their entry points there,
    and stevedore remembers for two minutes what it found while they were being written.
    """
    folder = tmp_path_factory.mktemp("wheel")
    outside = tmp_path_factory.mktemp("build")
    settings = outside / "distutils.cfg"
    settings.write_text(f"[build]\nbuild_base = {outside}\n[egg_info]\negg_base = {outside}\n")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run(
        [*build, "-w", str(folder), str(ROOT)],
        env=os.environ | {"DIST_EXTRA_CONFIG": str(settings)},
        check=True,
        timeout=1200,
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_wheel_is_abi3_for_python_3_11_and_later(wheel: pathlib.Path) -> None:
    assert "-cp311-abi3-linux_" in wheel.name


@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_wheel_imports_the_extension_without_the_source_tree(
    wheel: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """pbr silently drops a setuptools-rust extension unless setup.py re-applies it."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path)
    assert "acstor/_dataplane.abi3.so" in names
    rooms = {name.partition("/")[0] for name in names}
    assert rooms == {"acstor", next(room for room in rooms if room.endswith(".dist-info"))} | {
        room for room in rooms if room.endswith(".data")
    }
    show = "import acstor._dataplane as module; print(module.__file__)"
    result = subprocess.run(
        [sys.executable, "-P", "-c", show],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.strip() == str(tmp_path / "acstor/_dataplane.abi3.so")
