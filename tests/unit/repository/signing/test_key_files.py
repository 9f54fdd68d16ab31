"""Key files: openssl's and our own, damaged ones, and those that others may read or change."""

import os
import pathlib
import shutil
import subprocess

import pytest

from acstor import exception, native, private_files
from acstor.repository.signing import key_files

MESSAGE = b"a statement"


def pair_at(folder: pathlib.Path, name: str = "key") -> tuple[pathlib.Path, pathlib.Path]:
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    key_files.make_pair(str(private), str(public))
    return private, public


def openssl(*arguments: object) -> bytes:
    if not shutil.which("openssl"):
        pytest.skip("openssl is missing")
    return subprocess.run(
        ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60
    ).stdout


def test_pair_signs_and_verifies(tmp_path: pathlib.Path) -> None:
    private, public = pair_at(tmp_path)
    key, verifying = (
        key_files.read_private_key(str(private)),
        key_files.read_public_key(str(public)),
    )
    assert key_files.public_key_of(key) == verifying
    assert verifying.is_signer_of(MESSAGE, key.sign(MESSAGE))
    assert not verifying.is_signer_of(MESSAGE + b".", key.sign(MESSAGE))
    assert (private.stat().st_mode & 0o777, public.stat().st_mode & 0o777) == (0o600, 0o644)


def test_keys_of_openssl_are_read_and_ours_by_openssl(tmp_path: pathlib.Path) -> None:
    private, public = tmp_path / "their.pem", tmp_path / "their.pub"
    openssl("genpkey", "-algorithm", "ed25519", "-out", private)
    private.chmod(0o600)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    key = key_files.read_private_key(str(private))
    found = key_files.read_public_key(str(public))
    assert key_files.public_key_of(key) == found
    assert found.encode() == public.read_bytes()
    own_private, own_public = pair_at(tmp_path)
    assert openssl("pkey", "-in", own_private, "-pubout") == own_public.read_bytes()
    der = tmp_path / "key.der"
    openssl("pkey", "-pubin", "-in", own_public, "-outform", "DER", "-out", der)
    name = openssl("dgst", "-sha256", "-r", der).split()[0].decode()
    assert key_files.read_public_key(str(own_public)).id == name


def test_signature_is_that_of_the_standard() -> None:
    """RFC 8032, section 7.1, test 2."""
    seed = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
    key = native.SigningKey(bytes.fromhex("302e020100300506032b657004220420" + seed))
    assert key.public_key.hex() == (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    )
    assert key.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


def test_key_is_never_written_over(tmp_path: pathlib.Path) -> None:
    private, public = pair_at(tmp_path)
    before = private.read_bytes(), public.read_bytes()
    for paths in ((private, tmp_path / "other.pub"), (tmp_path / "other.pem", public)):
        with pytest.raises(exception.InvalidError, match="there already"):
            key_files.make_pair(*map(str, paths))
    assert (private.read_bytes(), public.read_bytes()) == before
    assert not (tmp_path / "other.pem").exists(), "half a pair is none"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o644])
def test_private_key_that_others_can_read_or_write_is_refused(
    tmp_path: pathlib.Path, mode: int
) -> None:
    private, _ = pair_at(tmp_path)
    private.chmod(mode)
    with pytest.raises(exception.ConfigurationError, match=f"mode {mode:04o}"):
        key_files.read_private_key(str(private))
    private.chmod(0o400)
    key_files.read_private_key(str(private))


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_public_key_that_others_can_change_is_refused(tmp_path: pathlib.Path, mode: int) -> None:
    _, public = pair_at(tmp_path)
    public.chmod(mode)
    with pytest.raises(exception.ConfigurationError, match="not believed"):
        key_files.read_public_key(str(public))


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives files away")
def test_public_key_of_another_user_is_refused(tmp_path: pathlib.Path) -> None:
    _, public = pair_at(tmp_path)
    os.chown(public, 12345, -1)
    with pytest.raises(exception.ConfigurationError, match="not believed"):
        key_files.read_public_key(str(public))


def damaged(content: bytes) -> dict[str, bytes]:
    """Return what a key file may become."""
    lines = content.splitlines(keepends=True)
    return {
        "empty": b"",
        "cut": content[: len(content) // 2],
        "without its last line": b"".join(lines[:-1]),
        "a byte less": lines[0] + lines[1][:-3] + b"\n" + lines[2],
        "two keys": content + content,
        "no base64": lines[0] + b"!" + lines[1][1:] + lines[2],
        "zeros": bytes(len(content)),
        "large": content + b"\n" * private_files.FILE_SIZE_MAX,
        "of another kind": content.replace(b" KEY", b" THING"),
    }


@pytest.mark.parametrize("how", damaged(b"a\nb\nc\n"))
def test_damaged_key_file_is_refused_without_being_quoted(tmp_path: pathlib.Path, how: str) -> None:
    private, public = pair_at(tmp_path)
    secret = private.read_text().splitlines()[1]
    for path, read in (
        (private, key_files.read_private_key),
        (public, key_files.read_public_key),
    ):
        path.write_bytes(damaged(path.read_bytes())[how])
        with pytest.raises(exception.ConfigurationError, match=path.name) as caught:
            read(str(path))
        assert secret not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"


def test_private_key_in_the_place_of_a_public_one_is_refused(tmp_path: pathlib.Path) -> None:
    private, _ = pair_at(tmp_path)
    with pytest.raises(exception.ConfigurationError, match="no public key"):
        key_files.read_public_key(str(private))


def test_what_is_no_file_is_refused(tmp_path: pathlib.Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, fifo, tmp_path / "missing"):
        with pytest.raises(exception.ConfigurationError, match=path.name):
            key_files.read_private_key(str(path))
