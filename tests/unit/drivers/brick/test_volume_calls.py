import os
import pathlib

import pytest

from acstor import exception
from acstor.drivers.brick.volume_calls import OpenedVolume, VolumeCalls, VolumeInUseError
from testbed.doubles.volume_socket import MemoryVolumeSocket
from tests.unit.drivers.conftest import SIZE, VOLUME

UNKNOWN = "00000000-0000-0000-0000-000000000009"


def test_opening_says_where_the_volume_is_served(volume_socket: MemoryVolumeSocket) -> None:
    calls = VolumeCalls(volume_socket.path)
    opened = calls.open(VOLUME)
    assert opened == OpenedVolume(f"/run/acstor/nbd/{VOLUME}.sock", VOLUME, SIZE, "owner")
    assert calls.open(VOLUME) == opened


def test_a_standby_that_became_owner_is_said_to_be_owner(volume_socket: MemoryVolumeSocket) -> None:
    calls = VolumeCalls(volume_socket.path)
    calls.open(VOLUME, "owner")
    assert calls.open(VOLUME, "standby").role == "owner"


def test_volume_of_another_host_is_refused(volume_socket: MemoryVolumeSocket) -> None:
    volume_socket.elsewhere.add(VOLUME)
    with pytest.raises(exception.FencedError, match="owned by h2"):
        VolumeCalls(volume_socket.path).open(VOLUME)


def test_unknown_volume_is_not_found_when_opened_and_closed_when_closed(
    volume_socket: MemoryVolumeSocket,
) -> None:
    calls = VolumeCalls(volume_socket.path)
    with pytest.raises(exception.NotFoundError):
        calls.open(UNKNOWN)
    calls.close(UNKNOWN)


def test_closing_waits_for_a_client_that_leaves(volume_socket: MemoryVolumeSocket) -> None:
    calls = VolumeCalls(volume_socket.path)
    calls.open(VOLUME)

    class Leaving(dict[str, int]):
        looks = 0

        def get(self, key: str, default: object = None) -> int:
            Leaving.looks += 1
            return 1 if Leaving.looks < 3 else 0

    volume_socket.clients = Leaving()
    calls.close(VOLUME)
    assert not volume_socket.open
    assert Leaving.looks == 3


def test_closing_is_refused_while_a_client_stays(volume_socket: MemoryVolumeSocket) -> None:
    calls = VolumeCalls(volume_socket.path)
    calls.open(VOLUME)
    volume_socket.clients[VOLUME] = 1
    with pytest.raises(VolumeInUseError, match="in use"):
        calls.close(VOLUME, wait=0.2)
    assert VOLUME in volume_socket.open
    calls.close(VOLUME, force=True)
    assert not volume_socket.open


def test_no_data_plane_is_unavailable_and_says_what_to_do(tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.UnavailableError) as caught:
        VolumeCalls(str(tmp_path / "nothing.sock")).open(VOLUME)
    assert "volume_socket" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_user_outside_the_group_is_told_which_group(
    volume_socket: MemoryVolumeSocket, tmp_path: pathlib.Path
) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    before = os.geteuid()
    os.seteuid(65534)
    try:
        with pytest.raises(exception.ConfigurationError) as caught:
            VolumeCalls(volume_socket.path).close(VOLUME)
    finally:
        os.seteuid(before)
    assert "control_group" in caught.value.hint


def test_answer_without_a_socket_names_the_likely_cause(
    volume_socket: MemoryVolumeSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = VolumeCalls(volume_socket.path)
    monkeypatch.setattr(calls, "_call", lambda *_, **__: {"export": "5ecre7"})
    with pytest.raises(exception.InternalError) as caught:
        calls.open(VOLUME)
    assert "same release" in caught.value.hint
    assert "5ecre7" not in str(caught.value), "Nova logs it"
    assert "5ecre7" not in repr(OpenedVolume("/run/x.sock", "5ecre7", 512, "owner"))
