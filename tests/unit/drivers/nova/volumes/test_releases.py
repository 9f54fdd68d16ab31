"""Releases of Nova with which volumes are attached."""

import configparser
import importlib
import importlib.metadata
import logging
import os
import pathlib
import sys
from typing import Any

import pytest

pytest.importorskip("nova", reason="nova is not installed")

from nova.virt.libvirt import driver as nova_driver
from oslo_config import cfg

from acstor import exception
from acstor.drivers import notification
from acstor.drivers.nova.volumes import disk_xml, registration, releases

ROOT = pathlib.Path(__file__).parents[5]
UNTESTED = ["31.2.0", "35.0.0", "35.0.0.0rc1", "9.0", "master", ""]


def install(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """Have a release of Nova be the installed one; None: of no known version."""

    def found(name: str) -> str:
        assert name == "nova"
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)


def test_installed_release_is_supported() -> None:
    releases.check()
    wanted = os.environ.get("ACSTOR_NOVA")  # by tox
    if wanted:
        assert importlib.metadata.version("nova").startswith(f"{wanted}.")


@pytest.mark.parametrize("version", ["32.0.0", "32.2.1", "33.0.2", "34.0.0.0rc1", "34.1.0.dev7"])
def test_tested_releases_are_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    install(monkeypatch, version)
    releases.check()


@pytest.mark.parametrize("version", [*UNTESTED, None])
def test_other_releases_are_refused_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    install(monkeypatch, version)
    monkeypatch.setattr(nova_driver, "VOLUME_DRIVERS", {"nfs": "a.b"})
    monkeypatch.setattr(disk_xml, "install", lambda: pytest.fail("the disk's class was wrapped"))
    with pytest.raises(exception.UnsupportedError, match=r"32 .*33 .*34 "):
        registration.register()
    assert nova_driver.VOLUME_DRIVERS == {"nfs": "a.b"}


def test_refused_release_is_told_without_a_traceback_and_gets_no_connector(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, "35.0.0")
    called: list[str] = []
    brick = importlib.import_module(notification.BRICK)
    monkeypatch.setattr(brick, "register", lambda: called.append("brick"))
    monkeypatch.setitem(sys.modules, "nova.cmd.compute", None)
    conf: Any = cfg.ConfigOpts()
    conf.register_opt(cfg.StrOpt("compute_driver", default="libvirt.LibvirtDriver"))
    driver = notification.AcstorDriver(conf, [], None)
    driver.notify({}, {}, "info", 0)
    assert called == []
    assert {record.levelno for record in caplog.records} == {logging.WARNING, logging.ERROR}
    assert not any(record.exc_info for record in caplog.records)
    assert "Nova 35.0.0" in caplog.text


def test_matrix_of_tox_has_the_supported_releases() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    section = "testenv:nova{" + ",".join(map(str, sorted(releases.SUPPORTED))) + "}"
    for major in releases.SUPPORTED:
        assert f"nova{major}: nova=={major}.*" in tox[section]["deps"]


@pytest.mark.parametrize("page", ["install/nova-volumes.rst", "install/index.rst"])
def test_guides_name_the_supported_releases(page: str) -> None:
    first, *_, last = sorted(releases.SUPPORTED)
    assert f"{first} to {last}" in (ROOT / "doc" / "source" / page).read_text()
