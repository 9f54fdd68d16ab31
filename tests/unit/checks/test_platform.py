"""Checks of kernel, QEMU and libvirt."""

import os
import pathlib

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks import platform
from tests.unit.checks.conftest import Configure, text


@pytest.mark.parametrize(
    ("release", "code"),
    [
        ("6.12.48+deb13-amd64", Code.SUCCESS),
        ("6.9.0", Code.SUCCESS),
        ("6.1.0-40-amd64", Code.WARNING),
        ("5.15.0-91-generic", Code.FAILURE),
        ("custom", Code.WARNING),
    ],
)
def test_kernel(
    compute: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, release: str, code: Code
) -> None:
    found = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*found[:2], release, *found[3:])))
    result = platform.check_kernel(compute)
    assert result.code is code
    assert release in text(result)


@pytest.fixture
def tools(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Be the only directory on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def say(folder: pathlib.Path, name: str, text: str, status: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
    path.chmod(0o755)


def test_tools_that_are_new_enough(compute: cfg.ConfigOpts, tools: pathlib.Path) -> None:
    say(tools, "qemu-img", "qemu-img version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)")
    say(tools, "libvirtd", "libvirtd (libvirt) 9.0.0")
    assert platform.check_qemu(compute).code is Code.SUCCESS
    assert text(platform.check_libvirt(compute)) == "libvirtd (libvirt) 9.0.0"


def test_tools_that_are_too_old(compute: cfg.ConfigOpts, tools: pathlib.Path) -> None:
    say(tools, "qemu-img", "qemu-img version 5.2.0")
    say(tools, "virtqemud", "virtqemud (libvirt) 7.10.0")
    assert platform.check_qemu(compute).code is Code.FAILURE
    assert platform.check_libvirt(compute).code is Code.FAILURE


def test_tools_that_are_not_there_or_fail(compute: cfg.ConfigOpts, tools: pathlib.Path) -> None:
    say(tools, "libvirtd", "no", status=1)
    assert platform.check_qemu(compute).code is Code.WARNING
    assert platform.check_libvirt(compute).code is Code.WARNING


def test_controller_needs_none_of_them(configure: Configure, tools: pathlib.Path) -> None:
    conf = configure()
    for check in (platform.check_kernel, platform.check_qemu, platform.check_libvirt):
        assert check(conf).code is Code.SUCCESS
