"""Refs of images: folders in which each ref is named after its image."""

import contextlib
from collections.abc import Iterator

from acstor import exception
from acstor.origin.base import RefStore
from acstor.repository import layout


def list_image_ids(refs: RefStore, prefix: str) -> Iterator[str]:
    """Yield the ids of the images that have a ref in a folder, in no particular order.

    Names that are none of an image are passed over.

    :param prefix: of the folder, with its slash.
    """
    for name in refs.list_refs(prefix):
        image_id = name.removeprefix(prefix)
        with contextlib.suppress(exception.InvalidError):
            if layout.canonical_image_id(image_id) == image_id:
                yield image_id
