"""Attachments: a secret for each opening of a volume, over restarts; none of it anywhere else."""

import json
import logging
import os
import pathlib
import re
import socket
import stat
from typing import Any

import pytest

from acstor import exception
from acstor.dataplane.volumes.attachments import (
    ATTACHMENT_VERSION,
    VolumeAttachment,
    VolumeAttachments,
)
from acstor.dataplane.volumes.sockets import VolumeSockets, descriptor_name
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "volume-attachment-v1.json"
ATTACHMENT = VolumeAttachment(VOLUME, "4f" * 16, "a7" * 16)
OTHER = "c6a3a6c0-3f2b-4f6b-8f1c-6a6a35a7a0de"


def file_of(host: HostUnderTest) -> pathlib.Path:
    return pathlib.Path(host.conf.volumes.directory) / "attachments" / f"{VOLUME}.json"


def served(host: HostUnderTest) -> dict[str, Any]:
    """Return how a volume is served, once it is."""
    wait_for("the volume is served", lambda: host.state == "serving")
    return host.open()


def test_file_is_the_golden_one() -> None:
    """Raise ATTACHMENT_VERSION and add a golden file when this fails after a change of the
    format."""
    assert ATTACHMENT_VERSION == 1
    assert ATTACHMENT.encode() == GOLDEN.read_bytes()
    assert VolumeAttachment.decode(GOLDEN.read_bytes()) == ATTACHMENT


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2}, {"token": VOLUME}, {"token": "4F" * 16}, {"socket": "../../etc/passwd"},
        {"socket": None}, {"volume": "x"}, {"more": 1},
    ],
)  # fmt: skip
def test_malformed_file_is_corrupt_and_not_quoted(change: dict[str, object]) -> None:
    fields = {**json.loads(GOLDEN.read_bytes()), **change}
    with pytest.raises(exception.CorruptError) as caught:
        VolumeAttachment.decode(json.dumps(fields).encode())
    assert "4f4f" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}".lower()


def test_each_attachment_has_secrets_of_its_own(host: HostUnderTest) -> None:
    names = set()
    for _ in range(3):
        opened = host.open()
        path = pathlib.Path(opened["socket"])
        assert path.parent == pathlib.Path(host.conf.volumes.socket_directory)
        assert re.fullmatch(r"[0-9a-f]{32}", opened["export"])
        assert re.fullmatch(r"[0-9a-f]{32}\.sock", path.name)
        assert VOLUME not in opened["socket"]
        assert opened["export"] not in opened["socket"], "/proc/net/unix shows the path"
        assert host.device.token == opened["export"]
        assert stat.S_IMODE(file_of(host).stat().st_mode) == 0o600
        assert stat.S_IMODE(file_of(host).parent.stat().st_mode) == 0o700
        names |= {opened["export"], path.stem}
        host.call("close", force=False)
        assert not file_of(host).exists()
    assert len(names) == 6


def test_restart_keeps_the_attachment(host: HostUnderTest) -> None:
    opened = host.open()
    for _ in range(2):
        host.restart()
        assert served(host) == opened
        assert host.device.token == opened["export"]


def test_volume_that_a_former_release_opened_keeps_its_name(host: HostUnderTest) -> None:
    """Its guests connect again under the volume's id, until it is detached."""
    opened = host.open()
    host.plane.stop_for_next()
    file_of(host).unlink()
    os.unlink(opened["socket"])
    host.plane.start()
    opened = served(host)
    former = f"{host.conf.volumes.socket_directory}/{VOLUME}.sock"
    assert (opened["export"], opened["socket"]) == (VOLUME, former)
    host.restart()
    assert served(host) == opened
    assert host.device.token == VOLUME
    host.call("close", force=False)
    assert not os.path.exists(former)
    assert VOLUME not in {host.open()["export"], host.device.token}


def test_opening_that_was_killed_is_no_volume_of_a_former_release(host: HostUnderTest) -> None:
    assert host.plane.runtime is not None
    host.plane.runtime.fail_next_open = "exhausted"
    with pytest.raises(exception.ExhaustedError):
        host.open()
    assert not file_of(host).exists()
    # Killed right after it began: nothing else of it is there.
    host.plane.stop_for_next()
    killed = VolumeAttachments(str(file_of(host).parent)).begin(VOLUME)
    leftover = pathlib.Path(host.conf.volumes.socket_directory, f"{killed.socket}.sock")
    leftover.touch()
    host.plane.start()
    assert not file_of(host).exists()
    assert not leftover.exists()
    assert host.open()["export"] not in {VOLUME, killed.token}


def test_file_that_is_damaged_gives_another_token(
    host: HostUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    opened = host.open()
    host.plane.stop_for_next()
    file_of(host).write_bytes(file_of(host).read_bytes()[:-3])
    host.plane.start()
    assert served(host)["export"] not in {VOLUME, opened["export"]}
    assert "its clients cannot connect again" in caplog.text
    assert opened["export"] not in caplog.text


def test_only_who_opens_a_volume_is_told_the_token(
    host: HostUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        token = host.open()["export"]
        for said in (host.call("status"), host.client.call("volume.list")):
            assert token not in json.dumps(said)
        host.restart()
        served(host)
        host.call("close", force=False)
    assert caplog.records
    assert token not in caplog.text
    assert token not in repr(VolumeAttachment(VOLUME, token, "a7" * 16))


def test_attachment_that_cannot_be_kept_opens_nothing(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = file_of(host).parent
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.touch()  # where the directory should be
    with pytest.raises(exception.UnavailableError, match="cannot be kept"):
        host.open()
    assert host.client.call("volume.list") == []
    directory.unlink()
    assert host.open()["state"] == "serving"


# Sockets that the process before left


@pytest.fixture
def attachments(tmp_path: pathlib.Path) -> VolumeAttachments:
    return VolumeAttachments(str(tmp_path / "attachments"))


def test_socket_of_a_former_release_tells_that_it_opened_the_volume(
    short_path: pathlib.Path, attachments: VolumeAttachments, tmp_path: pathlib.Path
) -> None:
    """Also where this release had it open before that, and left its file."""
    attachments.begin(VOLUME)
    path = short_path / f"{VOLUME}.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        sockets = VolumeSockets(
            str(short_path), None, VolumeAttachments(str(tmp_path / "attachments"))
        )
        adopted = sockets.restore(VOLUME, os.dup(listener.fileno()))
        assert adopted is not None
        adopted.close()
    assert (sockets.path(VOLUME), sockets.token(VOLUME)) == (str(path), VOLUME)


def test_sockets_of_two_volumes_are_not_confused(
    short_path: pathlib.Path, attachments: VolumeAttachments, tmp_path: pathlib.Path
) -> None:
    before = VolumeSockets(str(short_path), None, attachments)
    with before.bind(VOLUME) as first, before.bind(OTHER) as second:
        after = VolumeSockets(
            str(short_path), None, VolumeAttachments(str(tmp_path / "attachments"))
        )
        assert after.restore(VOLUME, os.dup(second.fileno())) is None, "it is another volume's"
        adopted = after.restore(OTHER, os.dup(second.fileno()))
        assert adopted is not None
        adopted.close()
        assert first.getsockname() == after.path(VOLUME)
        assert before.token(VOLUME) == after.token(VOLUME) != after.token(OTHER)
    assert descriptor_name(VOLUME) != descriptor_name(OTHER)


@pytest.mark.root
def test_socket_that_somebody_gave_to_root_is_the_group_s_again(
    short_path: pathlib.Path, attachments: VolumeAttachments
) -> None:
    """systemd does, with all that is in a RuntimeDirectory= whose owner it changes."""
    group = 65533
    sockets = VolumeSockets(str(short_path), group, attachments)
    with sockets.bind(VOLUME) as listener:
        path = sockets.path(VOLUME)
        assert path is not None
        for given in (path, short_path):
            os.chown(given, 0, 0)
        adopted = sockets.restore(VOLUME, os.dup(listener.fileno()))
        assert adopted is not None
        adopted.close()
        for given in (path, short_path):
            assert os.stat(given).st_gid == group


def test_socket_that_cannot_be_given_is_served_all_the_same(
    short_path: pathlib.Path, attachments: VolumeAttachments, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    own = VolumeSockets(str(short_path), None, attachments)
    with own.bind(VOLUME) as listener:
        monkeypatch.setattr(os, "chown", refuse)
        sockets = VolumeSockets(str(short_path), 65533, attachments)
        adopted = sockets.restore(VOLUME, os.dup(listener.fileno()))
        assert adopted is not None
        adopted.close()
