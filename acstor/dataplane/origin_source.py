"""The origin as the data plane reads it: a directory or Ceph natively, else through Python."""

import logging
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass

from oslo_config import cfg

from acstor import exception
from acstor.dataplane.attachments import Attachments
from acstor.dataplane.runtime import MemberReader, OriginReader
from acstor.native import RadosReader, map_errors
from acstor.origin.rados import location, native_reader

LOG = logging.getLogger(__name__)

CHUNK_SIZE_DEFAULT = 64 << 10
"""Chunk size of a repository that is made without one being given, bytes."""
_POSIX_SCHEMES = frozenset({"posix", "file"})


class LastMember:
    """The only member in use of an origin of several stores, which is in Ceph: read natively.

    The runtime is not given the native reader itself, with which it would store log objects of all
    volumes past Python, and in that store. Once another member joins, epochs are in that one too.
    """

    def __init__(self, reader: RadosReader) -> None:
        self._reader = reader

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``.

        :raises AcstorError: as of the member's store.
        """
        with map_errors(f"reading {key}"):
            return self._reader.readinto(key, offset, buffer)

    def close(self) -> None:
        """End the connection."""
        self._reader.close()


@dataclass(frozen=True)
class OriginSource:
    """Source of misses; exactly one of the three is set."""

    posix_root: str | None
    reader: OriginReader | None
    """Python's, or a native one, which is read without Python."""
    members: tuple[MemberReader, ...] = ()
    """Of an origin that is made of several stores."""

    @property
    def given(self) -> OriginReader | list[MemberReader] | None:
        """Origin that is given to the runtime; None where it reads a directory."""
        return list(self.members) or self.reader

    def close(self) -> None:
        """End the connections of native readers, which no thread of may outlive this process."""
        for reader in (self.reader, *(one.reader for one in self.members)):
            if isinstance(reader, RadosReader | LastMember):
                reader.close()


def open_source(conf: cfg.ConfigOpts, attachments: Attachments) -> OriginSource:
    """Return the origin of the configuration.

    A directory need not exist now, nor a cluster be up: reads of the origin fail until that is so,
    all else works.

    :param attachments: keep what was known of members.
    :raises AcstorError: when another kind of origin cannot be opened.
    """
    if conf.origin.members:
        from acstor.dataplane.member_opening import open_configured

        return open_configured(conf, attachments)
    return source_of(conf.origin.url, conf.readpath.origin_deadline)


def source_of(url: str, deadline_seconds: float) -> OriginSource:
    """Return the store at a URL; see :func:`open_source`.

    :param deadline_seconds: of a call that goes through Python.
    :raises AcstorError: when it cannot be opened.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in _POSIX_SCHEMES and parts.path.startswith("/"):
        return OriginSource(urllib.parse.unquote(parts.path), None)
    if parts.scheme == location.SCHEME:
        try:
            return OriginSource(None, native_reader.open_reader(location.parse_url(parts)))
        except exception.UnsupportedError as error:
            LOG.warning("%s; each miss goes through Python, which takes longer", error)
    # Finding drivers by entry point takes longer than starting the data plane without one.
    from acstor.origin.opening import open_origin

    return OriginSource(None, open_origin(url, deadline_seconds))


def read_chunk_size(conf: cfg.ConfigOpts) -> int:
    """Return the chunk size that the repository in the origin says, bytes.

    :raises AcstorError: when it cannot be read.
    """
    from acstor.origin import configured
    from acstor.origin.opening import open_origin
    from acstor.repository.repository import Repository

    origin = open_origin(configured.home_url(conf), conf.origin.timeout)
    try:
        return Repository.open(origin).chunk_size
    finally:
        origin.close()


def known_chunk_size(attachments: Attachments, read: Callable[[], int]) -> int:
    """Return the repository's chunk size: the one kept before, else what ``read`` returns.

    It never changes within a repository, so the origin is asked once in the life of a host. An
    origin without a repository gets the default, which is not kept: the first image decides.

    :raises AcstorError: at the first start, when the origin cannot be read.
    """
    kept = attachments.chunk_size()
    if kept is not None:
        return kept
    try:
        kept = read()
    except exception.NotFoundError:
        kept = None
    if kept is None:
        LOG.warning(
            "the origin holds no repository yet; assuming chunks of %d bytes", CHUNK_SIZE_DEFAULT
        )
        return CHUNK_SIZE_DEFAULT
    attachments.keep_chunk_size(kept)
    return kept
