"""Checks of what volumes need on a compute host."""

import grp
import os
import pathlib
import pwd
import types

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks import volumes
from tests.unit.checks.conftest import Configure, text
from tests.unit.checks.test_platform import say

NOTIFICATIONS = "[oslo_messaging_notifications]\ndriver = messagingv2\ndriver = acstor\n"
GROUPS = {"acstor-volumes": 901, "acstor-nbd": 902}


@pytest.fixture
def nova_conf(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "nova.conf"
    path.write_text(NOTIFICATIONS)
    return path


@pytest.fixture
def configured(configure: Configure, nova_conf: pathlib.Path) -> cfg.ConfigOpts:
    return configure(
        f"[image_links]\nenabled = true\nnova_config_file = {nova_conf}\n"
        "[volumes]\ncontrol_group = acstor-volumes\nsocket_group = acstor-nbd\n"
    )


@pytest.fixture
def tools(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Groups of each user of the services that this host has; the test changes them."""
    found = {
        "nova": {"acstor-volumes"},
        "cinder": {"acstor-volumes", "acstor-nbd"},
        "libvirt-qemu": {"acstor-nbd"},
    }

    def user(name: str) -> object:
        if name not in found:
            raise KeyError(name)
        return types.SimpleNamespace(pw_gid=7)

    def group(name: str) -> object:
        return types.SimpleNamespace(gr_gid=GROUPS[name])

    monkeypatch.setattr(pwd, "getpwnam", user)
    monkeypatch.setattr(grp, "getgrnam", group)
    monkeypatch.setattr(
        os, "getgrouplist", lambda name, gid: [gid, *(GROUPS[group] for group in found[name])]
    )
    return found


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("libvirtd (libvirt) 11.3.0", Code.SUCCESS),
        ("libvirtd (libvirt) 9.2.0", Code.SUCCESS),
        ("libvirtd (libvirt) 9.0.0", Code.FAILURE),
        ("libvirtd (libvirt) unknown", Code.FAILURE),
    ],
)
def test_libvirt(configured: cfg.ConfigOpts, tools: pathlib.Path, said: str, code: Code) -> None:
    say(tools, "libvirtd", said)
    result = volumes.check_libvirt(configured)
    assert result.code is code
    assert said in text(result)


def test_libvirt_that_is_elsewhere_is_a_warning(
    configured: cfg.ConfigOpts, tools: pathlib.Path
) -> None:
    assert volumes.check_libvirt(configured).code is Code.WARNING


def test_host_whose_nova_loads_no_driver_needs_nothing(
    configured: cfg.ConfigOpts, nova_conf: pathlib.Path, tools: pathlib.Path
) -> None:
    say(tools, "libvirtd", "libvirtd (libvirt) 9.0.0")
    nova_conf.write_text("[oslo_messaging_notifications]\ndriver = messagingv2\n")
    for check in (volumes.check_libvirt, volumes.check_access):
        result = check(configured)
        assert result.code is Code.SUCCESS
        assert "no volumes" in text(result)


def test_controller_and_host_without_volumes_need_nothing(
    configure: Configure, nova_conf: pathlib.Path, tools: pathlib.Path
) -> None:
    for written in ("", "[image_links]\nenabled = true\n[volumes]\nenabled = false\n"):
        conf = configure(written)
        for check in (volumes.check_libvirt, volumes.check_access):
            assert check(conf).code is Code.SUCCESS


def test_groups_as_they_should_be(configured: cfg.ConfigOpts, members: dict[str, set[str]]) -> None:
    result = volumes.check_access(configured)
    assert result.code is Code.SUCCESS
    assert "acstor-nbd" in text(result)


@pytest.mark.parametrize(
    ("user", "group"),
    [("nova", "acstor-volumes"), ("cinder", "acstor-nbd"), ("libvirt-qemu", "acstor-nbd")],
)
def test_user_who_is_not_in_his_group_is_a_failure(
    configured: cfg.ConfigOpts, members: dict[str, set[str]], user: str, group: str
) -> None:
    members[user].discard(group)
    result = volumes.check_access(configured)
    assert result.code is Code.FAILURE
    assert f"usermod -aG {group} {user}" in text(result)


def test_qemu_that_may_open_volumes_is_a_warning(
    configured: cfg.ConfigOpts, members: dict[str, set[str]]
) -> None:
    members["libvirt-qemu"].add("acstor-volumes")
    assert volumes.check_access(configured).code is Code.WARNING


def test_group_that_is_unset_or_unknown_is_a_failure(
    configure: Configure, nova_conf: pathlib.Path, members: dict[str, set[str]]
) -> None:
    conf = configure(
        f"[image_links]\nenabled = true\nnova_config_file = {nova_conf}\n"
        "[volumes]\nsocket_group = nobodys\n"
    )
    result = volumes.check_access(conf)
    assert result.code is Code.FAILURE
    assert "control_group is not set" in text(result)
    assert "nobodys is no group" in text(result)


def test_services_that_are_root_need_no_group(
    configure: Configure, nova_conf: pathlib.Path, members: dict[str, set[str]]
) -> None:
    members.clear()
    conf = configure(f"[image_links]\nenabled = true\nnova_config_file = {nova_conf}\n")
    assert volumes.check_access(conf).code is Code.SUCCESS
