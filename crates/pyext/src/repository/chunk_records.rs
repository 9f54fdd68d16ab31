//! Records of stored chunks: tables of packs of version 2, and reading what they name.

use std::ops::Range;

use acstor_pack::{ChunkDecompressor, plan_runs};
use acstor_types::{ChunkSize, Codec, Digest, ErrorKind, STORED_CHUNK_LEN, StoredChunk};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::prelude::*;

use super::buffer::Buffer;
use super::{Failure, chunk_size_of, failure, invalid};

/// A record as Python sees it: digest, offset, stored bytes, codec, whether it is incompressible.
type PyRecord<'py> = (Bound<'py, PyBytes>, u32, u32, &'static str, bool);
/// A planned read: offset, size, positions of the records in it.
type PyRun = (u64, u64, Vec<usize>);

pub(super) fn codec_name(codec: Codec) -> &'static str {
    match codec {
        Codec::Plain => "plain",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}

/// Records of chunks of one pack, checked one by one.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct ChunkRecords {
    chunks: Vec<StoredChunk>,
}

#[pymethods]
impl ChunkRecords {
    #[staticmethod]
    fn parse(records: &Bound<'_, PyAny>) -> PyResult<ChunkRecords> {
        let buffer = Buffer::readable(records)?;
        let (records, rest) = buffer.bytes().as_chunks::<STORED_CHUNK_LEN>();
        if !rest.is_empty() {
            return Err(invalid("records are not a multiple of 44 bytes").into());
        }
        let chunks: Result<Vec<_>, _> = records.iter().map(StoredChunk::from_bytes).collect();
        let corrupt = |error| failure(ErrorKind::Corrupt, error);
        Ok(ChunkRecords { chunks: chunks.map_err(corrupt)? })
    }

    fn __len__(&self) -> usize {
        self.chunks.len()
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.chunks.iter().flat_map(StoredChunk::to_bytes).collect();
        PyBytes::new(py, &bytes)
    }

    fn digests<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let digests: Vec<[u8; Digest::LEN]> =
            self.chunks.iter().map(|chunk| *chunk.digest.as_bytes()).collect();
        PyBytes::new(py, digests.as_flattened())
    }

    fn record<'py>(&self, py: Python<'py>, position: usize) -> PyResult<PyRecord<'py>> {
        let chunk = self.chunks.get(position);
        let chunk = chunk.ok_or_else(|| PyIndexError::new_err("past the last record"))?;
        let digest = PyBytes::new(py, chunk.digest.as_bytes());
        let codec = codec_name(chunk.codec);
        Ok((digest, chunk.offset, chunk.stored_len, codec, chunk.is_incompressible))
    }

    /// Plans the reads of all chunks, or of those at some positions.
    #[pyo3(signature = (run_size, positions=None))]
    fn plan_reads(
        &self,
        py: Python<'_>,
        run_size: u64,
        positions: Option<Vec<usize>>,
    ) -> PyResult<Vec<PyRun>> {
        let runs: Result<_, Failure> = py.detach(|| {
            let Some(positions) = positions else { return Ok(plan_runs(&self.chunks, run_size)) };
            let chunks: Result<Vec<_>, _> = positions.iter().map(|at| self.chunk(*at)).collect();
            let mut runs = plan_runs(&chunks?, run_size);
            for at in runs.iter_mut().flat_map(|planned| &mut planned.chunks) {
                *at = positions[*at];
            }
            Ok(runs)
        });
        let of_python = |planned: acstor_pack::PlannedRun| {
            (planned.run.offset(), planned.run.len(), planned.chunks)
        };
        Ok(runs?.into_iter().map(of_python).collect())
    }

    /// Decompresses and verifies chunks that were read; returns the defects with their positions.
    #[pyo3(signature = (positions, offset, stored, chunk_size, out=None))]
    fn decompress(
        &self,
        py: Python<'_>,
        positions: Vec<usize>,
        offset: u64,
        stored: &Bound<'_, PyAny>,
        chunk_size: u32,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<(usize, String)>> {
        let chunk_size = chunk_size_of(chunk_size)?;
        let stored = Buffer::readable(stored)?;
        let mut out = out.map(Buffer::writable).transpose()?;
        let work = Work { records: self, positions: &positions, offset, stored: stored.bytes() };
        let defects = match &mut out {
            None => py.detach(|| work.verify(chunk_size)),
            Some(out) => {
                let plain = out.bytes_mut();
                if plain.len() != positions.len() * chunk_size.bytes() {
                    return Err(invalid("the buffer is not of as many chunks as are read").into());
                }
                py.detach(|| work.decompress_into(plain, chunk_size))
            }
        };
        Ok(defects?)
    }
}

impl ChunkRecords {
    pub(super) fn of(chunks: Vec<StoredChunk>) -> ChunkRecords {
        ChunkRecords { chunks }
    }

    pub(super) fn chunks(&self) -> &[StoredChunk] {
        &self.chunks
    }

    pub(super) fn chunk(&self, position: usize) -> Result<StoredChunk, Failure> {
        let chunk = self.chunks.get(position).copied();
        chunk.ok_or_else(|| invalid(format!("there is no record {position}")))
    }
}

/// Place of a chunk in bytes that were read from `offset` on.
pub(super) fn range_in(
    chunk: &StoredChunk,
    offset: u64,
    len: usize,
) -> Result<Range<usize>, Failure> {
    let start = u64::from(chunk.offset).checked_sub(offset).and_then(|at| usize::try_from(at).ok());
    let range = start.and_then(|start| Some(start..start.checked_add(chunk.stored_len as usize)?));
    range.filter(|range| range.end <= len).ok_or_else(|| {
        invalid(format!("the chunk at {} is not in the bytes that were read", chunk.offset))
    })
}

/// One reading: which chunks of which bytes.
struct Work<'a> {
    records: &'a ChunkRecords,
    positions: &'a [usize],
    offset: u64,
    stored: &'a [u8],
}

type Defects = Result<Vec<(usize, String)>, Failure>;

impl Work<'_> {
    fn decompress_into(&self, plain: &mut [u8], chunk_size: ChunkSize) -> Defects {
        let chunks = self.positions.par_iter().zip(plain.par_chunks_mut(chunk_size.bytes()));
        let defects = chunks.map_init(ChunkDecompressor::new, |decompressor, (position, plain)| {
            self.decompress_one(decompressor, *position, plain)
        });
        defects.filter_map(Result::transpose).collect()
    }

    fn verify(&self, chunk_size: ChunkSize) -> Defects {
        let scratch = || (ChunkDecompressor::new(), vec![0; chunk_size.bytes()]);
        let defects = self.positions.par_iter().map_init(scratch, |(decompressor, plain), at| {
            self.decompress_one(decompressor, *at, plain)
        });
        defects.filter_map(Result::transpose).collect()
    }

    /// The defect of a chunk, whose place is then zero; `None` where it has none.
    fn decompress_one(
        &self,
        decompressor: &mut ChunkDecompressor,
        position: usize,
        plain: &mut [u8],
    ) -> Result<Option<(usize, String)>, Failure> {
        let chunk = self.records.chunk(position)?;
        let stored = &self.stored[range_in(&chunk, self.offset, self.stored.len())?];
        let Err(error) = decompressor.decompress(&chunk, stored, plain) else { return Ok(None) };
        plain.fill(0);
        Ok(Some((position, error.to_string())))
    }
}
