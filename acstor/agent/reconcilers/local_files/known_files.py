"""Persisted state of the local files of a host: ``<state_path>/agent/local-files.json``.

It says which finished files were compared with which manifest, so that a restarted agent goes on
with them; ``acstor links files`` shows it.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor import exception, untrusted_json
from acstor.agent.reconcilers.local_files.states import LocalFileState
from acstor.files import write_atomically
from acstor.repository.layout import canonical_image_id

FILE_NAME = "local-files.json"
FILE_VERSION = 1
FILE_BYTES_MAX = 16 << 20
_BYTES_MAX = 1 << 62
_TIME_MAX = 1e12
_TEXT_MAX = 500
_MANIFEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class KnownFile:
    """One image's local file."""

    state: LocalFileState
    manifest: str
    """Name of the manifest that it is, or is to be, of."""
    size_bytes: int = 0
    """Of the image; 0: not known yet."""
    data_bytes: int = 0
    """Bytes that it takes of the disk."""
    verified_at: float = 0.0
    """Time of the last comparison of the disk's copy, POSIX seconds; 0: never."""
    is_sealed: bool = False
    """True if fs-verity protects it."""
    reason: str = ""
    """For people; one line."""


@dataclass(frozen=True)
class KnownFiles:
    """State of all local files of a host."""

    base_directory: str = ""
    """Nova's directory of base files, beside which they are."""
    files: Mapping[str, KnownFile] = field(default_factory=dict)
    """By image id."""

    def encode(self) -> bytes:
        """Return the file's content, JSON."""
        fields = {
            "version": FILE_VERSION,
            "base_directory": self.base_directory,
            "files": {
                image_id: {
                    "state": str(known.state),
                    "manifest": known.manifest,
                    "size_bytes": known.size_bytes,
                    "data_bytes": known.data_bytes,
                    "verified_at": known.verified_at,
                    "is_sealed": known.is_sealed,
                    "reason": known.reason[:_TEXT_MAX],
                }
                for image_id, known in sorted(self.files.items())
            },
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "KnownFiles":
        """Read a file's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            fields = untrusted_json.load(content, FILE_NAME)
            if fields["version"] != FILE_VERSION:
                raise exception.UnsupportedError(
                    f"the state of the local files has version {fields['version']!r:.20}"
                )
            files = {
                canonical_image_id(image_id): _known(entry)
                for image_id, entry in fields["files"].items()
            }
            return cls(str(fields["base_directory"]), files)
        except (ValueError, TypeError, KeyError, AttributeError, exception.InvalidError) as error:
            raise exception.CorruptError(
                "the state of the local files is malformed",
                hint=f"remove {FILE_NAME} of the agent's directory; the files are compared again",
            ) from error


def _known(entry: Mapping[str, Any]) -> KnownFile:
    manifest, is_sealed, reason = entry["manifest"], entry["is_sealed"], entry["reason"]
    if not isinstance(manifest, str) or _MANIFEST.fullmatch(manifest) is None:
        raise ValueError("manifest")
    if not isinstance(is_sealed, bool) or not isinstance(reason, str) or len(reason) > _TEXT_MAX:
        raise ValueError("is_sealed, reason")
    if not untrusted_json.is_number(entry["verified_at"], 0, _TIME_MAX):
        raise ValueError("verified_at")
    return KnownFile(
        LocalFileState(entry["state"]),
        manifest,
        _size(entry["size_bytes"]),
        _size(entry["data_bytes"]),
        float(entry["verified_at"]),
        is_sealed,
        reason,
    )


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _BYTES_MAX:
        raise ValueError("a size")
    return value


def path_in(state_path: str) -> str:
    """Return the path of the file on a host.

    :param state_path: ``[DEFAULT] state_path``.
    """
    return os.path.join(state_path, "agent", FILE_NAME)


def load(path: str) -> KnownFiles | None:
    """Return what is known; None: there never were local files on this host.

    :raises CorruptError: and the like when the file is not readable.
    :raises OSError: when it cannot be read.
    """
    try:
        with open(path, "rb") as source:
            content = source.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(content) > FILE_BYTES_MAX:
        raise exception.CorruptError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    return KnownFiles.parse(content)


def save(path: str, known: KnownFiles) -> None:
    """Replace the file; it is on the disk when this returns.

    :raises OSError: when it cannot be written; the file is then as it was.
    """
    write_atomically(path, known.encode(), is_synced=True)
