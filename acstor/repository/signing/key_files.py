"""Key files, PEM as openssl writes and reads them: one private key, or one public key.

A private key is PKCS#8, a public key a SubjectPublicKeyInfo (RFC 8410). No message tells what is
in the file of a private key.
"""

import base64
import binascii
import dataclasses
import hashlib
import os
import re
import stat

from acstor import exception, native, private_files
from acstor.files import sync_directory

PUBLIC_KEY_SIZE = 32

_PUBLIC_HEAD = bytes.fromhex("302a300506032b6570032100")
"""Beginning of a SubjectPublicKeyInfo of Ed25519, before the key."""
_PEM = re.compile(rb"\s*-----BEGIN ([A-Z ]+)-----\s+([A-Za-z0-9+/=\s]+)-----END \1-----\s*\Z")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LINE_LENGTH = 64


@dataclasses.dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key of Ed25519."""

    content: bytes
    """The key itself, 32 bytes."""

    @property
    def id(self) -> str:
        """Name of the key: SHA-256 of its SubjectPublicKeyInfo in DER, hexadecimal."""
        return hashlib.sha256(_PUBLIC_HEAD + self.content).hexdigest()

    def is_signer_of(self, message: bytes, signature: bytes) -> bool:
        """Return whether a message has this signature of this key."""
        return native.is_signed_by(self.content, message, signature)

    def encode(self) -> bytes:
        """Return the content of a key file."""
        return _encode_pem(b"PUBLIC KEY", _PUBLIC_HEAD + self.content)


def public_key_of(key: native.SigningKey) -> PublicKey:
    """Return the public key that belongs to a private one."""
    return PublicKey(key.public_key)


def read_private_key(path: str) -> native.SigningKey:
    """Return the private key in a file that nobody else can read.

    :raises ConfigurationError: when it cannot be read, is none, or others than its owner may read
        or write it, or its owner is neither root nor the user who runs this (root may use any).
    """
    content = private_files.read_private(path, "private key")
    try:
        return native.SigningKey(_decode_pem(content, b"PRIVATE KEY"))
    except (ValueError, native.DataPlaneError):
        # Without the cause: what is in the file is told to nobody.
        raise exception.ConfigurationError(
            f"{path} holds no private key of Ed25519",
            hint="make a pair with 'acstor repository keygen'",
        ) from None


def read_public_key(path: str) -> PublicKey:
    """Return the public key in a file that nobody but root, or this user, can change.

    :raises ConfigurationError: when it cannot be read, is none, or others may change it.
    """
    content = private_files.read_checked(path, "public key", check_unchangeable)
    try:
        document = _decode_pem(content, b"PUBLIC KEY")
    except ValueError:
        document = b""
    head, key = document[: len(_PUBLIC_HEAD)], document[len(_PUBLIC_HEAD) :]
    if head != _PUBLIC_HEAD or len(key) != PUBLIC_KEY_SIZE:
        raise exception.ConfigurationError(
            f"{path} holds no public key of Ed25519",
            hint="copy the file again that 'acstor repository keygen' has made",
        )
    return PublicKey(key)


def check_unchangeable(path: str, found: os.stat_result) -> None:
    """Refuse a file or directory that others than root and this user may change.

    :raises ConfigurationError: when they may.
    """
    if found.st_uid not in {0, os.geteuid()} or found.st_mode & _OTHERS_WRITE:
        raise exception.ConfigurationError(
            f"others may change {path}: it is not believed",
            hint=f"chown root:root {path}; chmod go-w {path}",
        )


def make_pair(private_path: str, public_path: str) -> PublicKey:
    """Make a pair of keys in two files that are not there yet; return the public key.

    :raises InvalidError: when one of them is there: a key is never written over.
    :raises OSError: when one cannot be written.
    """
    document = native.make_signing_key()
    public = public_key_of(native.SigningKey(document))
    _create(private_path, _encode_pem(b"PRIVATE KEY", document), 0o600)
    try:
        _create(public_path, public.encode(), 0o644)
    except BaseException:
        os.unlink(private_path)
        raise
    return public


def _decode_pem(content: bytes, label: bytes) -> bytes:
    """Return the one document in a PEM file.

    :raises ValueError: when there is none with that label; it does not quote the file.
    """
    match = _PEM.match(content)
    if match is None or match[1] != label:
        raise ValueError("another label")
    try:
        return base64.b64decode(b"".join(match[2].split()), validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None


def _encode_pem(label: bytes, document: bytes) -> bytes:
    text = base64.b64encode(document)
    lines = [text[start : start + _LINE_LENGTH] for start in range(0, len(text), _LINE_LENGTH)]
    return b"\n".join(
        [b"-----BEGIN " + label + b"-----", *lines, b"-----END " + label + b"-----\n"]
    )


def _create(path: str, content: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise exception.InvalidError(
            f"{path} is there already, and a key is never written over",
            hint="give another name; an old private key is removed by hand once nothing needs it",
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(os.path.dirname(os.path.abspath(path)))
