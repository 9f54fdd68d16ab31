//! Manifests, as Python sees them.

use std::collections::HashMap;
use std::ops::Range;

use acstor_types::{Digest, Entry, PackId};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Buffer;
use super::digest_index::DigestIndex;
use super::scan::Scan;
use super::space_account::PackRuns;
use crate::errors;

type PyEntry<'py> = Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, u32)>;

/// A validated manifest.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct Manifest {
    pub(super) inner: acstor_types::Manifest,
}

#[pymethods]
impl Manifest {
    #[staticmethod]
    fn parse(py: Python<'_>, content: &Bound<'_, PyAny>) -> PyResult<Manifest> {
        let buffer = Buffer::readable(content)?;
        let parsed =
            py.detach(|| acstor_types::Manifest::parse(Bytes::copy_from_slice(buffer.bytes())));
        let inner = parsed.map_err(|error| errors::raise(error.kind(), error))?;
        Ok(Manifest { inner })
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.inner.as_bytes())
    }

    #[getter]
    fn digest(&self) -> String {
        self.inner.digest().to_string()
    }

    #[getter]
    fn disk_id(&self) -> String {
        self.inner.disk_id().to_string()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    #[getter]
    fn chunk_size(&self) -> u32 {
        self.inner.chunk_size().as_u32()
    }

    #[getter]
    fn chunk_count(&self) -> u64 {
        self.inner.chunk_count()
    }

    #[getter]
    fn zero_count(&self) -> usize {
        self.inner.entries().filter(|entry| *entry == Entry::Zero).count()
    }

    fn packs<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        (0..self.inner.pack_count())
            .filter_map(|number| self.inner.pack(number))
            .map(|pack| PyBytes::new(py, pack.0.as_bytes()))
            .collect()
    }

    /// Returns (digest, pack id, offset) of a chunk, `None` for a zero chunk.
    fn entry<'py>(&self, py: Python<'py>, index: u64) -> PyResult<PyEntry<'py>> {
        match self.inner.entry(index) {
            None => Err(pyo3::exceptions::PyIndexError::new_err("past the end of the disk")),
            Some(Entry::Zero) => Ok(None),
            Some(Entry::Chunk { digest, location }) => Ok(Some((
                PyBytes::new(py, digest.as_bytes()),
                PyBytes::new(py, location.pack.0.as_bytes()),
                location.offset,
            ))),
        }
    }

    /// Returns the digests of all chunks, concatenated; zeros for a zero chunk.
    fn digests<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = Vec::with_capacity(self.inner.chunk_count() as usize * Digest::LEN);
        for entry in self.inner.entries() {
            match entry {
                Entry::Zero => bytes.extend_from_slice(&[0; Digest::LEN]),
                Entry::Chunk { digest, .. } => bytes.extend_from_slice(digest.as_bytes()),
            }
        }
        PyBytes::new(py, &bytes)
    }

    /// Returns the first chunk with content at or after `first`.
    fn next_data(&self, py: Python<'_>, first: u64) -> Option<u64> {
        let is_data = |index: &u64| matches!(self.inner.entry(*index), Some(Entry::Chunk { .. }));
        py.detach(|| (first..self.inner.chunk_count()).find(is_data))
    }

    /// Returns the first of the chunks that were scanned from `first` on that is another here.
    fn first_difference(&self, py: Python<'_>, first: u64, scan: &Scan) -> Option<u64> {
        let differs = |(index, digest): &(u64, &Option<Digest>)| {
            let known = match self.inner.entry(*index) {
                Some(Entry::Chunk { digest, .. }) => Some(digest),
                _ => None,
            };
            known != **digest
        };
        py.detach(|| (first..).zip(&scan.digests).find(differs).map(|(index, _)| index))
    }

    /// Returns the indexes of the chunks that are not where the manifest says, as far as the
    /// index of sound chunks knows.
    fn unsound(&self, py: Python<'_>, index: &DigestIndex) -> Vec<u64> {
        py.detach(|| {
            let index = index.index.read();
            let numbers = index.pack_numbers();
            let is_unsound = |entry: &Entry| match entry {
                Entry::Zero => false,
                Entry::Chunk { digest, location } => !index.has_at(digest, location, &numbers),
            };
            let entries = self.inner.entries().enumerate();
            entries.filter(|(_, entry)| is_unsound(entry)).map(|(at, _)| at as u64).collect()
        })
    }
}

impl Manifest {
    /// Bytes of packs that the manifest uses.
    pub(super) fn runs(&self) -> Vec<PackRuns> {
        let chunk_size = self.inner.chunk_size().as_u32();
        let mut packs: HashMap<PackId, Vec<Range<u32>>> = HashMap::new();
        for entry in self.inner.entries() {
            let Entry::Chunk { location, .. } = entry else { continue };
            let run = location.offset..location.offset.saturating_add(chunk_size);
            let runs = packs.entry(location.pack).or_default();
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        packs.into_iter().collect()
    }
}
