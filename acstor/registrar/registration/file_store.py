"""Glance's file store, where this machine has it mounted."""

import logging
import os
import stat

from acstor.registrar.image_service.base import ServiceImage

LOG = logging.getLogger(__name__)


def find_file(datadir: str, image: ServiceImage) -> str | None:
    """Return the path of an image's file, None where the store does not have it like that.

    Glance names the file after the image. It is taken only if it is a regular file (no link) of
    the right size; its checksum is verified later. Everything else is downloaded.

    :param datadir: ``[glance] filesystem_store_datadir``; empty: none is mounted.
    """
    if not datadir:
        return None
    path = os.path.join(datadir, image.id)
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None  # another store has it
    except OSError as error:
        LOG.warning("%s cannot be read, downloading instead: %s", path, error.strerror)
        return None
    if not stat.S_ISREG(status.st_mode) or not os.access(path, os.R_OK):
        LOG.warning("%s is no file that may be read, downloading instead", path)
        return None
    if status.st_size != image.size_bytes:
        LOG.warning(
            "%s has %d bytes instead of %s, downloading instead",
            path, status.st_size, image.size_bytes,
        )  # fmt: skip
        return None
    return path
