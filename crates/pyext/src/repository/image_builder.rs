//! Assembling an image: which chunks are new, the packs' digests, and at the end the manifest.

use acstor_types::{DiskId, ManifestBuilder, PackId, limits};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Buffer;
use super::chunk_table::Ordinal;
use super::digest_index::{DigestIndex, Index};
use super::manifest::Manifest;
use super::pack::salt_of;
use super::scan::Scan;
use super::{Failure, failure, invalid};

const ZERO: Ordinal = Ordinal::MAX;

struct State {
    /// Number of each chunk in the index, in the order of the disk; 4 bytes a chunk.
    entries: Vec<Ordinal>,
    zero_count: u64,
    new_count: u64,
}

/// One image being registered, and the one pack being filled.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct ImageBuilder {
    index: Py<DigestIndex>,
    state: Mutex<State>,
}

#[pymethods]
impl ImageBuilder {
    #[new]
    fn new(index: Py<DigestIndex>) -> ImageBuilder {
        let state = State { entries: Vec::new(), zero_count: 0, new_count: 0 };
        ImageBuilder { index, state: Mutex::new(state) }
    }

    fn __len__(&self) -> usize {
        self.state.lock().entries.len()
    }

    #[getter]
    fn zero_count(&self) -> u64 {
        self.state.lock().zero_count
    }

    #[getter]
    fn new_count(&self) -> u64 {
        self.state.lock().new_count
    }

    /// Number of different chunks, zero chunks left out.
    fn unique_count(&self, py: Python<'_>) -> u64 {
        py.detach(|| {
            let mut ordinals = self.state.lock().entries.clone();
            ordinals.sort_unstable();
            ordinals.dedup();
            ordinals.iter().filter(|ordinal| **ordinal != ZERO).count() as u64
        })
    }

    fn push_zeros(&self, py: Python<'_>, count: u64) -> PyResult<()> {
        Ok(py.detach(|| {
            let state = &mut *self.state.lock();
            check_room(state, count)?;
            let count_after = state.entries.len() + count as usize;
            state.entries.resize(count_after, ZERO);
            state.zero_count += count;
            Ok::<_, Failure>(())
        })?)
    }

    /// Appends scanned chunks, moves those that are new to the front of the buffer that was
    /// scanned, and returns their number.
    fn absorb(&self, py: Python<'_>, scan: &Scan, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = Buffer::writable(buffer)?;
        let chunk_len = scan.chunk_size.bytes();
        let bytes = buffer.bytes_mut();
        if bytes.len() != scan.digests.len() * chunk_len {
            return Err(invalid("the buffer is not the one that was scanned").into());
        }
        let index = self.index.get();
        Ok(py.detach(|| self.take_new(&mut index.index.write(), scan, bytes))?)
    }

    /// Closes the pack being filled; returns its id and its digests.
    fn seal_pack<'py>(
        &self,
        py: Python<'py>,
        salt: &[u8],
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let salt = salt_of(salt)?;
        let index = self.index.get();
        let sealed: Result<(PackId, Vec<u8>), Failure> = py.detach(|| {
            let mut index = index.index.write();
            let digests = index.open_digests();
            if digests.is_empty() {
                return Err(invalid("no pack is being filled"));
            }
            let id = PackId::of_salted(&digests, &salt);
            index.seal(id);
            Ok((id, digests))
        });
        let (id, digests) = sealed?;
        Ok((PyBytes::new(py, id.0.as_bytes()), PyBytes::new(py, &digests)))
    }

    /// Returns the manifest of what was appended.
    fn finish(
        &self,
        py: Python<'_>,
        disk_id: &str,
        size_bytes: u64,
        salt: u64,
    ) -> PyResult<Manifest> {
        let disk_id: DiskId = disk_id.parse().map_err(|_| invalid("the id is no UUID"))?;
        let index = self.index.get();
        let built: Result<_, Failure> = py.detach(|| {
            let index = index.index.read();
            let mut builder = ManifestBuilder::new(disk_id, index.chunk_size, size_bytes);
            builder.set_salt(salt);
            for ordinal in &self.state.lock().entries {
                if *ordinal == ZERO {
                    builder.push_zero();
                    continue;
                }
                let (digest, location) =
                    index.locate(*ordinal).ok_or_else(|| invalid("a pack is not closed"))?;
                builder.push_chunk(&digest, location);
            }
            builder.finish().map_err(|error| failure(error.kind(), error))
        });
        Ok(Manifest { inner: built? })
    }
}

/// Refuses, before anything is allocated, more chunks than a manifest can have.
fn check_room(state: &State, count: u64) -> Result<(), Failure> {
    let room = limits::MANIFEST_CHUNKS_MAX.saturating_sub(state.entries.len() as u64);
    if count > room {
        let max = limits::MANIFEST_CHUNKS_MAX;
        return Err(invalid(format!("a disk has at most {max} chunks, the limit of manifests")));
    }
    Ok(())
}

impl ImageBuilder {
    fn take_new(&self, index: &mut Index, scan: &Scan, bytes: &mut [u8]) -> Result<usize, Failure> {
        if index.chunk_size != scan.chunk_size {
            return Err(invalid("scan and index have different chunk sizes"));
        }
        let chunk_len = scan.chunk_size.bytes();
        let state = &mut *self.state.lock();
        check_room(state, scan.digests.len() as u64)?;
        let mut kept = 0;
        for (position, digest) in scan.digests.iter().enumerate() {
            let Some(digest) = digest else {
                state.zero_count += 1;
                state.entries.push(ZERO);
                continue;
            };
            let ordinal = match index.find(digest) {
                Some(ordinal) => ordinal,
                None => {
                    let from = position * chunk_len;
                    bytes.copy_within(from..from + chunk_len, kept * chunk_len);
                    kept += 1;
                    index.append(digest)?
                }
            };
            state.entries.push(ordinal);
        }
        state.new_count += kept as u64;
        Ok(kept)
    }
}
