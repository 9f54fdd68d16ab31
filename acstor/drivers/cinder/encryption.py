"""LUKS headers of encrypted volumes: written before the volume is first attached.

Nova has QEMU open an encrypted volume with its own LUKS support and formats it only where the
volume is a device node, so the driver does that, with qemu-img, in a file that is then stored.
The volume is larger than Cinder says by the header, so that guests see the size that was asked for.
"""

import binascii
import contextlib
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from castellan import key_manager
from cinder import exception as cinder_exception
from cinder.image import image_utils
from cinder.volume import volume_utils
from oslo_config import cfg

from acstor import exception

GIB = 1 << 30
SECTOR_SIZE = 512
LUKS_MAGIC = b"LUKS\xba\xbe"
LUKS_HEADER = struct.Struct(">6sH96xI")
"""Magic, version, three names that do not matter here, payload offset in sectors."""

Execute = Callable[..., Any]


def refuse_copy(source: Any, copy: Any) -> None:
    """Refuse Cinder's generic copy of one volume into another where either is encrypted.

    It copies as many bytes as a guest sees, not the header, so the end would be missing; and what
    changes the key it copies through dm-crypt, which wants device nodes.

    :raises UnsupportedError: where that is asked for.
    """
    if source.encryption_key_id is None and copy.encryption_key_id is None:
        return
    raise exception.UnsupportedError(
        f"volume {source.id} is not copied: a volume of ACStor is not encrypted, decrypted or, "
        "when it is encrypted, moved to another repository by a copy",
        hint="make a volume of the wanted type, attach both to an instance and copy there",
    )


def header_bytes(size_bytes: int) -> int:
    """Return how much of the size of an encrypted volume is its LUKS header.

    Sizes that Cinder knows are whole GiB, and a header is far smaller than one.
    """
    return size_bytes % GIB


def header_of(path: str) -> int:
    """Return the length of the LUKS header in a file: where its payload begins, bytes.

    Source: LUKS1 On-Disk Format Specification 1.2.3, section 2.

    :raises InvalidError: when the file has no LUKS header of version 1.
    """
    with open(path, "rb") as file:
        header = file.read(LUKS_HEADER.size)
    if len(header) == LUKS_HEADER.size:
        magic, version, payload_sectors = LUKS_HEADER.unpack(header)
        if magic == LUKS_MAGIC and version == 1 and payload_sectors:
            return int(payload_sectors) * SECTOR_SIZE
    raise exception.InvalidError("qemu-img wrote no LUKS header of version 1")


def create_formatted(
    context: Any, volume: Any, path: str, directory: str, execute: Execute
) -> None:
    """Make a sparse file with the LUKS header of an empty volume.

    :param path: of a file that is there and empty.
    :param directory: for the file with the passphrase.
    :raises UnsupportedError: when the volume type's encryption is not LUKS version 1.
    """
    encryption = _encryption_of(context, volume)
    cipher = image_utils.decode_cipher(encryption["cipher"], encryption["key_size"])
    with _passphrase_file(context, encryption, directory) as key_path:
        execute(
            "qemu-img",
            "create",
            "-f",
            "luks",
            "-o",
            f"cipher-alg={cipher['cipher_alg']},cipher-mode={cipher['cipher_mode']},"
            f"ivgen-alg={cipher['ivgen_alg']}",
            "--object",
            f"secret,id=luks_sec,format=raw,file={key_path}",
            "-o",
            "key-secret=luks_sec",
            path,
            f"{volume.size * 1024}M",
        )


def encrypt(context: Any, volume: Any, path: str, directory: str) -> None:
    """Replace a raw file by its encrypted form.

    :raises UnsupportedError: when the volume type's encryption is not LUKS version 1.
    """
    encryption = _encryption_of(context, volume)
    cipher = image_utils.decode_cipher(encryption["cipher"], encryption["key_size"])
    encrypted = f"{path}.luks"
    try:
        with _passphrase_file(context, encryption, directory) as key_path:
            image_utils.convert_image(
                path,
                encrypted,
                "luks",
                src_format="raw",
                cipher_spec=cipher,
                passphrase_file=key_path,
            )
        os.rename(encrypted, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(encrypted)


def _encryption_of(context: Any, volume: Any) -> dict[str, Any]:
    """Return what the volume type says of encryption."""
    try:
        found: dict[str, Any] = volume_utils.check_encryption_provider(volume, context)
    except cinder_exception.VolumeDriverException as error:
        raise exception.UnsupportedError(
            f"the encryption of volume {volume.id} is not what guests' disks can have: {error.msg}",
            hint="QEMU knows LUKS of version 1: give the volume type the provider luks, the "
            "control location front-end, a cipher and a key size",
        ) from error
    return found


@contextlib.contextmanager
def _passphrase_file(context: Any, encryption: Any, directory: str) -> Iterator[str]:
    """Yield the path of a file, readable for this user only, with the volume's passphrase."""
    key = key_manager.API(cfg.CONF).get(context, encryption["encryption_key_id"])
    with tempfile.NamedTemporaryFile(prefix="luks_", dir=directory) as file:
        file.write(binascii.hexlify(key.get_encoded() or b""))
        file.flush()
        yield file.name
