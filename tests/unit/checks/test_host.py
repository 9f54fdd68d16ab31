"""Checks of what this host keeps and runs."""

import os
import pathlib
import pwd
import shutil
import tempfile
import types
import zlib
from collections.abc import Mapping
from typing import Any

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor import exception, version
from acstor.checks import host
from tests.unit.checks.conftest import Configure, text

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "chunk-store-superblock-v1.bin"


def test_machine_without_a_data_plane_is_no_compute_host(configure: Configure) -> None:
    conf = configure()
    for check in (host.check_directories, host.check_image_access, host.check_data_plane):
        result = check(conf)
        assert (result.code, text(result)) == (Code.SUCCESS, host.NOT_COMPUTE)


def test_extension_module_works(configure: Configure) -> None:
    result = host.check_extension(configure())
    assert result.code is Code.SUCCESS
    # BLAKE3 of nothing, from the test vectors of its authors.
    assert "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262" in text(result)


def test_chunk_store_of_this_release_is_read(
    compute: cfg.ConfigOpts, tmp_path: pathlib.Path
) -> None:
    """Raise STORE_VERSION when this fails after a new version of the format."""
    assert "holds none" in text(host.check_chunk_store(compute))
    shutil.copy(GOLDEN, tmp_path / "store" / "superblock")
    result = host.check_chunk_store(compute)
    assert (result.code, text(result)) == (Code.SUCCESS, "version 1, chunks of 65536 bytes")


def test_chunk_store_of_another_version_is_a_failure(
    compute: cfg.ConfigOpts, tmp_path: pathlib.Path
) -> None:
    block = bytearray(GOLDEN.read_bytes())
    block[8:12] = (2).to_bytes(4, "little")
    block[60:64] = zlib.crc32(bytes(block[:60])).to_bytes(4, "little")
    (tmp_path / "store" / "superblock").write_bytes(block)
    result = host.check_chunk_store(compute)
    assert result.code is Code.FAILURE
    assert "has version 2, this release reads 1" in text(result)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (None, Code.SUCCESS, "session version 1"),
        ((8, 2), Code.FAILURE, "has version 2, this release takes over 1"),
        ((0, 0), Code.FAILURE, "is damaged"),
    ],
)
def test_session_that_is_to_be_taken_over(
    compute: cfg.ConfigOpts,
    tmp_path: pathlib.Path,
    change: tuple[int, int] | None,
    code: Code,
    said: str,
) -> None:
    """Raise SESSION_VERSION when this fails after a new version of the format."""
    assert host.check_take_over(compute).code is Code.SUCCESS
    session = bytearray(GOLDEN.with_name("fuse-session-v1.bin").read_bytes())
    if change is not None:
        session[change[0]] = change[1]
    (tmp_path / "dataplane").mkdir()
    (tmp_path / "dataplane" / "fuse-session").write_bytes(session)
    result = host.check_take_over(compute)
    assert result.code is code
    assert said in text(result)


@pytest.mark.parametrize("position", [0, 8, 20, 63])
def test_damaged_superblock_is_told_from_a_newer_one(
    compute: cfg.ConfigOpts, tmp_path: pathlib.Path, position: int
) -> None:
    block = bytearray(GOLDEN.read_bytes())
    block[position] ^= 0x5A
    (tmp_path / "store" / "superblock").write_bytes(block)
    result = host.check_chunk_store(compute)
    assert result.code is Code.WARNING
    assert "is damaged" in text(result)


def test_short_superblock_is_damaged(compute: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    (tmp_path / "store" / "superblock").write_bytes(GOLDEN.read_bytes()[:40])
    assert "is damaged" in text(host.check_chunk_store(compute))


def test_directory_that_others_may_write_is_a_failure(
    compute: cfg.ConfigOpts, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "store").chmod(0o777)
    result = host.check_directories(compute)
    assert result.code is Code.FAILURE
    assert f"chmod o-w {tmp_path}/store" in text(result)


def test_directories_of_the_data_plane_s_user_are_fine_but_for_those_above_the_mount(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    conf = configure(
        f"[dataplane]\nuser = nobody\nmount_point = {tmp_path}/mounted/images\nimage_group =\n"
    )
    (tmp_path / "mounted").mkdir()
    store = pathlib.Path(conf.store.path)
    store.mkdir(exist_ok=True)
    user = pwd.getpwnam("nobody").pw_uid
    os.chown(store, user, -1)
    assert str(store) not in text(host.check_directories(conf)).partition("can be written")[0]
    os.chown(tmp_path / "mounted", user, -1)
    assert f"{tmp_path}/mounted (owner {user}" in text(host.check_directories(conf))


def test_images_that_nova_cannot_reach_are_a_failure(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "store").mkdir()
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    result = host.check_directories(configure(f"[dataplane]\nmount_point = {folder}/images\n"))
    assert result.code is Code.FAILURE
    assert "has no x for others" in text(result)


def test_mount_for_root_only_is_a_failure(configure: Configure, tmp_path: pathlib.Path) -> None:
    (tmp_path / "store").mkdir()
    result = host.check_image_access(configure("[dataplane]\nallow_other = false\n"))
    assert result.code is Code.FAILURE
    assert "neither Nova nor QEMU can read images" in text(result)


READERS = 4242


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Groups of the users of Nova and QEMU that this host has; the test changes them."""
    found = {"nova": {READERS}, "libvirt-qemu": {READERS}}

    def user(name: str) -> object:
        if name not in found:
            raise KeyError(name)
        return types.SimpleNamespace(pw_gid=7)

    monkeypatch.setattr(pwd, "getpwnam", user)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, *found[name]])
    return found


def closed(configure: Configure, tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    (tmp_path / "store").mkdir()
    return configure(f"[dataplane]\nimage_group = {READERS}\n")


def test_readers_of_images_are_in_their_group(
    configure: Configure, tmp_path: pathlib.Path, readers: dict[str, set[int]]
) -> None:
    conf = closed(configure, tmp_path)
    assert host.check_image_access(conf).code is Code.SUCCESS
    readers.clear()  # they run in containers
    assert host.check_image_access(conf).code is Code.SUCCESS


@pytest.mark.parametrize("user", ["nova", "libvirt-qemu"])
def test_reader_who_is_not_in_the_group_is_a_failure(
    configure: Configure, tmp_path: pathlib.Path, readers: dict[str, set[int]], user: str
) -> None:
    conf = closed(configure, tmp_path)
    readers[user].clear()
    result = host.check_image_access(conf)
    assert result.code is Code.FAILURE
    assert f"usermod -aG {READERS} {user}" in text(result)


def test_images_that_everybody_reads_are_a_warning(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "store").mkdir()
    result = host.check_image_access(configure("[dataplane]\nimage_group =\n"))
    assert result.code is Code.WARNING
    assert "every user of this host" in text(result)


@pytest.mark.root
@pytest.mark.parametrize(("group", "code"), [(READERS, Code.SUCCESS), (7, Code.FAILURE)])
def test_readers_pass_a_directory_of_their_group(
    configure: Configure, tmp_path: pathlib.Path, group: int, code: Code
) -> None:
    (tmp_path / "store").mkdir()
    # pytest's own directories are for their owner only.
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 0, READERS)
        os.chmod(folder, 0o710)
        conf = configure(f"[dataplane]\nmount_point = {folder}/images\nimage_group = {group}\n")
        assert host.check_directories(conf).code is code


class AnsweringClient:
    """An admin client whose data plane says what the test wants."""

    status: Mapping[str, Any] | exception.AcstorError

    def __init__(self, path: str, timeout: float) -> None:
        self.path = path

    def call(self, method: str) -> Mapping[str, Any]:
        assert method == "status"
        if isinstance(self.status, exception.AcstorError):
            raise self.status
        return self.status


def answer(**changes: Any) -> dict[str, Any]:
    return {
        "version": version.release(),
        "fuse": {"connected": True},
        "mount_point": "/m",
        "pid": 7,
        "process_state": "serving",
        **changes,
    }


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (answer(), Code.SUCCESS, "process 7, serving"),
        (answer(version="0.0.1"), Code.WARNING, "acstor host restart-dataplane"),
        (answer(fuse={"connected": False}), Code.FAILURE, "the file system at /m is gone"),
        (exception.DeadlineError("it sleeps"), Code.WARNING, "systemctl start acstor-dataplane"),
        (exception.InvalidError("not for you"), Code.FAILURE, "not for you"),
    ],
)
def test_running_data_plane(
    compute: cfg.ConfigOpts,
    monkeypatch: pytest.MonkeyPatch,
    status: Mapping[str, Any] | exception.AcstorError,
    code: Code,
    said: str,
) -> None:
    monkeypatch.setattr(AnsweringClient, "status", status, raising=False)
    monkeypatch.setattr(host, "AdminClient", AnsweringClient)
    result = host.check_data_plane(compute)
    assert result.code is code
    assert said in text(result)


def test_absent_data_plane_is_a_warning(compute: cfg.ConfigOpts) -> None:
    result = host.check_data_plane(compute)
    assert result.code is Code.WARNING
    assert "cannot be reached" in text(result)
