"""Bringing the content of a raw file into the repository, as the manifest of a volume.

No data plane is needed for it: chunks that the repository has already, of an image say, are not
stored again, and the rest is stored as registration stores it.
"""

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.drivers.cinder.native_threads import Caller, DirectCaller, NativeThreadSource
from acstor.repository import pack_cache
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.images import registration
from acstor.repository.repository import Repository
from acstor.repository.source.base import SourceFile
from acstor.repository.source.raw import RawSource

LOG = logging.getLogger(__name__)

Publish = Callable[[str], None]
"""Gets the digest of a manifest."""


class DiskImport(registration.Registrar):
    """Stores disks in one repository.

    :param cache_directory: where to keep what is known of the repository's packs; None: nowhere.
    :param caller: reads and digests; None: who calls.
    """

    def __init__(
        self,
        repository: Repository,
        cache_directory: str | None,
        caller: Caller | None = None,
    ) -> None:
        settings = registration.Settings(cache_path=_made(cache_directory))
        super().__init__(repository, settings)
        self._caller = caller or DirectCaller()

    def store(self, path: str, publish: Publish, dedup_scope: str | None = None) -> DiskManifest:
        """Store a raw file.

        :param publish: makes a ref keep the manifest alive, or raises; called again with another
            manifest when garbage collection was quicker.
        :param dedup_scope: scope of the names of its chunks.
        :raises UnavailableError: when the origin fails, or garbage collection keeps deleting what
            this stores.
        :raises ExhaustedError: when the origin is full.
        :raises DiskTooLargeError: when no manifest of the repository describes it.
        """
        self._repository.check_scope_allowed(dedup_scope)
        source = NativeThreadSource(RawSource(SourceFile(path)), self._caller)
        with contextlib.closing(source), self._cache() as cache:
            index = self._load_index(cache)
            lost: set[bytes] = set()
            for _ in range(registration.ROUNDS_MAX):
                for name in lost:
                    index.forget_pack(name)
                # Every content has a disk id of its own: hosts keep what they know of one.
                disk = str(uuid.uuid4())
                request = registration.Request(disk, "", source, "raw", dedup_scope=dedup_scope)
                self._check_size(request)
                report = registration.Report(disk)
                stored = self._store(request, report, index, None, cache)
                manifest = stored.manifest
                stored.store_manifest(self._origin)
                lost = self._claim(manifest)
                if lost:
                    continue
                publish(manifest.digest)
                lost = self._claim(manifest)
                if not lost:
                    LOG.info(
                        "stored a disk of %d bytes: %d of %d chunks are new",
                        report.size_bytes,
                        report.new,
                        report.chunks,
                    )
                    return manifest
        raise exception.UnavailableError(
            f"garbage collection deleted what was stored {registration.ROUNDS_MAX} times",
            hint="raise [gc] grace of acstor.conf above the time that copying an image takes",
        )

    @contextlib.contextmanager
    def _cache(self) -> Iterator[pack_cache.PackCache | None]:
        cache = self._open_cache()
        try:
            yield cache
        finally:
            if cache:
                cache.close()


def _made(directory: str | None) -> str | None:
    """Return a directory that is there; None when it cannot be had."""
    if not directory:
        return None
    try:
        os.makedirs(directory, mode=0o750, exist_ok=True)
    except OSError as error:
        LOG.warning("no cache of pack digests in %s: %s", directory, error.strerror)
        return None
    return directory
