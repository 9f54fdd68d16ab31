"""Accounts of the hosts: the machine's and ours, whose numbers stay."""

import pathlib
import shutil

import pytest

from testbed.onebox import accounts, network
from testbed.onebox.configuration import acstor
from testbed.onebox.directory import OneBoxDirectory

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-sysusers", path="/usr/bin:/bin") is None, reason="needs systemd-sysusers"
)


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> OneBoxDirectory:
    directory = OneBoxDirectory(pathlib.Path("/nowhere"))
    directory.hosts = tmp_path / "hosts"
    directory.etc(network.CONTROLLER).mkdir(parents=True)
    return directory


def written(directory: OneBoxDirectory) -> dict[str, str]:
    texts = accounts.texts(directory, network.CONTROLLER)
    for name, text in texts.items():
        (directory.etc(network.CONTROLLER) / name).write_text(text)
    return texts


def members(text: str, group: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"{group}:"))
    return line.rpartition(":")[2].split(",")


def test_hosts_have_the_machines_accounts_and_ours(directory: OneBoxDirectory) -> None:
    texts = written(directory)
    for name, text in texts.items():
        machine = pathlib.Path("/etc") / name
        assert set(machine.read_text().splitlines()) <= set(text.splitlines())
    for group in (acstor.VOLUMES_GROUP, acstor.NBD_GROUP):
        assert acstor.USER in members(texts["group"], group)
    user = accounts.user_of(directory, network.CONTROLLER)
    assert f"{acstor.USER}:x:{user.uid}:{user.gid}:" in texts["passwd"]
    assert user.uid != 0


def test_user_of_qemu_reads_images_and_volumes_but_opens_none(directory: OneBoxDirectory) -> None:
    groups = written(directory)["group"]
    for group in (acstor.IMAGES_GROUP, acstor.NBD_GROUP):
        assert acstor.GUEST_USER in members(groups, group)
    assert acstor.GUEST_USER not in members(groups, acstor.VOLUMES_GROUP)


def test_numbers_of_before_stay(directory: OneBoxDirectory) -> None:
    """Files of the user are there."""
    first = written(directory)
    before = accounts.user_of(directory, network.CONTROLLER)
    other = f":{before.uid - 7}:{before.gid - 7}:"
    text = first["passwd"].replace(f":{before.uid}:{before.gid}:", other)
    (directory.etc(network.CONTROLLER) / "passwd").write_text(text)
    group = first["group"].replace(f":{before.gid}:", f":{before.gid - 7}:")
    (directory.etc(network.CONTROLLER) / "group").write_text(group)
    written(directory)
    after = accounts.user_of(directory, network.CONTROLLER)
    assert (after.uid, after.gid) == (before.uid - 7, before.gid - 7)
