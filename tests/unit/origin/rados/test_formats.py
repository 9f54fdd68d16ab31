"""Heads and refs in RADOS as bytes, the URL of pools, and where the binding is looked for."""

import importlib.machinery
import pathlib
import urllib.parse

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados import binding, head, refs
from acstor.origin.rados.head import Head, Kind
from acstor.origin.rados.origin import RadosOrigin

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden"
NONCE = bytes(range(1, 17))


def parsed(stored: bytes) -> base.Ref:
    _, length, nonce, checksum = refs._parse_head(stored, "name")
    return refs._checked("name", stored, length, nonce, checksum)


def test_head_requires_a_new_version() -> None:
    stored = (GOLDEN / "rados-head-v1.bin").read_bytes()
    assert head.HEAD_VERSION == 1
    assert len(stored) == head.HEAD_BYTES
    found = Head.parse(stored, "golden")
    assert found == Head(Kind.STRIPED, 9 << 20, 4 << 20, NONCE)
    assert found.stripe_count == 3
    assert found.encode() == stored, "bump HEAD_VERSION"


def test_ref_requires_a_new_version() -> None:
    stored = (GOLDEN / "rados-ref-v1.bin").read_bytes()
    assert refs.REF_VERSION == 1
    content = b'{"a": "record"}\n'
    assert parsed(stored) == base.Ref(NONCE.hex(), content)
    assert refs._encode(content, NONCE) == stored, "bump REF_VERSION"


def test_damaged_head_is_refused() -> None:
    stored = Head.new(Kind.WHOLE, 5, 4096).encode()
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 1
        with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
            Head.parse(bytes(damaged), "x")
    with pytest.raises(exception.CorruptError):
        Head.parse(stored[:-1], "x")


def test_damaged_ref_is_never_taken_for_the_ref() -> None:
    stored = refs._encode(b"content", NONCE)
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 1
        with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
            parsed(bytes(damaged))


def test_nonce_is_never_what_a_missing_object_compares_as() -> None:
    assert refs._nonce_of("00" * 16) == b"\xff" * 16
    assert refs._nonce_of("no token") == b"\xff" * 16
    assert any(refs._new_nonce())


def test_binding_is_found_for_this_python_only(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rados.cpython-10-some.so").touch()
    assert binding.find((str(tmp_path),)) is None
    path = tmp_path / f"rados{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    path.touch()
    assert binding.find((str(tmp_path),)) == str(path)
    assert binding.find((str(tmp_path),), binding.RBD) is None


@pytest.mark.parametrize(
    "url",
    [
        "rados://",
        "rados://pool/path",
        "rados://user:secret@pool",
        "rados://pool?other=1",
        "rados://pool?conf=",
        "rados://pool?timeout=0",
        "rados://pool?timeout=never",
        "rados://pool?namespace=a.o",
        "rados://pool?namespace=%01",
        "rados://pool?role=guest",
    ],
)
def test_bad_url_is_refused(url: str) -> None:
    with pytest.raises(exception.InvalidError) as caught:
        RadosOrigin.from_url(urllib.parse.urlsplit(url))
    assert "secret" not in str(caught.value)
