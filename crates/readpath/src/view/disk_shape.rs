//! Shape of a disk: what stays as it is wherever its chunks are and whatever says where.

use acstor_manifest::Header;
use acstor_types::{ChunkSize, DiskId, ManifestHeader};

/// Shape of a disk, of a manifest of any format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskShape {
    /// The disk.
    pub disk_id: DiskId,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Size of every chunk.
    pub chunk_size: ChunkSize,
    /// Number of chunks, zero chunks included.
    pub chunk_count: u64,
}

impl From<ManifestHeader> for DiskShape {
    fn from(header: ManifestHeader) -> DiskShape {
        let ManifestHeader { disk_id, size_bytes, chunk_size, chunk_count, .. } = header;
        DiskShape { disk_id, size_bytes, chunk_size, chunk_count }
    }
}

impl From<&Header> for DiskShape {
    fn from(header: &Header) -> DiskShape {
        DiskShape {
            disk_id: header.disk_id(),
            size_bytes: header.size_bytes(),
            chunk_size: header.chunk_size(),
            chunk_count: header.chunk_count(),
        }
    }
}
