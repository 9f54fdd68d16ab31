"""Memory of the signed records that a host has believed: ``<state_path>/agent/seen-records.json``.

By it an old record that somebody puts back is refused, also after a restart; and so is a record
without a signature where there was one. It is kept per key, so that whoever has stolen a key and
signs with the largest generation there is does not lock out the key that comes after.
"""

import dataclasses
import json
import logging
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.files import write_atomically
from acstor.repository.images.signed_record import GENERATION_MAX, VerifiedRecord
from acstor.repository.layout import canonical_image_id
from acstor.repository.signing.signed_document import RefusalReason, UnverifiedError

LOG = logging.getLogger(__name__)

FILE_NAME = "seen-records.json"
FILE_VERSION = 1
FILE_BYTES_MAX = 256 << 20
FORMER_MAX = 10_000
"""Images that are not registered any more and are remembered; those with the lowest generations go
first, and what they had is then the least for an image that is not known."""
MANIFESTS_MAX = 4
"""Manifests of an image that are remembered: it has another one after each repair."""
_NAME = re.compile(r"[0-9a-f]{64}\Z")


@dataclasses.dataclass(slots=True)
class SeenImage:
    """Signed records of one image that were believed."""

    generations: dict[str, int] = dataclasses.field(default_factory=dict)
    """By key, the highest."""
    manifests: list[str] = dataclasses.field(default_factory=list)
    """Manifests that they named, the last one at the end."""


class SeenRecords:
    """The memory of one host; of no use to two threads at once.

    :param repository_id: of the repository that the records are of.
    """

    def __init__(self, path: str, repository_id: str) -> None:
        self._path = path
        self._repository_id = repository_id
        self._file_repository: str | None = None
        self._images: dict[str, SeenImage] = {}
        self._floors: dict[str, int] = {}
        self._is_loaded = False
        self._is_changed = False

    def load(self) -> None:
        """Read the file, where this process has not read it yet.

        One that is damaged is put aside, and the host begins anew: a disk that loses a file is no
        reason to leave guests without images.

        :raises UnsupportedError: when a newer release wrote it.
        :raises OSError: when it cannot be read.
        """
        if self._is_loaded:
            return
        try:
            with open(self._path, "rb") as file:
                content = file.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            self._is_loaded = True
            return
        try:
            self._parse(content)
        except exception.CorruptError as error:
            os.replace(self._path, f"{self._path}.damaged")
            LOG.error("%s; old records are taken until newer ones are seen", error)
            self._images, self._floors, self._file_repository = {}, {}, None
        self._is_loaded = True

    def check(self, image_id: str, known: VerifiedRecord) -> None:
        """Refuse a record that is older than one that was seen.

        :raises UnverifiedError: when it is, lacks a signature where there was one, or is of
            another repository than those before.
        """
        seen = self._images.get(image_id)
        if known.key_id is None:
            if seen is not None:
                raise UnverifiedError(
                    f"the record of image {image_id} is not signed, and this host has seen a "
                    "signed one: somebody has replaced it",
                    reason=RefusalReason.UNSIGNED,
                    hint="find out who can write to the origin; remove the image and register it "
                    "again",
                )
            return
        if self._file_repository not in (None, self._repository_id):
            raise UnverifiedError(
                f"this host knows signed images of repository {self._file_repository}, and the "
                f"origin holds {self._repository_id}",
                reason=RefusalReason.OTHER_SUBJECT,
                hint=f"check [origin] url; where the repository was made anew, remove {self._path} "
                "and restart acstor-agent",
            )
        least = seen.generations.get(known.key_id, 0) if seen else self._floors.get(known.key_id, 0)
        if known.generation < least:
            raise UnverifiedError(
                f"the record of image {image_id} has generation {known.generation}, and this host "
                f"has seen {least}: somebody has put an old one back",
                reason=RefusalReason.ROLLBACK,
                hint="after the origin was restored from a backup: 'acstor repository sign --all'; "
                "else find out who can write to the origin",
            )

    def note(self, image_id: str, known: VerifiedRecord) -> None:
        """Remember a record that is believed."""
        if known.key_id is None:
            return
        seen = self._images.setdefault(image_id, SeenImage())
        manifest = known.record.manifest
        if seen.generations.get(known.key_id) != known.generation:
            seen.generations[known.key_id] = known.generation
            self._is_changed = True
        if seen.manifests[-1:] != [manifest]:
            kept = [each for each in seen.manifests if each != manifest]
            seen.manifests = [*kept, manifest][-MANIFESTS_MAX:]
            self._is_changed = True
        self._file_repository = self._repository_id

    def is_signed(self, image_id: str) -> bool:
        """Return whether a signed record of an image was believed."""
        return image_id in self._images

    def has_seen(self, image_id: str, manifest: str) -> bool:
        """Return whether a signed record of an image that was believed named a manifest."""
        seen = self._images.get(image_id)
        return seen is not None and manifest in seen.manifests

    def save(self, registered: Collection[str]) -> None:
        """Have the disk remember it, before anything is done on the word of what was read.

        :param registered: images that are in the origin now.
        :raises OSError: when it cannot be written.
        """
        if not self._is_changed:
            return
        self._forget(registered)
        write_atomically(self._path, self.encode(), is_synced=True)
        self._is_changed = False

    def encode(self) -> bytes:
        """Return the file's content, JSON."""
        fields = {
            "version": FILE_VERSION,
            "repository": self._file_repository,
            "floors": dict(sorted(self._floors.items())),
            "images": {
                image_id: dataclasses.asdict(seen)
                for image_id, seen in sorted(self._images.items())
            },
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    def _forget(self, registered: Collection[str]) -> None:
        """Forget the oldest of too many images that are not registered any more."""
        former = self._images.keys() - set(registered)
        if len(former) <= FORMER_MAX:
            return
        by_age = sorted(former, key=lambda image: max(self._images[image].generations.values()))
        for image_id in by_age[: len(former) - FORMER_MAX]:
            for key_id, generation in self._images.pop(image_id).generations.items():
                self._floors[key_id] = max(self._floors.get(key_id, 0), generation)

    def _parse(self, content: bytes) -> None:
        try:
            fields = untrusted_json.load(content, FILE_NAME)
            if fields["version"] != FILE_VERSION:
                raise exception.UnsupportedError(
                    f"{self._path} has version {fields['version']!r:.20}, "
                    f"this release reads {FILE_VERSION}"
                )
            self._images = {
                canonical_image_id(image_id): _parse_image(seen)
                for image_id, seen in fields["images"].items()
            }
            self._floors = _parse_generations(fields["floors"])
            repository_id = fields["repository"]
            if not isinstance(repository_id, str | None):
                raise ValueError("repository")
            self._file_repository = repository_id
        except (ValueError, TypeError, KeyError, AttributeError, exception.InvalidError) as error:
            raise exception.CorruptError(f"{self._path} is malformed") from error


def path_in(state_path: str) -> str:
    """Return the path of the file on a host.

    :param state_path: ``[DEFAULT] state_path``.
    """
    return os.path.join(state_path, "agent", FILE_NAME)


def _parse_image(fields: Mapping[str, Any]) -> SeenImage:
    generations, manifests = _parse_generations(fields["generations"]), fields["manifests"]
    if not generations or not isinstance(manifests, list):
        raise ValueError("an image without generations")
    return SeenImage(generations, [_checked_name(manifest) for manifest in manifests])


def _parse_generations(fields: Mapping[str, Any]) -> dict[str, int]:
    return {
        _checked_name(key_id): untrusted_json.whole(generation, "generation", 1, GENERATION_MAX)
        for key_id, generation in fields.items()
    }


def _checked_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise ValueError("no digest")
    return value
