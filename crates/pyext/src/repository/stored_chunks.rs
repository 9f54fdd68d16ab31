//! Chunks compressed for packs of version 2, on all cores.

use acstor_pack::{ChunkCompressor, ChunkDecompressor, CompressionPolicy, StoredForm, ZstdLevel};
use acstor_types::{Codec, Digest, ErrorKind};
use pyo3::prelude::*;
use rayon::prelude::*;

use super::buffer::Buffer;
use super::chunk_records::{ChunkRecords, range_in};
use super::scan::Scan;
use super::{Failure, chunk_size_of, failure, invalid};

/// A chunk in the form in which it will be stored; a copy, so that the buffer it came from is free.
pub(super) struct OwnedForm {
    pub(super) digest: Digest,
    bytes: Vec<u8>,
    codec: Codec,
    is_incompressible: bool,
    crc: u32,
}

impl OwnedForm {
    fn of(digest: Digest, form: &StoredForm<'_>) -> OwnedForm {
        OwnedForm {
            digest,
            bytes: form.bytes.to_vec(),
            codec: form.codec,
            is_incompressible: form.is_incompressible,
            crc: form.crc,
        }
    }

    pub(super) fn borrow(&self) -> StoredForm<'_> {
        StoredForm {
            bytes: &self.bytes,
            codec: self.codec,
            is_incompressible: self.is_incompressible,
            crc: self.crc,
        }
    }
}

/// Chunks in their stored form, which have no place yet.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct StoredChunks {
    pub(super) forms: Vec<OwnedForm>,
}

#[pymethods]
impl StoredChunks {
    fn __len__(&self) -> usize {
        self.forms.len()
    }

    #[getter]
    fn stored_bytes(&self) -> usize {
        self.forms.iter().map(|form| form.bytes.len()).sum()
    }
}

fn policy_of(level: Option<i32>) -> Result<CompressionPolicy, Failure> {
    let Some(level) = level else { return Ok(CompressionPolicy::Fast) };
    let level = ZstdLevel::new(level).ok_or_else(|| {
        let (min, max) = (ZstdLevel::MIN.get(), ZstdLevel::MAX.get());
        invalid(format!("level {level} of zstd is not within {min} and {max}"))
    })?;
    Ok(CompressionPolicy::Dense(level))
}

/// Compresses some of the chunks of a buffer that was scanned.
#[pyfunction]
#[pyo3(signature = (scan, buffer, positions, level=None))]
pub(crate) fn compress_chunks(
    py: Python<'_>,
    scan: &Scan,
    buffer: &Bound<'_, PyAny>,
    positions: Vec<usize>,
    level: Option<i32>,
) -> PyResult<StoredChunks> {
    let policy = policy_of(level)?;
    let buffer = Buffer::readable(buffer)?;
    let (bytes, chunk_len) = (buffer.bytes(), scan.chunk_size.bytes());
    if bytes.len() != scan.digests.len() * chunk_len {
        return Err(invalid("the buffer is not the one that was scanned").into());
    }
    let compress = |compressor: &mut ChunkCompressor, position: usize| {
        let digest = scan.digests.get(position).copied().flatten();
        let digest = digest.ok_or_else(|| invalid(format!("no chunk to store at {position}")))?;
        let plain = &bytes[position * chunk_len..][..chunk_len];
        Ok::<_, Failure>(OwnedForm::of(digest, &compressor.compress(plain)))
    };
    let forms: Result<Vec<OwnedForm>, Failure> = py.detach(|| {
        let positions = positions.into_par_iter();
        positions.map_init(|| ChunkCompressor::new(policy), compress).collect()
    });
    Ok(StoredChunks { forms: forms? })
}

/// Verifies chunks of another pack and returns them in the form in which a rewriting stores them.
#[pyfunction]
#[pyo3(signature = (records, positions, offset, stored, chunk_size, level=None))]
pub(crate) fn rewrite_chunks(
    py: Python<'_>,
    records: &ChunkRecords,
    positions: Vec<usize>,
    offset: u64,
    stored: &Bound<'_, PyAny>,
    chunk_size: u32,
    level: Option<i32>,
) -> PyResult<StoredChunks> {
    let (policy, chunk_size) = (policy_of(level)?, chunk_size_of(chunk_size)?);
    let buffer = Buffer::readable(stored)?;
    let stored = buffer.bytes();
    let rewrite = |(compressor, decompressor, plain): &mut Rewriter, position: usize| {
        let chunk = records.chunk(position)?;
        let bytes = &stored[range_in(&chunk, offset, stored.len())?];
        decompressor
            .decompress(&chunk, bytes, plain)
            .map_err(|error| failure(ErrorKind::Corrupt, format!("chunk {position}: {error}")))?;
        Ok::<_, Failure>(OwnedForm::of(chunk.digest, &compressor.rewrite(&chunk, bytes, plain)))
    };
    let forms: Result<Vec<OwnedForm>, Failure> = py.detach(|| {
        let rewriter = || {
            let plain = vec![0; chunk_size.bytes()];
            (ChunkCompressor::new(policy), ChunkDecompressor::new(), plain)
        };
        positions.into_par_iter().map_init(rewriter, rewrite).collect()
    });
    Ok(StoredChunks { forms: forms? })
}

/// Memory of one task of a rewriting.
type Rewriter = (ChunkCompressor, ChunkDecompressor, Vec<u8>);
