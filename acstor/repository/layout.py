"""Layout of the repository: keys of objects and names of refs in the origin."""

import re
import uuid

from acstor import exception

FORMAT_KEY = "format"
FORMAT_REF = "format"
"""Ref that an upgrade writes before it stores the object of that name anew."""
PACK_PREFIX = "packs/"
MANIFEST_PREFIX = "manifests/"
MOVED_PREFIX = "moved/"
"""Folder of what says where the chunks of packs were moved to; controllers alone write there."""
IMAGE_PREFIX = "images/"
CONDEMNED_PREFIX = "gc/condemned/"
COMPACTION_PREFIX = "compactions/"
VOLUME_PREFIX = "volumes/"
SNAPSHOT_PREFIX = "snapshots/"
VERSION_PREFIX = "versions/"
VOLUME_LOG_PREFIX = "volume-log/"
NO_UUID = "00000000-0000-0000-0000-000000000000"
CHUNKS_MAX = 64 << 20
"""Most chunks of a disk: a limit of manifests of version 1 (crates/types, limits.rs)."""
PAGED_CHUNKS_MAX = 1 << 30
"""Most chunks of a disk: a limit of manifests of version 2 (crates/manifest, limits.rs)."""
DISK_SIZE_MAX = 64 << 40
"""Largest disk, bytes: a limit of manifests of both versions."""

_NAME = re.compile(r"[0-9a-f]{64}\Z")
_MOVED_SUFFIX = ".moved"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_LOG_KEY = re.compile(VOLUME_LOG_PREFIX + rf"({_UUID})/([0-9a-f]{{8}})/([0-9a-f]{{16}})\Z")


def pack_key(pack: str) -> str:
    """Return the key of the pack with that id, 64 hexadecimal digits."""
    return f"{PACK_PREFIX}{pack[:2]}/{pack}"


def manifest_key(manifest: str) -> str:
    """Return the key of the manifest with that digest, 64 hexadecimal digits."""
    return f"{MANIFEST_PREFIX}{manifest[:2]}/{manifest}"


def moved_key(pack: str) -> str:
    """Return the key of what says where the chunks of a pack were moved to."""
    return f"{MOVED_PREFIX}{pack[:2]}/{pack}"


def moved_name(pack: str) -> str:
    """Return what the object of :func:`moved_key` is called where names of all objects are meant.

    Its key ends with the name of the pack, which is another object.
    """
    return pack + _MOVED_SUFFIX


def pack_of_moved_name(name: str) -> str | None:
    """Return the pack that a name of :func:`moved_name` is of, None when it is none."""
    pack = name.removesuffix(_MOVED_SUFFIX)
    return pack if pack != name and _NAME.match(pack) else None


def compaction_ref(host: str) -> str:
    """Return the name of the ref of the compaction that a host does."""
    return COMPACTION_PREFIX + host


def image_ref(image_id: str) -> str:
    """Return the name of the ref that holds an image's record."""
    return IMAGE_PREFIX + image_id


def volume_ref(volume_id: str) -> str:
    """Return the name of the ref that holds a volume's record."""
    return VOLUME_PREFIX + volume_id


def snapshot_ref(snapshot_id: str) -> str:
    """Return the name of the ref that holds a snapshot's record."""
    return SNAPSHOT_PREFIX + snapshot_id


def version_ref(version_id: str) -> str:
    """Return the name of the ref that holds a version's record."""
    return f"{VERSION_PREFIX}{version_id[:2]}/{version_id}"


def version_shard(number: int) -> str:
    """Return the folder of the refs of versions whose ids begin with a byte."""
    return f"{VERSION_PREFIX}{number:02x}/"


def log_folder(volume_id: str, epoch: int) -> str:
    """Return the folder of the log objects that the owners of one epoch wrote."""
    return f"{VOLUME_LOG_PREFIX}{volume_id}/{epoch:08x}/"


def log_key(volume_id: str, epoch: int, sequence: int) -> str:
    """Return the key of one log object of a volume."""
    return f"{log_folder(volume_id, epoch)}{sequence:016x}"


def parse_log_key(key: str) -> tuple[str, int, int] | None:
    """Return (volume, epoch, sequence) of a log object's key, None when it is none."""
    match = _LOG_KEY.match(key)
    return (match[1], int(match[2], 16), int(match[3], 16)) if match else None


def condemned_ref(name: str) -> str:
    """Return the name of the ref that condemns a pack or manifest, 64 hexadecimal digits."""
    return CONDEMNED_PREFIX + name


def name_of(key: str) -> str | None:
    """Return the last part of a key or ref name if it is 64 hexadecimal digits."""
    name = key.rsplit("/", 1)[-1]
    return name if _NAME.match(name) else None


def canonical_image_id(text: str) -> str:
    """Return a UUID in the one form that names images: lower case, with dashes.

    :raises InvalidError: when it is no UUID.
    """
    return canonical_id(text, "image")


def canonical_id(text: str, what: str) -> str:
    """Return a UUID in the one form that names things: lower case, with dashes.

    :param what: what it names, for the message.
    :raises InvalidError: when it is no UUID.
    """
    try:
        return str(uuid.UUID(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise exception.InvalidError(f"{what} id {text!r} is no UUID") from error
