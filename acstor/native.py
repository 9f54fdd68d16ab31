"""The data plane as the control plane sees it: the only importer of ``acstor._dataplane``."""

import contextlib
from collections.abc import Iterator

from acstor import exception
from acstor._dataplane import (
    ChunkRecords,
    DataPlane,
    DataPlaneError,
    DigestIndex,
    DiskBuilder,
    ImageBuilder,
    Manifest,
    MovedPack,
    PackHeader,
    PackWriter,
    PagedManifest,
    RadosReader,
    Ring,
    RingHost,
    Scan,
    SigningKey,
    SpaceAccount,
    StaleDescriptorError,
    StoredChunkIndex,
    StoredChunks,
    build_ring,
    compress_chunks,
    digest,
    is_signed_by,
    make_signing_key,
    manifest_name,
    mount_images,
    pack_header,
    pack_id,
    parse_pack_header,
    recommended_vnode_count,
    rewrite_chunks,
    scan_buffer,
    scan_file,
    seal_volume_log,
    serve_files,
    set_read_ahead,
    spool_volume_log,
    unmount_images,
    unsound_chunks,
)

__all__ = [
    "ChunkRecords",
    "DataPlane",
    "DataPlaneError",
    "DigestIndex",
    "DiskBuilder",
    "ImageBuilder",
    "Manifest",
    "MovedPack",
    "PackHeader",
    "PackWriter",
    "PagedManifest",
    "RadosReader",
    "Ring",
    "RingHost",
    "Scan",
    "SigningKey",
    "SpaceAccount",
    "StaleDescriptorError",
    "StoredChunkIndex",
    "StoredChunks",
    "build_ring",
    "compress_chunks",
    "digest",
    "is_signed_by",
    "make_signing_key",
    "manifest_name",
    "mount_images",
    "pack_header",
    "pack_id",
    "parse_pack_header",
    "recommended_vnode_count",
    "rewrite_chunks",
    "scan_buffer",
    "scan_file",
    "seal_volume_log",
    "serve_files",
    "spool_volume_log",
    "set_read_ahead",
    "map_errors",
    "unmount_images",
    "unsound_chunks",
]


@contextlib.contextmanager
def map_errors(what: str) -> Iterator[None]:
    """Turn a :class:`DataPlaneError` of the body into the error of its kind.

    :param what: what was being done, on what; begins the message.
    """
    try:
        yield
    except DataPlaneError as error:
        kind = exception.ErrorKind(error.kind)
        raise exception.CLASS_OF_KIND[kind](f"{what}: {error}") from error
