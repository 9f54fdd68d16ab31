//! Lists of the chunks that a compaction has moved, as Python sees them.

use std::ops::Range;

use acstor_pack::{MovedChunk, MovedPack as Moved, MovedPackError};
use acstor_types::PackId;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Buffer;
use super::chunk_records::{ChunkRecords, codec_name};
use super::pack_writer::class_of;
use super::{Failure, chunk_size_of, digest_of, failure, invalid};

/// Runs of bytes, each a first one and the first after it.
type PyRuns = Vec<(u32, u32)>;
/// A copy: pack, offset, stored bytes, codec.
type PyCopy<'py> = (Bound<'py, PyBytes>, u32, u32, &'static str);
/// A pack that has copies: id, table, and of each copy the positions in the table before and in that.
type PyCopies<'py> = (Vec<u8>, PyRef<'py, ChunkRecords>, Vec<(usize, usize)>);
/// Places of runs, and those that nobody has moved.
type PyFollowed<'py> = (Vec<(Bound<'py, PyBytes>, PyRuns)>, PyRuns);

impl From<MovedPackError> for Failure {
    fn from(error: MovedPackError) -> Failure {
        failure(error.kind(), error)
    }
}

/// The object `moved/<pack>`.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct MovedPack {
    pub(super) moved: Moved,
}

#[pymethods]
impl MovedPack {
    /// Returns the bytes of the whole object that begins so.
    #[staticmethod]
    fn size_of(header: &[u8]) -> PyResult<u64> {
        Ok(Moved::size_of(header).map_err(Failure::from)?)
    }

    /// Reads the object of a pack.
    #[staticmethod]
    fn parse(pack_id: &[u8], content: &Bound<'_, PyAny>) -> PyResult<MovedPack> {
        let pack = PackId(digest_of(pack_id)?);
        let buffer = Buffer::readable(content)?;
        Ok(MovedPack { moved: Moved::parse(&pack, buffer.bytes()).map_err(Failure::from)? })
    }

    /// Makes the list of what was copied: of each pack that has copies its table, and of each copy
    /// the position in the table before and in that one.
    #[staticmethod]
    fn build(
        pack_id: &[u8],
        pack_class: &str,
        chunk_size: u32,
        table: &ChunkRecords,
        copies: Vec<PyCopies<'_>>,
    ) -> PyResult<MovedPack> {
        let mut targets = Vec::with_capacity(copies.len());
        let mut chunks = Vec::new();
        for (id, target_table, positions) in &copies {
            let target = targets.len() as u32;
            targets.push(PackId(digest_of(id)?));
            for (before, after) in positions {
                chunks.push(copied(table, *before, target, target_table, *after)?);
            }
        }
        chunks.sort_unstable_by_key(|chunk| chunk.from);
        let (pack, class) = (PackId(digest_of(pack_id)?), class_of(pack_class)?);
        let moved = Moved::new(pack, class, chunk_size_of(chunk_size)?, targets, chunks);
        Ok(MovedPack { moved: moved.map_err(Failure::from)? })
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.moved.encode())
    }

    fn __len__(&self) -> usize {
        self.moved.chunks().len()
    }

    #[getter]
    fn pack_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.moved.pack().0.as_bytes())
    }

    #[getter]
    fn pack_class(&self) -> &'static str {
        self.moved.class().as_str()
    }

    /// Ids of the packs that have the copies.
    fn targets<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.moved.targets().iter().map(|id| PyBytes::new(py, id.0.as_bytes())).collect()
    }

    /// Returns the copy of the chunk that was at a place; `None`: it was not copied.
    fn find<'py>(&self, py: Python<'py>, offset: u32, stored_size: u32) -> Option<PyCopy<'py>> {
        let (pack, chunk) = self.moved.find(offset, stored_size)?;
        let id = PyBytes::new(py, pack.0.as_bytes());
        Some((id, chunk.offset, chunk.stored_len, codec_name(chunk.codec)))
    }

    /// Returns where runs of whole chunks are now, and those that were not copied.
    fn follow<'py>(&self, py: Python<'py>, runs: PyRuns) -> PyFollowed<'py> {
        let runs: Vec<Range<u32>> = runs.into_iter().map(|(start, end)| start..end).collect();
        let (found, left) = py.detach(|| self.moved.follow(&runs));
        let of_pack = |(pack, runs): (PackId, Vec<Range<u32>>)| {
            (PyBytes::new(py, pack.0.as_bytes()), py_runs(runs))
        };
        (found.into_iter().map(of_pack).collect(), py_runs(left))
    }
}

pub(super) fn py_runs(runs: Vec<Range<u32>>) -> PyRuns {
    runs.into_iter().map(|run| (run.start, run.end)).collect()
}

/// The copy of a chunk in another pack's table; refused where it is another chunk.
fn copied(
    table: &ChunkRecords,
    before: usize,
    target: u32,
    target_table: &ChunkRecords,
    after: usize,
) -> Result<MovedChunk, Failure> {
    let (from, copy) = (table.chunk(before)?, target_table.chunk(after)?);
    if from.digest != copy.digest {
        return Err(invalid(format!("chunk {before} is not the one at {after} of the other pack")));
    }
    Ok(MovedChunk::new(&from, target, &copy))
}
