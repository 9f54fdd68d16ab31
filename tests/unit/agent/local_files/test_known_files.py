"""Persisted state of a host's local files, and the states of one."""

import pathlib
import uuid

import pytest

from acstor import exception
from acstor.agent.reconcilers.local_files import known_files, states
from acstor.agent.reconcilers.local_files.known_files import KnownFile, KnownFiles
from acstor.agent.reconcilers.local_files.states import LocalFileState

ROOT = pathlib.Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden" / "local-files-v1.json"
PAGE = ROOT / "doc" / "source" / "reference" / "state-machines" / "local-file.rst"
KNOWN = KnownFiles(
    "/var/lib/nova/instances/_base",
    {
        str(uuid.UUID(int=1)): KnownFile(
            LocalFileState.LINKED, "a" * 64, 2 << 30, 1 << 30, 1795416899.5, True
        ),
        str(uuid.UUID(int=2)): KnownFile(
            LocalFileState.WAITING, "b" * 64, reason="there is no room"
        ),
    },
)


def test_local_files_version_requires_update() -> None:
    assert known_files.FILE_VERSION == 1
    assert KNOWN.encode() == GOLDEN.read_bytes()
    assert KnownFiles.parse(GOLDEN.read_bytes()) == KNOWN


def test_what_was_saved_is_loaded(tmp_path: pathlib.Path) -> None:
    path = known_files.path_in(str(tmp_path))
    assert known_files.load(path) is None
    known_files.save(path, KNOWN)
    assert known_files.load(path) == KNOWN


@pytest.mark.parametrize(
    ("found", "changed"),
    [
        (b'"linked"', b'"gone"'),
        (b'"aaaa', b'"AAAA'),
        (b"2147483648", b"-1"),
        (b"1073741824", b"true"),
        (b"1795416899.5", b'"now"'),
        (b"true", b"1"),
        (b'"reason": ""', b'"reason": 7'),
        (b"00000000-0000-0000-0000-000000000001", b"no id"),
        (b'"files"', b'"other"'),
        (b"{", b""),
    ],
)
def test_malformed_file_is_an_error(found: bytes, changed: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        KnownFiles.parse(GOLDEN.read_bytes().replace(found, changed, 1))


def test_file_of_a_newer_release_is_unsupported() -> None:
    with pytest.raises(exception.UnsupportedError):
        KnownFiles.parse(GOLDEN.read_bytes().replace(b'"version": 1', b'"version": 2'))


def test_page_lists_exactly_the_transitions() -> None:
    listed = {
        tuple(cell.strip().strip("`") for cell in line.split("|")[1:4])
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ``")
    }
    assert listed == {
        (
            "absent" if state is None else state.value,
            event.value,
            "absent" if following is None else following.value,
        )
        for (state, event), following in states.TRANSITIONS.items()
    }
