"""Persisted state of volumes, their sockets and states, apart from the process around them."""

import dataclasses
import os
import pathlib
import re
import socket
import stat

import pytest

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.descriptors import InheritedDescriptors
from acstor.dataplane.groups import group_id
from acstor.dataplane.volumes import persisted_volume, states
from acstor.dataplane.volumes.attachments import VolumeAttachments
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.persisted_volume import PersistedStandby, PersistedVolume
from acstor.dataplane.volumes.sockets import VolumeSockets, descriptor_name
from acstor.dataplane.volumes.states import TRANSITIONS, LocalVolumeEvent, next_state
from acstor.origin.posix import PosixOrigin
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.states import IllegalTransitionError
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.documents import ROOT

VOLUME = "0b8cf0b6-1d6d-4d5a-9b6e-2f6f3a1f0c11"
GOLDEN = ROOT / "tests" / "golden" / "volume-kept-v2.json"
STANDBY_GOLDEN = ROOT / "tests" / "golden" / "volume-standby-v1.json"
STANDBY = PersistedStandby(VOLUME, 1 << 30)
PAGE = ROOT / "doc" / "source" / "reference" / "state-machines" / "volume.rst"
KEPT = PersistedVolume(
    volume=VOLUME,
    epoch=3,
    next=65537,
    size_bytes=1 << 30,
    manifest="5f" * 32,
    logs=[{"volume": VOLUME, "epoch": 2, "first": 10, "last": 12}],
    durability={"default": "write-back", "period_s": 30.0, "regions": [], "flush": "local"},
    iops=0,
    bytes_per_s=1 << 20,
    adopts=2,
    wanted_durability={"default": "write-through"},
)


# Files


def test_kept_volume_version_requires_update() -> None:
    assert persisted_volume.FORMAT_VERSION == 2
    assert KEPT.encode() == GOLDEN.read_bytes()
    assert PersistedVolume.decode(GOLDEN.read_bytes()) == KEPT


def test_what_a_data_plane_before_kept_is_read() -> None:
    older = PersistedVolume.decode((GOLDEN.parent / "volume-kept-v1.json").read_bytes())
    assert older == dataclasses.replace(KEPT, adopts=None, wanted_durability=None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"version":2', b'"version":3'),
        (b'"adopts":2', b'"adopts":-1'),
        (b'"wanted_durability":{', b'"wanted_durability":[],"x":{'),
        (b'"epoch":3', b'"epoch":"3"'),
        (b'"epoch":2', b'"epoch":null'),
        (b'"next":65537,', b""),
        (b'"next":65537', b'"next":65537,"more":1'),
        (b"5f5f", b"../f"),
        (VOLUME.encode(), b"../etc"),
        (b"{", b"["),
    ],
)
def test_malformed_state_is_refused(before: bytes, after: bytes) -> None:
    content = GOLDEN.read_bytes()
    assert before in content
    with pytest.raises(exception.CorruptError):
        PersistedVolume.decode(content.replace(before, after, 1))


def test_kept_standby_version_requires_update() -> None:
    assert persisted_volume.STANDBY_VERSION == 1
    assert STANDBY.encode() == STANDBY_GOLDEN.read_bytes()
    assert PersistedStandby.decode(STANDBY_GOLDEN.read_bytes()) == STANDBY


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"version":1', b'"version":2'),
        (b"1073741824", b"1073741825"),
        (b"1073741824", b"0"),
        (b"1073741824", b'"x"'),
        (b"1073741824", b"1e300"),
        (b"}", b',"more":1}'),
        (b"{", b"["),
    ],
)
def test_malformed_standby_is_refused(before: bytes, after: bytes) -> None:
    content = STANDBY_GOLDEN.read_bytes()
    assert before in content
    with pytest.raises(exception.CorruptError):
        PersistedStandby.decode(content.replace(before, after, 1))


def test_standby_is_kept_until_there_is_something_to_own(tmp_path: pathlib.Path) -> None:
    """Killed after any step, the next process follows or owns the volume, and never forgets it."""
    files = VolumeFiles(str(tmp_path))
    files.keep_standby(STANDBY)
    assert files.kept() == {VOLUME: STANDBY}
    files.make(VOLUME)
    assert files.kept() == {VOLUME: STANDBY}
    files.keep(KEPT, {"5f" * 32: b"manifest"})
    assert files.kept() == {VOLUME: KEPT}
    files.keep_standby(STANDBY)
    assert files.kept() == {VOLUME: STANDBY}
    assert files.find(VOLUME) is None
    # Killed between two steps of either: both are there.
    pathlib.Path(files.directory(VOLUME), "volume.json").write_bytes(KEPT.encode())
    assert files.kept() == {VOLUME: STANDBY}
    files.remove(VOLUME, "it was a standby")
    assert files.kept() == {}


def test_reserve_is_a_share_of_the_file_system(tmp_path: pathlib.Path) -> None:
    found = os.statvfs(tmp_path)
    size = found.f_blocks * found.f_frsize
    assert VolumeFiles(str(tmp_path), 5).reserve_bytes() == size * 5 // 100
    assert VolumeFiles(str(tmp_path)).reserve_bytes() == 0


def test_files_are_there_until_they_are_removed(tmp_path: pathlib.Path) -> None:
    files = VolumeFiles(str(tmp_path / "volumes"))
    assert files.kept() == {}
    assert files.find(VOLUME) is None
    files.make(VOLUME)
    assert files.kept() == {}, "nothing is open before volume.json is there"
    files.keep(KEPT, {"5f" * 32: b"first manifest"})
    assert VolumeFiles(str(tmp_path / "volumes")).kept() == {VOLUME: KEPT}
    assert stat.S_IMODE(os.stat(tmp_path / "volumes").st_mode) == 0o700

    folded = dataclasses.replace(KEPT, manifest="6f" * 32, logs=[])
    (pathlib.Path(files.directory(VOLUME)) / "arriving-x").write_text("half")
    files.keep(folded, {"6f" * 32: b"second manifest"})
    path = files.manifest_path(folded)
    assert path is not None
    assert pathlib.Path(path).read_bytes() == b"second manifest"
    names = sorted(os.listdir(files.directory(VOLUME)))
    assert names == sorted([os.path.basename(path), "clean.json", "log", "volume.json"])

    files.remove(VOLUME, "nobody was served")
    assert files.kept() == {}
    wait_for("its directory is removed", lambda: os.listdir(tmp_path / "volumes") == [])


def test_making_a_volume_forgets_the_log_of_an_epoch_before(tmp_path: pathlib.Path) -> None:
    files = VolumeFiles(str(tmp_path))
    files.make(VOLUME)
    segment = pathlib.Path(files.log_directory(VOLUME)) / "segment"
    segment.write_text("old")
    files.make(VOLUME)
    assert not segment.exists()


def test_state_of_another_volume_is_not_taken(tmp_path: pathlib.Path) -> None:
    files = VolumeFiles(str(tmp_path))
    files.make(VOLUME)
    files.keep(KEPT)
    other = "c6a3a6c0-3f2b-4f6b-8f1c-6a6a35a7a0de"
    os.rename(files.directory(VOLUME), files.directory(other))
    assert isinstance(files.kept()[other], exception.CorruptError)


# Sockets


def attachments(path: pathlib.Path) -> VolumeAttachments:
    return VolumeAttachments(str(path / "attachments"))


def test_socket_is_for_the_group_only(short_path: pathlib.Path) -> None:
    sockets = VolumeSockets(str(short_path / "nbd"), os.getgid(), attachments(short_path))
    with sockets.bind(VOLUME) as listener:
        path = sockets.path(VOLUME)
        assert path is not None
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        assert stat.S_IMODE(os.stat(short_path / "nbd").st_mode) == 0o710
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        assert listener.getsockname() == path
    sockets.remove(VOLUME)
    assert not os.path.exists(path)
    sockets.remove(VOLUME)


def test_inherited_socket_is_taken_over_with_those_who_wait(short_path: pathlib.Path) -> None:
    sockets = VolumeSockets(str(short_path), None, attachments(short_path))
    before = sockets.bind(VOLUME)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(sockets.path(VOLUME)))
        adopted = sockets.restore(VOLUME, os.dup(before.fileno()))
        before.close()
        assert adopted is not None
        with adopted, adopted.accept()[0] as accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


def test_inherited_socket_that_nobody_reaches_is_closed(short_path: pathlib.Path) -> None:
    sockets = VolumeSockets(str(short_path), None, attachments(short_path))
    with sockets.bind(VOLUME) as listener:
        descriptor = os.dup(listener.fileno())
        sockets.remove(VOLUME)
        assert sockets.restore(VOLUME, descriptor) is None
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)
    reading, writing = os.pipe()
    os.close(writing)
    assert sockets.restore(VOLUME, reading) is None


def test_descriptor_is_named_after_the_volume() -> None:
    assert descriptor_name(VOLUME) == "nbd-0b8cf0b61d6d4d5a9b6e2f6f3a1f0c11"


def test_inherited_sockets_are_handed_out_once(short_path: pathlib.Path) -> None:
    sockets = VolumeSockets(str(short_path), None, attachments(short_path))
    with sockets.bind(VOLUME) as listener:
        passed = {
            descriptor_name(VOLUME): os.dup(listener.fileno()),
            "unknown": os.dup(listener.fileno()),
        }
        unknown = passed["unknown"]
        inherited = InheritedDescriptors(passed)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(unknown)
        taken = inherited.take_volumes()
        assert list(taken) == [descriptor_name(VOLUME)]
        assert inherited.take_volumes() == {}
        inherited.close()
        os.close(taken[descriptor_name(VOLUME)])


def test_group_that_does_not_exist_is_named() -> None:
    assert group_id(None, "[volumes] socket_group") is None
    with pytest.raises(exception.ConfigurationError, match=r"\[volumes\] socket_group = 'no such'"):
        group_id("no such", "[volumes] socket_group")


# States


def test_every_pair_of_state_and_event_is_listed_or_refused() -> None:
    for state in LocalVolumeState:
        for event in LocalVolumeEvent:
            if (state, event) in TRANSITIONS:
                assert next_state(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(IllegalTransitionError):
                    next_state(state, event)


def test_page_lists_exactly_the_transitions() -> None:
    row = re.compile(r"   \* - ``(.+)``\n     - ``(.+)``\n     - ``(.+)``\n")
    table = {
        (state.value, event.value, following.value)
        for (state, event), following in states.TRANSITIONS.items()
    }
    assert set(row.findall(PAGE.read_text())) == table
    for state in LocalVolumeState:
        assert f"\n``{state.value}``\n" in PAGE.read_text()


def test_what_the_runtime_notices_is_followed() -> None:
    local = LocalVolume(VOLUME)
    assert not local.observe("fenced"), "nothing of it is here"
    for event in (LocalVolumeEvent.OPEN, LocalVolumeEvent.SERVED, LocalVolumeEvent.FREEZE):
        local.move(event)
    assert not local.observe("frozen")
    assert not local.observe("open")
    assert str(local.state) == "serving"
    assert local.observe("fenced")
    assert str(local.state) == "fenced"
    assert not local.observe("fenced"), "it is told once"


def test_nothing_is_pushed_to_a_directory_where_no_origin_is_mounted(
    tmp_path: pathlib.Path,
) -> None:
    """Pushed content is removed from the log: it would be neither here nor in the origin."""
    access = OriginAccess(lambda: PosixOrigin(str(tmp_path)))
    log, key = access.log_of(VOLUME, 1, None), layout.log_key(VOLUME, 1, 1)
    for _ in range(2):
        with pytest.raises(exception.UnavailableError, match="no repository"):
            log.put_if_absent(key, [b"log"])
    assert list(tmp_path.iterdir()) == []
    Repository.init(PosixOrigin(str(tmp_path)))
    assert log.put_if_absent(key, [b"log"])
