"""Trusted keys: a directory that changes, is damaged, or is not there."""

import os
import pathlib
from collections.abc import Callable

import pytest

from acstor.repository.signing import trusted_keys
from acstor.repository.signing.trusted_keys import TrustedKeys
from tests.unit.repository.signing.keys import install, private, public


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "keys"


def test_directory_that_is_not_there_has_no_keys(folder: pathlib.Path) -> None:
    keys = TrustedKeys(str(folder))
    assert (len(keys), keys.problems, keys.refresh()) == (0, {}, False)
    install(folder, 1)
    assert keys.refresh()
    assert keys.find(public(1).id) == public(1)


def test_keys_come_and_go_with_their_files(folder: pathlib.Path) -> None:
    install(folder, 1)
    keys = TrustedKeys(str(folder))
    (folder / "README").write_text("no key")
    install(folder, 1, 2)
    assert keys.refresh()
    assert not keys.refresh(), "nothing has changed since"
    assert (keys.find(public(1).id), keys.find(public(2).id)) == (public(1), public(2))
    install(folder, 2)
    assert keys.refresh()
    assert keys.find(public(1).id) is None
    (folder / "2.pub").unlink()
    folder.rmdir()
    assert keys.refresh()
    assert len(keys) == 0


def make_damaged(folder: pathlib.Path) -> None:
    (folder / "1.pub").write_bytes(b"-----BEGIN PUBLIC KEY-----\nMCow")


def make_writable(folder: pathlib.Path) -> None:
    (folder / "1.pub").chmod(0o666)


def make_dangling(folder: pathlib.Path) -> None:
    (folder / "1.pub").unlink()
    (folder / "1.pub").symlink_to("nowhere")


@pytest.mark.parametrize("spoil", [make_damaged, make_writable, make_dangling])
def test_key_file_that_is_spoilt_is_a_problem_and_no_key(
    folder: pathlib.Path, spoil: Callable[[pathlib.Path], None]
) -> None:
    install(folder, 1, 2)
    keys = TrustedKeys(str(folder))
    spoil(folder)
    assert keys.refresh(), "it is not trusted any more"
    assert keys.find(public(1).id) is None
    assert keys.find(public(2).id) == public(2), "the others are"
    assert list(keys.problems) == [str(folder / "1.pub")]
    (folder / "1.pub").unlink()
    keys.refresh()
    assert keys.problems == {}


def test_directory_that_others_may_change_has_no_keys(folder: pathlib.Path) -> None:
    install(folder, 1)
    folder.chmod(0o777)
    keys = TrustedKeys(str(folder))
    assert len(keys) == 0
    assert "others may change" in keys.problems[str(folder / "1.pub")]
    folder.chmod(0o755)
    assert keys.refresh()
    assert (len(keys), keys.problems) == (1, {})


def test_directory_that_cannot_be_read_leaves_the_keys(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder, 1)
    keys = TrustedKeys(str(folder))

    def fail(path: str) -> None:
        raise OSError(5, os.strerror(5), path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fail)
        assert not keys.refresh()
    assert keys.find(public(1).id) == public(1)
    assert "Input/output error" in keys.problems[str(folder)]
    keys.refresh()
    assert keys.problems == {}


def test_number_of_keys_is_bounded(folder: pathlib.Path) -> None:
    install(folder, *range(trusted_keys.KEYS_MAX + 1))
    keys = TrustedKeys(str(folder))
    assert len(keys) == trusted_keys.KEYS_MAX
    assert str(folder) in keys.problems


def test_own_key_is_trusted_besides(folder: pathlib.Path) -> None:
    install(folder, 1)
    keys = TrustedKeys(str(folder)).including(public(2))
    install(folder, 3)
    keys.refresh()
    assert [keys.find(public(number).id) is not None for number in (1, 2, 3)] == [
        False, True, True,
    ]  # fmt: skip
    assert private(2).public_key == public(2).content
