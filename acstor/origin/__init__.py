"""The origin: the central store that everything can be re-read from."""

from acstor.origin.base import Buffer, Origin, Ref

__all__ = ["Buffer", "Origin", "Ref"]
