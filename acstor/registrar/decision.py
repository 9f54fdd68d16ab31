"""Decision on an image of Glance, from its record in Glance alone."""

import dataclasses
import enum
from collections.abc import Collection

from oslo_utils import strutils

from acstor.conf.registrar import VISIBILITIES
from acstor.registrar.boot_parts import Naming
from acstor.registrar.image_service import base
from acstor.registrar.image_service.base import VISIBILITY_PUBLIC, ServiceImage
from acstor.repository.images.inspection import DECLARED_FORMATS

CACHE_PROPERTY = "acstor_cache"
PIN_PROPERTY = "acstor_pin"

_BOOT_PART_FORMATS = frozenset({"aki", "ari", "ami"})
_FORMATS_OF_DISKS = frozenset({"raw", "iso"})
"""Formats of files that are the disk, byte for byte."""
_CONTAINER_FORMATS = frozenset({"bare"})
_ENCRYPTION_PREFIXES = ("cinder_encryption_", "os_encrypt_")
_EPHEMERAL_ENCRYPTION = "hw_ephemeral_encryption"
_SIGNATURE_PROPERTY = "img_signature"
_TYPE_PROPERTY = "image_type"
_SNAPSHOT_TYPES = frozenset({"snapshot", "backup"})
"""Values of ``image_type`` that Nova sets (nova/compute/utils.py, create_image): snapshots, which
those of shelved servers are too, and backups."""


class Kind(enum.Enum):
    """Kind of a decision."""

    REGISTER = "register"
    LEAVE = "leave"
    """Leave it to Nova."""
    WITHDRAW = "withdraw"
    """Nobody may start an instance from it, now or ever."""


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Decision on an image, with its reason."""

    kind: Kind
    reason: str = ""
    pin: bool = False
    is_gone: bool = False
    """True if Glance has it no more."""
    is_harmful: bool = False
    """Of what is left: whether hosts would do wrong to serve it, not only without need."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """Rules that the operator has configured."""

    size_max: int
    """Bytes of the file."""
    disk_size_max: int
    """Bytes of the disk."""
    are_signed_left: bool = True
    visibilities: frozenset[str] = frozenset(VISIBILITIES)
    """Of the images that are registered."""
    projects: frozenset[str] = frozenset()
    """Projects whose images are registered; empty: everybody's."""
    are_snapshots_left: bool = True
    pin_projects: frozenset[str] = frozenset()
    """Projects whose images may be pinned without being public."""


def decide(image: ServiceImage | None, rules: Rules, namings: Collection[Naming] = ()) -> Decision:
    """Return what to do with an image.

    :param image: None: Glance has it no more.
    :param namings: images that name it as kernel or ramdisk.
    """
    if image is None or image.status in base.STATUSES_GONE:
        return Decision(Kind.WITHDRAW, "it was deleted in Glance", is_gone=True)
    if image.status == base.STATUS_DEACTIVATED:
        return Decision(Kind.WITHDRAW, "it is deactivated in Glance")
    if image.status != base.STATUS_ACTIVE:
        return Decision(Kind.WITHDRAW, f"it has no data in Glance (status {image.status})")
    pin = is_pinned(image, rules)
    harm = (
        _property_reason(image, rules)
        or _boot_part_reason(image, namings)
        or _format_reason(image)
        or _content_reason(image)
    )
    if harm:
        return Decision(Kind.LEAVE, harm, pin, is_harmful=True)
    if reason := _rule_reason(image, rules):
        return Decision(Kind.LEAVE, reason, pin)
    return Decision(Kind.REGISTER, pin=pin)


def is_pinned(image: ServiceImage, rules: Rules) -> bool:
    """Return whether hosts are to keep the whole image."""
    return _asks_for_pin(image) and _may_pin(image, rules)


def is_pin_ignored(image: ServiceImage, rules: Rules) -> bool:
    """Return whether an image asks to be kept whole and may not."""
    return _asks_for_pin(image) and not _may_pin(image, rules)


def _asks_for_pin(image: ServiceImage) -> bool:
    return _is_true(image.properties.get(PIN_PROPERTY), default=False)


def _may_pin(image: ServiceImage, rules: Rules) -> bool:
    return image.visibility == VISIBILITY_PUBLIC or image.owner in rules.pin_projects


def _property_reason(image: ServiceImage, rules: Rules) -> str:
    if not _is_true(image.properties.get(CACHE_PROPERTY), default=True):
        return f"its property {CACHE_PROPERTY} is false"
    for name, value in sorted(image.properties.items()):
        is_encrypted = name.startswith(_ENCRYPTION_PREFIXES) or (
            name == _EPHEMERAL_ENCRYPTION and _is_true(value, default=True)
        )
        if is_encrypted and value:
            return f"it is encrypted (property {name})"
    if rules.are_signed_left and image.properties.get(_SIGNATURE_PROPERTY):
        return "it is signed: Nova verifies the signature when it downloads it"
    return ""


def _boot_part_reason(image: ServiceImage, namings: Collection[Naming]) -> str:
    for value in (image.container_format, image.disk_format):
        if value in _BOOT_PART_FORMATS:
            return f"it is a kernel, ramdisk or machine image (format {value})"
    believed = (naming.image_id for naming in namings if naming.is_believed_of(image))
    # The same one each time, whatever order they come in.
    naming_id = min(believed, default=None)
    return f"image {naming_id} names it as kernel or ramdisk" if naming_id else ""


def _format_reason(image: ServiceImage) -> str:
    if image.container_format not in _CONTAINER_FORMATS:
        return f"its container format {image.container_format} is not supported"
    if image.disk_format not in DECLARED_FORMATS:
        return f"its disk format {image.disk_format} is not one of {', '.join(DECLARED_FORMATS)}"
    return ""


def _content_reason(image: ServiceImage) -> str:
    if not image.size_bytes:
        return "it is empty"
    if image.checksum is None:
        return "Glance declares no checksum of it (md5, sha256 or sha512) to verify it with"
    return ""


def _rule_reason(image: ServiceImage, rules: Rules) -> str:
    image_type = image.properties.get(_TYPE_PROPERTY, "")
    if rules.are_snapshots_left and image_type in _SNAPSHOT_TYPES:
        return (
            f"it is a {image_type} of a server ({_TYPE_PROPERTY}={image_type}, "
            "[registrar] snapshots)"
        )
    if image.visibility not in rules.visibilities:
        return f"its visibility {image.visibility} is not in [registrar] visibility"
    if rules.projects and image.owner not in rules.projects:
        return f"its project {image.owner or 'none'} is not in [registrar] projects"
    if (image.size_bytes or 0) > rules.size_max:
        return f"it has {image.size_bytes} bytes, more than [registrar] size_max"
    if image.disk_format in _FORMATS_OF_DISKS and (image.size_bytes or 0) > rules.disk_size_max:
        return f"its disk has {image.size_bytes} bytes, more than [registrar] disk_size_max"
    return ""


def _is_true(value: str | None, *, default: bool) -> bool:
    return bool(strutils.bool_from_string(value, default=default))
