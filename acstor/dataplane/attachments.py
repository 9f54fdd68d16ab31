"""Attachments of the data plane on disk, so that a restart needs neither agent nor origin.

Layout of the directory (``<state_path>/dataplane``), each file complete or absent::

    images/<uuid>.manifest   an attached image; of format 2 with holes where pages are to come
    images/<uuid>.digest     {"version": 1, "manifest": <its digest>, "header": <its first bytes>}
    images/<uuid>.hidden     empty: the image was withdrawn while handles were open
    images/<uuid>.working-set    which chunks boots of it read
    images/<uuid>.boot-profile   in which orders boots of it read
    images/<uuid>.refused    a manifest that was found damaged or unsupported after a restart
    ring.bin                 the ring in use
    placement.json           {"version": 1, "distance_threshold": 5}
    draining                 empty: peers are refused
    mount-held               how many starts in a row found the mount held by another process
    repository.json          {"version": 1, "chunk_size": 65536}
    members.json             {"version": 1, "record": what the home says of the origin's members}
    arriving-*               being written when the process was killed; removed at the next start
"""

import contextlib
import json
import logging
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from acstor import exception, untrusted_json
from acstor.control import protocol
from acstor.files import copy_data, sync_directory

LOG = logging.getLogger(__name__)

FORMAT_VERSION = 1
FILE_BYTES_MAX = 4 << 30
"""Largest manifest or ring that is taken over, bytes."""

HEADER_BYTES = 96
"""First bytes of a manifest, which hold a digest of all others, or in version 2 a salt of its own:
two that differ differ there."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ARRIVING = "arriving-"
_WORKING_SET = "working-set"
_BOOT_PROFILE = "boot-profile"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class AttachedImage:
    """One image that was attached."""

    disk_id: str
    manifest_path: str
    is_hidden: bool
    working_set_path: str | None = None
    boot_profile_path: str | None = None
    digest: str | None = None
    """Of the manifest, as hex digits; None: not known."""


class Attachments:
    """The files of one data plane; used by one thread at a time.

    :param directory: created when missing, mode 0700.
    :raises OSError: when it cannot be created.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._images = os.path.join(directory, "images")
        self._ring = os.path.join(directory, "ring.bin")
        self._draining = os.path.join(directory, "draining")
        self._mount_held = os.path.join(directory, "mount-held")
        self._repository = os.path.join(directory, "repository.json")
        self._members = os.path.join(directory, "members.json")
        self._placement = os.path.join(directory, "placement.json")
        os.makedirs(self._images, mode=0o700, exist_ok=True)
        for name in os.listdir(directory):
            if name.startswith(_ARRIVING):
                os.unlink(os.path.join(directory, name))

    def images(self) -> list[AttachedImage]:
        """Return the images that were attached, ordered by id."""
        found = []
        for name in sorted(os.listdir(self._images)):
            disk_id, _, kind = name.rpartition(".")
            if kind == "manifest" and _UUID.fullmatch(disk_id):
                found.append(
                    AttachedImage(
                        disk_id,
                        os.path.join(self._images, name),
                        self._exists(disk_id, "hidden"),
                        self._found(disk_id, _WORKING_SET),
                        self._found(disk_id, _BOOT_PROFILE),
                        self._digest(disk_id),
                    )
                )
        return found

    @contextlib.contextmanager
    def arriving(self, source_path: str) -> Iterator[str]:
        """Copy a file into the directory and give its path; it is gone afterwards unless kept.

        Holes stay holes: that is how the data plane knows which pages of a manifest are to come.
        What is checked is then what is kept, whatever happens to the source.

        :raises InvalidError: when the source is no regular file of acceptable size.
        """
        try:
            with open(source_path, "rb", opener=_open_without_waiting) as source:
                found = os.fstat(source.fileno())
                if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= FILE_BYTES_MAX:
                    raise exception.InvalidError(f"{source_path} is no file of acceptable size")
                descriptor, path = tempfile.mkstemp(prefix=_ARRIVING, dir=self._directory)
                with os.fdopen(descriptor, "wb") as copy:
                    copy_data(source.fileno(), copy.fileno())
                    os.fsync(copy.fileno())
        except OSError as error:
            raise exception.InvalidError(f"{source_path}: {error.strerror}") from error
        try:
            yield path
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def keep_image(self, disk_id: str, arrived_path: str, digest: str) -> None:
        """Keep an arrived manifest as that of a listed image.

        :param digest: of the manifest, as hex digits.
        """
        _check_id(disk_id)
        os.replace(arrived_path, self._path(disk_id, "manifest"))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(disk_id, "hidden"))
        sync_directory(self._images)
        self.keep_digest(disk_id, digest)

    def keep_digest(self, disk_id: str, digest: str) -> None:
        """Keep the digest of an image's manifest, so that a start need not read all of that.

        Where it cannot be kept the next start reads the manifest, and nothing else is lost.
        """
        _check_id(disk_id)
        try:
            with open(self._path(disk_id, "manifest"), "rb") as source:
                header = source.read(HEADER_BYTES).hex()
            self._write_version_1(
                self._path(disk_id, "digest"), {"manifest": digest, "header": header}
            )
        except OSError as error:
            LOG.warning("the next start reads the manifest of image %s anew: %s", disk_id, error)

    def _digest(self, disk_id: str) -> str | None:
        """Return the digest that was kept of the manifest that is there now."""
        try:
            kept = _read_version_1(self._path(disk_id, "digest"))
            digest = kept.get("manifest")
            if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
                return None
            with open(self._path(disk_id, "manifest"), "rb") as source:
                header = source.read(HEADER_BYTES).hex()
        except OSError:
            return None
        # Another one than it was kept of: a release that keeps none has replaced it.
        return digest if kept.get("header") == header else None

    def hide_image(self, disk_id: str) -> None:
        """Note that an image is withdrawn but in use."""
        _check_id(disk_id)
        with open(self._path(disk_id, "hidden"), "wb"):
            pass
        sync_directory(self._images)

    def forget_image(self, disk_id: str) -> None:
        """Remove what is kept of an image."""
        _check_id(disk_id)
        # In this order: a kill between leaves no image.
        for kind in ("manifest", "digest", "hidden", _WORKING_SET, _BOOT_PROFILE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(disk_id, kind))
        sync_directory(self._images)

    def refuse_image(self, disk_id: str) -> None:
        """Put a manifest aside that cannot be attached, for a person to look at."""
        os.replace(self._path(disk_id, "manifest"), self._path(disk_id, "refused"))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(disk_id, "digest"))

    def keep_working_set(self, disk_id: str, arrived_path: str) -> None:
        """Keep an arrived file as the working set of an image."""
        self._keep(disk_id, _WORKING_SET, arrived_path)

    def forget_working_set(self, disk_id: str) -> None:
        """Remove the working set of an image."""
        self._forget(disk_id, _WORKING_SET)

    def keep_boot_profile(self, disk_id: str, arrived_path: str) -> None:
        """Keep an arrived file as the boot profile of an image."""
        self._keep(disk_id, _BOOT_PROFILE, arrived_path)

    def forget_boot_profile(self, disk_id: str) -> None:
        """Remove the boot profile of an image."""
        self._forget(disk_id, _BOOT_PROFILE)

    def _keep(self, disk_id: str, kind: str, arrived_path: str) -> None:
        _check_id(disk_id)
        os.replace(arrived_path, self._path(disk_id, kind))
        sync_directory(self._images)

    def _forget(self, disk_id: str, kind: str) -> None:
        _check_id(disk_id)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(disk_id, kind))
        sync_directory(self._images)

    def ring_path(self) -> str | None:
        """Return the path of the ring that was in use, or None."""
        return self._ring if os.path.exists(self._ring) else None

    def keep_ring(self, arrived_path: str) -> None:
        """Keep an arrived ring as the one in use."""
        os.replace(arrived_path, self._ring)
        sync_directory(self._directory)

    def distance_threshold(self) -> int | None:
        """Return the hops that were given last, or None where none were or they are unreadable."""
        hops = _read_version_1(self._placement).get("distance_threshold")
        if type(hops) is int and 0 <= hops <= protocol.DISTANCE_THRESHOLD_MAX:
            return hops
        return None

    def keep_distance_threshold(self, hops: int | None) -> None:
        """Keep the threshold as the one that was given last; None: none is."""
        self._write_version_1(self._placement, {"distance_threshold": hops})

    def is_draining(self) -> bool:
        """Return whether peers were refused."""
        return os.path.exists(self._draining)

    def set_draining(self, on: bool) -> None:
        """Note whether peers are refused."""
        if on:
            with open(self._draining, "wb"):
                pass
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._draining)
        sync_directory(self._directory)

    def count_held_start(self) -> int:
        """Count a start that found the mount held; return how many there were in a row."""
        try:
            with open(self._mount_held, encoding="ascii", errors="replace") as source:
                text = source.read(8)
        except FileNotFoundError:
            text = ""
        count = int(text) + 1 if text.isdecimal() else 1
        with open(self._mount_held, "w", encoding="ascii") as target:
            target.write(str(count))
        return count

    def forget_held_starts(self) -> None:
        """Note that a start has the mount."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._mount_held)

    def chunk_size(self) -> int | None:
        """Return the repository's chunk size, bytes, when it was ever known."""
        size: Any = _read_version_1(self._repository).get("chunk_size")
        is_whole = untrusted_json.is_whole(size, 4 << 10, 4 << 20)
        return size if is_whole and not size & (size - 1) else None

    def keep_chunk_size(self, chunk_size: int) -> None:
        """Keep the repository's chunk size, bytes."""
        self._write_version_1(self._repository, {"chunk_size": chunk_size})

    def members(self) -> bytes | None:
        """Return what the home last said of the members of the origin, if it was ever known."""
        record: Any = _read_version_1(self._members).get("record")
        return record.encode() if isinstance(record, str) else None

    def keep_members(self, record: bytes) -> None:
        """Keep what the home says of the members of the origin, JSON."""
        if record != self.members():
            self._write_version_1(self._members, {"record": record.decode()})

    def _write_version_1(self, path: str, content: Mapping[str, int | str | None]) -> None:
        descriptor, arriving = tempfile.mkstemp(prefix=_ARRIVING, dir=self._directory)
        with os.fdopen(descriptor, "w") as copy:
            json.dump({"version": FORMAT_VERSION, **content}, copy)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(arriving, path)
        sync_directory(os.path.dirname(path))

    def _path(self, disk_id: str, kind: str) -> str:
        return os.path.join(self._images, f"{disk_id}.{kind}")

    def _exists(self, disk_id: str, kind: str) -> bool:
        return os.path.exists(self._path(disk_id, kind))

    def _found(self, disk_id: str, kind: str) -> str | None:
        """Return the path of a file that is there, None where it is not."""
        return self._path(disk_id, kind) if self._exists(disk_id, kind) else None


def _read_version_1(path: str) -> dict[str, Any]:
    """Return what a small file holds; nothing where it is absent, damaged or of another version."""
    try:
        with open(path, "rb") as source:
            kept = untrusted_json.load(source.read(4096), path)
    except (FileNotFoundError, ValueError):
        return {}
    is_known = isinstance(kept, dict) and kept.get("version") == FORMAT_VERSION
    return kept if is_known else {}


def _check_id(disk_id: str) -> None:
    """Refuse an id that could name a file elsewhere."""
    if not _UUID.fullmatch(disk_id):
        raise exception.InvalidError(f"{disk_id!r} is no image id (a UUID in lower case)")


def _open_without_waiting(path: str, flags: int) -> int:
    # A pipe at the path, or a link into the mount that this process serves, would otherwise block
    # the data plane's control for ever.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
