//! Manifests of version 2, as Python sees them: read by the page, verified, never whole in memory.

use std::sync::Arc;

use acstor_manifest::{
    Chunk, DataChunk, Header, ManifestError, PAGE_LEN, Pack, PageCache, Reader, Stack, Summary,
    VerifiedPages,
};
use acstor_types::{ChunkLocation, Codec, Digest, PACK_DATA_OFFSET, PackId, StoredChunk};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::chunk_records::codec_name;
use super::digest_index::DigestIndex;
use super::invalid;
use super::python_pages::{PythonPages, ReadError};
use super::scan::Scan;
use super::space_account::PackRuns;
use super::stored_chunk_index::StoredChunkIndex;
use crate::errors;

/// Entries that are compared at once.
const BATCH: usize = 4096;
/// Bytes of pages that are kept for a manifest and its bases.
const CACHE_BYTES: usize = 1 << 20;

type Pages = Arc<VerifiedPages<PythonPages>>;
/// A chunk: digest, id of the pack, offset, stored bytes, codec.
type PyChunk<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, u32, u32, &'static str);
/// A pack: id, number of its class, bytes of all its chunks, bytes of those that are used.
type PyUsage<'py> = (Bound<'py, PyBytes>, u8, u32, u32);

/// A manifest and those below it of which it is a delta.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct PagedManifest {
    stack: Stack<Pages>,
}

#[pymethods]
impl PagedManifest {
    /// Opens the manifest of a name, of which only the header is read.
    #[staticmethod]
    #[pyo3(signature = (name, size_bytes, read, base=None))]
    fn open(
        py: Python<'_>,
        name: &str,
        size_bytes: u64,
        read: Py<PyAny>,
        base: Option<&PagedManifest>,
    ) -> PyResult<PagedManifest> {
        let name: Digest = name.parse().map_err(|_| invalid("the name is no digest"))?;
        let pages = PythonPages::new(read, size_bytes);
        let opened = py.detach(|| -> Result<_, ReadError> {
            let front = pages.read_run(0, PAGE_LEN as u64)?;
            let header = Arc::new(Header::open(&front, pages.len(), &name)?);
            let cache = Arc::new(PageCache::new(CACHE_BYTES));
            let pages = Arc::new(VerifiedPages::new(Arc::clone(&header), cache, pages));
            let mut levels = vec![Reader::new(header, pages)];
            levels.extend(base.into_iter().flat_map(|base| base.stack.levels().iter().cloned()));
            Ok(Stack::new(levels)?)
        });
        Ok(PagedManifest { stack: opened? })
    }

    /// Name of the manifest that the one with this header is a delta of; `None`: it is whole.
    #[staticmethod]
    fn base_of(header: &[u8], size_bytes: u64) -> PyResult<Option<String>> {
        let header = Header::parse(header, size_bytes)
            .map_err(|error| errors::raise(error.kind(), error))?;
        Ok(header.base().map(|base| base.to_string()))
    }

    #[getter]
    fn digest(&self) -> String {
        self.stack.header().name().to_string()
    }

    #[getter]
    fn disk_id(&self) -> String {
        self.stack.header().disk_id().to_string()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.stack.header().size_bytes()
    }

    #[getter]
    fn chunk_size(&self) -> u32 {
        self.stack.header().chunk_size().as_u32()
    }

    #[getter]
    fn chunk_count(&self) -> u64 {
        self.stack.header().chunk_count()
    }

    #[getter]
    fn depth(&self) -> u8 {
        self.stack.header().depth()
    }

    #[getter]
    fn content_name(&self) -> Option<String> {
        self.stack.header().content_name().map(|name| name.to_string())
    }

    /// Number of chunks with content.
    fn data_count(&self, py: Python<'_>) -> PyResult<u64> {
        if !self.stack.header().is_delta() {
            return Ok(self.stack.header().counts().data_chunks.into());
        }
        let count = py.detach(|| -> Result<u64, ReadError> {
            let mut runs = self.stack.data_runs(0..self.stack.header().chunk_count());
            runs.try_fold(0, |sum, run| run.map(|run| sum + (run.end - run.start)))
        });
        Ok(count?)
    }

    /// Packs of each manifest, the topmost first, and what is used of them; no entry is read.
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Vec<PyUsage<'py>>> {
        let mut found = Vec::new();
        for level in self.stack.levels() {
            let summary = py.detach(|| summary_of(level))?;
            for record in summary.packs() {
                let Pack { id, stored_bytes, class } = record.pack;
                let id = PyBytes::new(py, id.0.as_bytes());
                found.push((id, class, stored_bytes, record.used_bytes));
            }
        }
        Ok(found)
    }

    /// Returns a chunk; `None` for a zero chunk.
    fn entry<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Option<PyChunk<'py>>> {
        if index >= self.stack.header().chunk_count() {
            return Err(PyIndexError::new_err("past the end of the disk"));
        }
        let found = py.detach(|| -> Result<_, ReadError> {
            match self.stack.look_up(index)? {
                Chunk::Zero => Ok(None),
                Chunk::Data { level, entry } => {
                    Ok(Some((self.pack_of(level, entry.pack)?, entry.chunk)))
                }
            }
        });
        Ok(found?.map(|(pack, chunk)| py_chunk(py, &pack, &chunk)))
    }

    /// Returns chunks with content from `first` on, at most `count`, each behind its index.
    fn entries<'py>(
        &self,
        py: Python<'py>,
        first: u64,
        count: usize,
    ) -> PyResult<Vec<(u64, PyChunk<'py>)>> {
        let found = py.detach(|| -> Result<Vec<_>, ReadError> {
            let chunks = self.stack.entries(first..self.stack.header().chunk_count());
            chunks.take(count).map(|chunk| self.located(chunk?)).collect()
        });
        let of_python =
            |(index, pack, chunk): (u64, PackId, StoredChunk)| (index, py_chunk(py, &pack, &chunk));
        Ok(found?.into_iter().map(of_python).collect())
    }

    /// Returns the first chunk with content at or after `first`.
    fn next_data(&self, py: Python<'_>, first: u64) -> PyResult<Option<u64>> {
        Ok(py.detach(|| self.stack.next_data(first))?)
    }

    /// Returns the first of the chunks that were scanned from `first` on that is another here.
    fn first_difference(&self, py: Python<'_>, first: u64, scan: &Scan) -> PyResult<Option<u64>> {
        let found = py.detach(|| -> Result<_, ReadError> {
            for (index, digest) in (first..).zip(&scan.digests) {
                let known = match self.stack.look_up(index)? {
                    Chunk::Zero => None,
                    Chunk::Data { entry, .. } => Some(entry.chunk.digest),
                };
                if known != *digest {
                    return Ok(Some(index));
                }
            }
            Ok(None)
        });
        Ok(found?)
    }

    /// Reads all pages of each manifest and checks them.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.stack.levels().iter().try_for_each(Reader::check))?)
    }

    /// Returns the indexes of the chunks that are not where the manifest says, as far as the index
    /// of sound chunks knows.
    fn unsound(
        &self,
        py: Python<'_>,
        stored: &StoredChunkIndex,
        plain: &DigestIndex,
    ) -> PyResult<Vec<u64>> {
        let unsound = py.detach(|| -> Result<Vec<u64>, ReadError> {
            let numbers = stored.index.read().pack_numbers();
            let plain_numbers = plain.index.read().pack_numbers();
            let mut entries = self.stack.entries(0..self.stack.header().chunk_count());
            let mut unsound = Vec::new();
            loop {
                // Read before the locks are taken: reading may wait for the GIL.
                let batch: Result<Vec<_>, ReadError> =
                    entries.by_ref().take(BATCH).map(|chunk| self.located(chunk?)).collect();
                let batch = batch?;
                if batch.is_empty() {
                    return Ok(unsound);
                }
                let (stored, plain) = (stored.index.read(), plain.index.read());
                let is_unsound = |(_, pack, chunk): &&(u64, PackId, StoredChunk)| {
                    let location = ChunkLocation { pack: *pack, offset: chunk.offset };
                    let is_plain = chunk.codec == Codec::Plain
                        && chunk.stored_len as usize == plain.chunk_size.bytes()
                        && plain.has_at(&chunk.digest, &location, &plain_numbers);
                    !is_plain && !stored.has_at(pack, chunk, &numbers)
                };
                unsound.extend(batch.iter().filter(is_unsound).map(|(at, ..)| *at));
            }
        });
        Ok(unsound?)
    }
}

impl PagedManifest {
    /// Bytes of packs that this manifest and its bases use.
    pub(super) fn runs(&self) -> Result<Vec<PackRuns>, ReadError> {
        let mut found = Vec::new();
        for level in self.stack.levels() {
            let summary = summary_of(level)?;
            for record in summary.packs() {
                let start = PACK_DATA_OFFSET as u32;
                let whole = start..start.saturating_add(record.pack.stored_bytes);
                let runs = if record.is_whole() { vec![whole] } else { summary.runs(&record) };
                found.push((record.pack.id, runs));
            }
        }
        Ok(found)
    }

    fn pack_of(&self, level: usize, number: u32) -> Result<PackId, ReadError> {
        let level = self.stack.levels().get(level);
        let level = level.ok_or(ManifestError::Range("level of a chunk"))?;
        Ok(level.pack(number)?.pack.id)
    }

    fn located(&self, chunk: DataChunk) -> Result<(u64, PackId, StoredChunk), ReadError> {
        let pack = self.pack_of(chunk.level, chunk.entry.pack)?;
        Ok((chunk.index, pack, chunk.entry.chunk))
    }
}

fn summary_of(level: &Reader<Pages>) -> Result<Summary<Vec<u8>>, ReadError> {
    let pages = level.header().sections().summary();
    let start = u64::from(pages.start) * PAGE_LEN as u64;
    let bytes = level.pages().raw().read_run(start, pages.len() as u64 * PAGE_LEN as u64)?;
    Ok(Summary::parse(level.header(), bytes)?)
}

fn py_chunk<'py>(py: Python<'py>, pack: &PackId, chunk: &StoredChunk) -> PyChunk<'py> {
    let digest = PyBytes::new(py, chunk.digest.as_bytes());
    let pack = PyBytes::new(py, pack.0.as_bytes());
    (digest, pack, chunk.offset, chunk.stored_len, codec_name(chunk.codec))
}
