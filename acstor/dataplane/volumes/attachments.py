"""Attachments of volumes to this host: where each is served, and the secret that opens it.

An attachment lasts from the opening of a volume on this host to its closing, over every restart in
between: a client that connects again knows what it was told at first. The page is
``doc/source/reference/formats/volume-kept.rst``.
"""

import contextlib
import dataclasses
import json
import logging
import os
import re
import secrets

from acstor import exception, untrusted_json
from acstor.dataplane.volumes.persisted_volume import is_volume_id
from acstor.files import sync_directory, write_atomically

LOG = logging.getLogger(__name__)

ATTACHMENT_VERSION = 1
"""Of an attachment's file."""
SECRET_BYTES = 16
"""Random bytes of a token, and of the name of a socket: 128 bits, which nobody guesses."""

_SECRET = re.compile(rf"[0-9a-f]{{{2 * SECRET_BYTES}}}")
_SUFFIX = ".json"
_SIZE_MAX = 64 << 10
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


@dataclasses.dataclass(frozen=True)
class VolumeAttachment:
    """One attachment.

    Two secrets, since /proc/net/unix shows the paths of sockets to every user.
    """

    volume: str
    token: str = dataclasses.field(repr=False)
    """By which clients call the NBD export; nothing logs it."""
    socket: str
    """Name of the socket, without its directory and ``.sock``."""

    @classmethod
    def begin(cls, volume: str) -> "VolumeAttachment":
        """Return a new one."""
        token, socket = (secrets.token_hex(SECRET_BYTES) for _ in range(2))
        return cls(volume, token, socket)

    @classmethod
    def of_former_release(cls, volume: str) -> "VolumeAttachment":
        """Return that of a volume that a release without tokens opened: its id is both."""
        return cls(volume, volume, volume)

    def encode(self) -> bytes:
        """Return the content of its file."""
        fields = {"version": ATTACHMENT_VERSION, **dataclasses.asdict(self)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes) -> "VolumeAttachment":
        """Return what a file says.

        :raises CorruptError: when it is malformed or of another version. Says nothing of it.
        """
        try:
            fields = untrusted_json.load(content, "it")
            if fields.pop("version") != ATTACHMENT_VERSION:
                raise ValueError("another version")
            found = cls(**fields)
            is_secret = all(_SECRET.fullmatch(text) for text in (found.token, found.socket))
            if not (is_volume_id(found.volume) and is_secret):
                raise ValueError("a field is malformed")
        except _MALFORMED:
            # The cause may quote a token.
            raise exception.CorruptError(
                "the file of an attachment is malformed or of another version",
                hint="detach the volume, or stop and start its guest: it is made anew",
            ) from None
        return found


class VolumeAttachments:
    """The attachments of this host; one thread at a time per volume.

    :param directory: of their files, mode 0700; made when the first is.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._known: dict[str, VolumeAttachment] = {}

    def find(self, volume: str) -> VolumeAttachment | None:
        """Return the attachment of a volume that is open here."""
        return self._known.get(volume)

    def begin(self, volume: str) -> VolumeAttachment:
        """Return the attachment of a volume, a new one where it has none.

        It is on the disk before anything else of the opening: what is kept of a volume without it
        is of a release that had none.

        :raises UnavailableError: when it cannot be kept.
        """
        found = self._known.get(volume)
        if found is None:
            found = VolumeAttachment.begin(volume)
            try:
                write_atomically(self._path(volume), found.encode(), is_synced=True)
                sync_directory(os.path.dirname(self._directory))
            except OSError as error:
                raise exception.UnavailableError(
                    f"the attachment of volume {volume} cannot be kept: {self._path(volume)}: "
                    f"{error.strerror}",
                    hint="make room in [volumes] directory",
                ) from error
            self._known[volume] = found
        return found

    def restore(self, volume: str, bound: str | None) -> VolumeAttachment:
        """Return the attachment under which the process before had a volume open.

        :param bound: name of the socket that it left, as in :class:`VolumeAttachment`, or None.
        """
        former = VolumeAttachment.of_former_release(volume)
        found: VolumeAttachment | None = former
        # A release without tokens may have opened it anew, and left the file of one with them.
        if bound != former.socket:
            try:
                found = self._read(volume)
            except (exception.CorruptError, OSError) as error:
                LOG.error(
                    "volume %s gets another token, its clients cannot connect again: %s: %s",
                    volume,
                    self._path(volume),
                    error,
                )
                return self.begin(volume)
        self._known[volume] = found or former
        return self._known[volume]

    def end(self, volume: str) -> None:
        """Forget the attachment of a volume that is closed."""
        self._known.pop(volume, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(volume))

    def others(self) -> list[VolumeAttachment]:
        """Return those of the directory whose volume is not open: of openings that were killed."""
        names = os.listdir(self._directory) if os.path.isdir(self._directory) else []
        found = []
        for name in sorted(names):
            volume = name.removesuffix(_SUFFIX)
            if not is_volume_id(volume) or volume in self._known:
                continue
            with contextlib.suppress(exception.CorruptError, OSError):
                kept = self._read(volume)
                if kept is not None:
                    found.append(kept)
        return found

    def _path(self, volume: str) -> str:
        return os.path.join(self._directory, volume + _SUFFIX)

    def _read(self, volume: str) -> VolumeAttachment | None:
        try:
            with open(self._path(volume), "rb") as source:
                found = VolumeAttachment.decode(source.read(_SIZE_MAX))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if found.volume != volume:
            raise exception.CorruptError("it is the file of another volume")
        return found
