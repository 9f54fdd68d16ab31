"""Image files as registration reads them: a disk's content with its holes."""

from acstor.repository.source.base import Extent, ImageSource

__all__ = ["Extent", "ImageSource"]
