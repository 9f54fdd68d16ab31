"""Images that others name as kernel or ramdisk, and which of those others are believed.

Nova copies such an image with the link in its image cache, not what the link names, so that the
image cannot be served. Anybody may name any image, though.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable

from acstor import exception
from acstor.registrar.image_service import base
from acstor.registrar.image_service.base import ServiceImage
from acstor.repository import layout

BOOT_PART_PROPERTIES = ("kernel_id", "ramdisk_id")
"""Properties with which an image names the images that its instances' kernels come from."""


@dataclasses.dataclass(frozen=True, slots=True)
class Naming:
    """An image that names others, with what tells whether it is believed."""

    image_id: str
    owner: str
    is_public: bool

    def is_believed_of(self, image: ServiceImage) -> bool:
        """Return whether an image is taken for a kernel or ramdisk because of this one.

        Else any project could take any public image from the hosts.
        """
        return self.is_public or (bool(self.owner) and self.owner == image.owner)


def named_by(image: ServiceImage | None) -> frozenset[str]:
    """Return the ids of the images that an image names; None: it is gone, and names none."""
    if image is None or image.status in base.STATUSES_GONE:
        return frozenset()
    named = set()
    for name in BOOT_PART_PROPERTIES:
        try:
            named.add(layout.canonical_image_id(image.properties.get(name, "")))
        except exception.InvalidError:
            continue  # empty, or no id of an image
    return frozenset(named)


class BootParts:
    """Index of the kernels and ramdisks that images of Glance name, at most two for each image."""

    def __init__(self) -> None:
        """Begin with no image."""
        self._named: dict[str, frozenset[str]] = {}
        self._namings: defaultdict[str, dict[str, Naming]] = defaultdict(dict)

    def replace(self, images: Iterable[ServiceImage]) -> None:
        """Forget everything but what these images say."""
        self._named.clear()
        self._namings.clear()
        for image in images:
            self.note(image.id, image)

    def note(self, image_id: str, image: ServiceImage | None) -> set[str]:
        """Note what one image says.

        :param image: None: Glance has it no more.
        :returns: ids of the images of which something else is said now.
        """
        former, named = self._named.pop(image_id, frozenset()), named_by(image)
        if image is not None and named:
            self._named[image_id] = named
            naming = Naming(image_id, image.owner, image.visibility == base.VISIBILITY_PUBLIC)
        changed = set()
        for part in former | named:
            namings = self._namings[part]
            before = namings.pop(image_id, None)
            if part in named:
                namings[image_id] = naming
            if namings.get(image_id) != before:
                changed.add(part)
            if not namings:
                del self._namings[part]
        return changed

    def naming(self, image_id: str) -> Collection[Naming]:
        """Return the images that name an image."""
        found = self._namings.get(image_id)
        return tuple(found.values()) if found else ()
