"""The file of UEFI variables: the bytes, what is refused, and what failures leave."""

import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.agent.restores.uefi_variables import SUFFIX, VariablesTarget
from acstor.repository.source.base import SECTOR_SIZE

FORMER, LATER = b"former".ljust(1024, b"\1"), b"later".ljust(1024, b"\2")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    found = tmp_path / "guest_VARS.fd"
    found.write_bytes(FORMER)
    return found


def put(path: pathlib.Path, content: bytes) -> int:
    """Replace the file; return how often something was about to be written."""
    touches: list[bool] = []
    target = VariablesTarget(str(path), content)
    try:
        target.put(lambda: touches.append(True))
    finally:
        target.close()
    assert os.listdir(path.parent) == [path.name]
    return len(touches)


@given(
    former=st.binary(min_size=1, max_size=2 * SECTOR_SIZE),
    fill=st.binary(min_size=1, max_size=2 * SECTOR_SIZE),
)
def test_bytes_are_the_versions(
    tmp_path_factory: pytest.TempPathFactory, former: bytes, fill: bytes
) -> None:
    """A version has zeros up to a whole sector, which the file had not."""
    path = tmp_path_factory.mktemp("nvram") / "vars"
    path.write_bytes(former)
    wanted = (fill * len(former))[: len(former)]
    assert put(path, wanted + bytes(-len(wanted) % SECTOR_SIZE)) == (wanted != former)
    assert path.read_bytes() == wanted


def test_file_of_a_process_that_was_killed_is_replaced(path: pathlib.Path) -> None:
    pathlib.Path(f"{path}{SUFFIX}").write_bytes(b"half")
    assert put(path, LATER) == 1
    assert path.read_bytes() == LATER


def test_file_that_is_not_put_leaves_nothing(path: pathlib.Path) -> None:
    target = VariablesTarget(str(path), LATER)
    assert path.read_bytes() == FORMER
    target.close()
    target.close()
    assert os.listdir(path.parent) == [path.name]


def test_file_that_was_written_meanwhile_is_left_alone(path: pathlib.Path) -> None:
    target = VariablesTarget(str(path), LATER)
    path.write_bytes(b"guest".ljust(1024))
    with pytest.raises(exception.ConflictError, match="was written"):
        target.put(lambda: None)
    target.close()
    assert path.read_bytes() == b"guest".ljust(1024)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("is_link", [True, False])
def test_new_file_that_another_has_exchanged_is_not_put(path: pathlib.Path, is_link: bool) -> None:
    """The folder is that of the user who QEMU is."""
    target, made = VariablesTarget(str(path), LATER), pathlib.Path(f"{path}{SUFFIX}")
    made.unlink()
    if is_link:
        made.symlink_to("/etc/passwd")
    else:
        made.write_bytes(b"strange".ljust(1024))
    touches: list[bool] = []
    with pytest.raises(exception.ConflictError, match="was exchanged"):
        target.put(lambda: touches.append(True))
    target.close()
    assert (touches, path.read_bytes()) == ([], FORMER)
    assert os.listdir(path.parent) == [path.name]


def test_new_file_that_is_not_there_after_all_is_no_success(path: pathlib.Path) -> None:
    """Another one in its place, or in that of its folder: the set counts as half written."""
    target = VariablesTarget(str(path), LATER)
    touches: list[bool] = []

    def move_away() -> None:
        touches.append(True)
        path.parent.rename(f"{path.parent}-moved")
        path.parent.mkdir()
        path.write_bytes(FORMER)

    with pytest.raises(exception.ConflictError, match="was exchanged"):
        target.put(move_away)
    target.close()
    assert (touches, target.written_bytes, path.read_bytes()) == ([True], 0, FORMER)


@pytest.mark.parametrize("content", [b"", LATER[:512], LATER * 2])
def test_variables_of_another_firmware_are_refused(path: pathlib.Path, content: bytes) -> None:
    with pytest.raises(exception.UnsupportedError, match="another firmware"):
        VariablesTarget(str(path), content)
    assert path.read_bytes() == FORMER


def test_link_is_not_followed(path: pathlib.Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(exception.UnavailableError):
        VariablesTarget(str(link), LATER)
    assert path.read_bytes() == FORMER


@pytest.mark.parametrize("call", ["fchown", "fchmod", "fsync", "listxattr"])
def test_file_that_cannot_be_like_the_former_is_not_put(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Mode, owner and label are the guest's way to it; a label is one of the attributes."""

    def fail(*arguments: object) -> None:
        raise OSError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(exception.UnavailableError, match="not permitted"):
            VariablesTarget(str(path), LATER)
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == FORMER


def test_attributes_are_given_but_where_they_are_the_same(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = {"security.selinux": b"svirt_image_t", "user.known": b"same"}
    given_: dict[str, bytes] = {}

    def get(descriptor: int, name: str) -> bytes:
        if name == "security.selinux" and descriptor != former[0]:
            raise OSError(61, "No data available")
        return attributes[name]

    former: list[int] = []

    def names(descriptor: int) -> list[str]:
        former.append(descriptor)
        return list(attributes)

    monkeypatch.setattr(os, "listxattr", names)
    monkeypatch.setattr(os, "getxattr", get)
    monkeypatch.setattr(os, "setxattr", lambda fd, name, value: given_.update({name: value}))
    assert put(path, LATER) == 1
    assert given_ == {"security.selinux": b"svirt_image_t"}
