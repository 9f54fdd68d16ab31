//! Native part of the repository: digests, deduplication, manifests, packs.
//!
//! Every function that reads, hashes or moves more than a few bytes releases the GIL. Buffers are
//! taken through the buffer protocol and never copied. Nothing here does I/O except on files that
//! Python has opened: `scan_file` reads one, `DiskBuilder` writes a manifest.

mod buffer;
mod chunk_records;
mod chunk_table;
mod digest_index;
mod disk_builder;
mod image_builder;
mod manifest;
mod moved_pack;
mod pack;
mod pack_writer;
mod paged_manifest;
mod python_pages;
mod scan;
mod space_account;
mod stored_chunk_index;
mod stored_chunks;

pub(crate) use chunk_records::ChunkRecords;
pub(crate) use digest_index::DigestIndex;
pub(crate) use disk_builder::DiskBuilder;
pub(crate) use image_builder::ImageBuilder;
pub(crate) use manifest::Manifest;
pub(crate) use moved_pack::MovedPack;
pub(crate) use pack::{pack_header, pack_id, parse_pack_header};
pub(crate) use pack_writer::{PackHeader, PackWriter};
pub(crate) use paged_manifest::PagedManifest;
pub(crate) use scan::{Scan, digest, scan_buffer, scan_file, unsound_chunks};
pub(crate) use space_account::SpaceAccount;
pub(crate) use stored_chunk_index::StoredChunkIndex;
pub(crate) use stored_chunks::{StoredChunks, compress_chunks, rewrite_chunks};

use acstor_types::{ChunkSize, Digest, ErrorKind};
use pyo3::PyErr;

use crate::errors;

/// An error made without the GIL; becomes a Python exception at the border.
///
/// A thread that holds a lock of this module must not wait for the GIL, or it would deadlock with
/// one that holds the GIL and waits for the lock; so nothing below makes exceptions itself.
#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    message: String,
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        errors::raise(failure.kind, failure.message)
    }
}

fn failure(kind: ErrorKind, message: impl ToString) -> Failure {
    Failure { kind, message: message.to_string() }
}

fn invalid(message: impl ToString) -> Failure {
    failure(ErrorKind::Invalid, message)
}

fn chunk_size_of(bytes: u32) -> Result<ChunkSize, Failure> {
    ChunkSize::new(bytes).ok_or_else(|| {
        invalid(format!("chunk size {bytes} is no power of two from 4 KiB to 4 MiB"))
    })
}

fn digest_of(bytes: &[u8]) -> Result<Digest, Failure> {
    let bytes: [u8; Digest::LEN] =
        bytes.try_into().map_err(|_| invalid(format!("{} bytes are no digest", bytes.len())))?;
    Ok(Digest::from_bytes(bytes))
}

/// Splits concatenated digests.
fn digests_of(bytes: &[u8]) -> Result<&[[u8; Digest::LEN]], Failure> {
    let (digests, rest) = bytes.as_chunks::<{ Digest::LEN }>();
    if rest.is_empty() {
        Ok(digests)
    } else {
        Err(invalid("digests are not a multiple of 32 bytes"))
    }
}
