//! The one extension module, `acstor._dataplane`; this file only lists its parts.
//!
//! Importing it does no I/O, starts no threads and reads no configuration.

mod browsing;
mod data_plane;
mod errors;
mod log_channel;
mod log_sink;
mod mounts;
mod origin;
mod python_origin;
mod python_sink;
mod rados_reader;
mod repository;
mod ring;
mod settings;
mod signatures;
mod volumes;

use pyo3::prelude::*;

#[pymodule]
mod _dataplane {
    #[pymodule_export]
    use crate::browsing::serve_files;
    #[pymodule_export]
    use crate::data_plane::{DataPlane, manifest_name};
    #[pymodule_export]
    use crate::errors::{DataPlaneError, StaleDescriptorError};
    #[pymodule_export]
    use crate::mounts::{mount_images, set_read_ahead, unmount_images};
    #[pymodule_export]
    use crate::rados_reader::RadosReader;
    #[pymodule_export]
    use crate::repository::{
        ChunkRecords, DigestIndex, DiskBuilder, ImageBuilder, Manifest, MovedPack, PackHeader,
        PackWriter, PagedManifest, Scan, SpaceAccount, StoredChunkIndex, StoredChunks,
        compress_chunks, digest, pack_header, pack_id, parse_pack_header, rewrite_chunks,
        scan_buffer, scan_file, unsound_chunks,
    };
    #[pymodule_export]
    use crate::ring::{PyRing, PyRingHost, build_ring, recommended_vnode_count};
    #[pymodule_export]
    use crate::signatures::{SigningKey, is_signed_by, make_signing_key};
    #[pymodule_export]
    use crate::volumes::{seal_volume_log, spool_volume_log};
}
