"""The dashboard's wheel: pure Python, complete, with its translations compiled."""

import gettext
import io
import pathlib
import zipfile

import pytest

from testbed.fixtures.documents import ROOT
from testbed.fixtures.wheels import build_wheel

BUILD_TIMEOUT = 600
SUFFIXES = {".py", ".html", ".yaml", ".js", ".scss", ".po"}
"""Files that the plug-in consists of."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the wheel."""
    return build_wheel(ROOT / "dashboard", tmp_path_factory.mktemp("dashboard"), BUILD_TIMEOUT)


@pytest.mark.timeout(700)
def test_wheel_is_pure_and_complete(wheel: pathlib.Path) -> None:
    assert wheel.name == "acstor_dashboard-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        requirements = archive.read(metadata).decode()
    folder = ROOT / "dashboard"
    sources = (folder / "acstor_dashboard").rglob("*")
    own = {str(path.relative_to(folder)) for path in sources if path.suffix in SUFFIXES}
    compiled = {name.removesuffix(".po") + ".mo" for name in own if name.endswith(".po")}
    assert own | compiled == {name for name in names if ".dist-info/" not in name}
    for requirement in ("horizon>=27", "python-acstorclient>="):
        assert f"Requires-Dist: {requirement}" in requirements
    assert "Requires-Dist: acstor>" not in requirements


@pytest.mark.timeout(700)
def test_translations_are_compiled(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read("acstor_dashboard/locale/de/LC_MESSAGES/django.mo")
    catalogue = gettext.GNUTranslations(io.BytesIO(content))
    assert catalogue.gettext("Take Version") == "Version nehmen"
    assert catalogue.ngettext("%(count)d day", "%(count)d days", 3) == "%(count)d Tage"
