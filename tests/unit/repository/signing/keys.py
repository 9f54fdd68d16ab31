"""Keys for tests: the same number is the same key."""

import pathlib

from acstor import native
from acstor.repository.signing.key_files import PublicKey, public_key_of
from acstor.repository.signing.trusted_keys import TrustedKeys

_HEAD = bytes.fromhex("302e020100300506032b657004220420")


def private(number: int) -> native.SigningKey:
    """Return a private key."""
    return native.SigningKey(_HEAD + bytes(range(number, number + 32)))


def public(number: int) -> PublicKey:
    """Return the public key that belongs to it."""
    return public_key_of(private(number))


def trusted(*numbers: int) -> TrustedKeys:
    """Return trust in some keys, for ever."""
    return TrustedKeys(None, map(public, numbers))


def install(directory: pathlib.Path, *numbers: int) -> None:
    """Have a directory hold the public keys of these numbers and no others."""
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for number in numbers:
        path = directory / f"{number}.pub"
        path.write_bytes(public(number).encode())
        path.chmod(0o644)
