//! Assembling a disk: which of its chunks are new, where they come to lie, and at the end the
//! manifest of version 2. What is zero costs nothing, however long it is.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use acstor_manifest::{BuildError, Builder, Disk, Pack, Salt};
use acstor_types::{Digest, DiskId, PackClass, PackId, limits};
use parking_lot::Mutex;
use pyo3::prelude::*;

use super::chunk_records::ChunkRecords;
use super::chunk_table::Ordinal;
use super::scan::Scan;
use super::stored_chunk_index::{Index, Placed, StoredChunkIndex};
use super::{Failure, digest_of, failure, invalid};

struct State {
    /// Number of chunks so far, zero or not.
    next: u64,
    /// Runs of chunks with content, ascending.
    runs: Vec<Range<u64>>,
    /// Number of each of them in the index, in the order of the disk.
    ordinals: Vec<Ordinal>,
    new_count: u64,
}

/// One disk being registered, and the one pack being filled.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct DiskBuilder {
    index: Py<StoredChunkIndex>,
    state: Mutex<State>,
}

#[pymethods]
impl DiskBuilder {
    #[new]
    fn new(index: Py<StoredChunkIndex>) -> DiskBuilder {
        let state = State { next: 0, runs: Vec::new(), ordinals: Vec::new(), new_count: 0 };
        DiskBuilder { index, state: Mutex::new(state) }
    }

    fn __len__(&self) -> usize {
        self.state.lock().next as usize
    }

    #[getter]
    fn zero_count(&self) -> u64 {
        let state = self.state.lock();
        state.next - state.ordinals.len() as u64
    }

    #[getter]
    fn new_count(&self) -> u64 {
        self.state.lock().new_count
    }

    /// Number of different chunks, zero chunks left out.
    fn unique_count(&self, py: Python<'_>) -> usize {
        py.detach(|| {
            let mut ordinals = self.state.lock().ordinals.clone();
            ordinals.sort_unstable();
            ordinals.dedup();
            ordinals.len()
        })
    }

    fn push_zeros(&self, count: u64) -> PyResult<()> {
        Ok(self.state.lock().take(count).map(|_| ())?)
    }

    /// Appends scanned chunks; returns the positions of those that are new, in the order in which
    /// packs have to take them.
    fn absorb(&self, py: Python<'_>, scan: &Scan) -> PyResult<Vec<usize>> {
        let index = self.index.get();
        Ok(py.detach(|| self.state.lock().absorb(&mut index.index.write(), scan))?)
    }

    /// Notes the pack that has the new chunks which are in none so far: as many as its table has.
    fn close_pack(&self, py: Python<'_>, pack_id: &[u8], table: &ChunkRecords) -> PyResult<()> {
        let id = PackId(digest_of(pack_id)?);
        let index = self.index.get();
        Ok(py.detach(|| index.index.write().seal(id, table.chunks()))?)
    }

    /// Writes the manifest of what was appended; returns its name and its length.
    fn finish(
        &self,
        py: Python<'_>,
        disk_id: &str,
        size_bytes: u64,
        salt: &[u8],
        spool_fd: i32,
        manifest_fd: i32,
    ) -> PyResult<(String, u64)> {
        let disk_id: DiskId = disk_id.parse().map_err(|_| invalid("the id is no UUID"))?;
        let salt: Salt = salt.try_into().map_err(|_| invalid("a salt is 16 bytes"))?;
        let (spool, mut out) = (file_of(spool_fd)?, file_of(manifest_fd)?);
        let index = self.index.get();
        Ok(py.detach(|| {
            let index = index.index.read();
            let disk = Disk { disk_id, size_bytes, chunk_size: index.chunk_size, salt, base: None };
            self.state.lock().write_manifest(&index, disk, spool, &mut out)
        })?)
    }

    /// Returns the name that the content has in manifests of version 1; `None` where they cannot
    /// describe the disk.
    fn former_content_name(&self, py: Python<'_>, size_bytes: u64) -> PyResult<Option<String>> {
        let index = self.index.get();
        Ok(py.detach(|| self.state.lock().former_content_name(&index.index.read(), size_bytes))?)
    }
}

fn file_of(fd: i32) -> Result<File, Failure> {
    if fd < 0 {
        return Err(invalid("bad descriptor"));
    }
    // SAFETY: the caller keeps the descriptor open during the call (documented); -1 is refused.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    file.try_clone_to_owned().map(File::from).map_err(of_spool)
}

fn of_spool(error: std::io::Error) -> Failure {
    of_build(BuildError::from(error))
}

fn of_build(error: BuildError) -> Failure {
    failure(error.kind(), error)
}

impl State {
    /// Takes the next chunks, as far as a manifest can have them; nothing is allocated.
    fn take(&mut self, count: u64) -> Result<u64, Failure> {
        let max = acstor_manifest::limits::CHUNKS_MAX;
        let first = self.next;
        if count > max - first {
            return Err(invalid(format!(
                "a disk has at most {max} chunks, the limit of manifests"
            )));
        }
        self.next += count;
        Ok(first)
    }

    fn absorb(&mut self, index: &mut Index, scan: &Scan) -> Result<Vec<usize>, Failure> {
        if index.chunk_size != scan.chunk_size {
            return Err(invalid("scan and index have different chunk sizes"));
        }
        let first = self.take(scan.digests.len() as u64)?;
        let mut fresh = Vec::new();
        for (position, digest) in scan.digests.iter().enumerate() {
            let Some(digest) = digest else { continue };
            let ordinal = match index.find(digest) {
                Some(ordinal) => ordinal,
                None => {
                    fresh.push(position);
                    index.append(digest)?
                }
            };
            self.push(first + position as u64, ordinal);
        }
        self.new_count += fresh.len() as u64;
        Ok(fresh)
    }

    fn push(&mut self, chunk: u64, ordinal: Ordinal) {
        match self.runs.last_mut() {
            Some(run) if run.end == chunk => run.end += 1,
            _ => self.runs.push(chunk..chunk + 1),
        }
        self.ordinals.push(ordinal);
    }

    /// Chunks with content and where they are.
    fn placed(&self, index: &Index) -> impl Iterator<Item = Result<(u64, Placed), Failure>> {
        let chunks = self.runs.iter().flat_map(Range::clone).zip(&self.ordinals);
        chunks.map(|(chunk, ordinal)| {
            let placed = index.locate(*ordinal).ok_or_else(|| invalid("a pack is not closed"))?;
            Ok((chunk, placed))
        })
    }

    fn check_count(&self, index: &Index, size_bytes: u64) -> Result<(), Failure> {
        if index.chunk_size.count_for(size_bytes) == self.next {
            Ok(())
        } else {
            Err(invalid(format!("{} chunks are no disk of {size_bytes} bytes", self.next)))
        }
    }

    fn write_manifest(
        &self,
        index: &Index,
        disk: Disk,
        spool: File,
        out: &mut File,
    ) -> Result<(String, u64), Failure> {
        self.check_count(index, disk.size_bytes)?;
        let mut builder = Builder::new(disk, spool).map_err(of_build)?;
        for placed in self.placed(index) {
            let (chunk, Placed { pack, pack_stored_bytes, chunk: stored }) = placed?;
            let class = PackClass::Image as u8;
            let pack = Pack { id: pack, stored_bytes: pack_stored_bytes, class };
            let number = builder.add_pack(pack).map_err(of_build)?;
            builder.push(chunk, number, stored).map_err(of_build)?;
        }
        let mut built = builder.finish().map_err(of_build)?;
        built.write_to(out).and_then(|()| out.flush()).map_err(of_spool)?;
        Ok((built.header().name().to_string(), built.header().len_bytes()))
    }

    fn former_content_name(
        &self,
        index: &Index,
        size_bytes: u64,
    ) -> Result<Option<String>, Failure> {
        self.check_count(index, size_bytes)?;
        if self.next > limits::MANIFEST_CHUNKS_MAX {
            return Ok(None);
        }
        let mut name = FormerContentName::new(size_bytes, index.chunk_size.as_u32());
        for placed in self.placed(index) {
            let (chunk, placed) = placed?;
            name.push(chunk, &placed.chunk.digest);
        }
        Ok(Some(name.finish(self.next)))
    }
}

/// Name of a disk's content as manifests of version 1 have it: BLAKE3 of size (u64), chunk size
/// (u32), and the digests of all chunks, zeros for a zero chunk.
struct FormerContentName {
    hasher: blake3::Hasher,
    next: u64,
}

impl FormerContentName {
    fn new(size_bytes: u64, chunk_size: u32) -> FormerContentName {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&size_bytes.to_le_bytes()).update(&chunk_size.to_le_bytes());
        FormerContentName { hasher, next: 0 }
    }

    fn skip_to(&mut self, chunk: u64) {
        const ZEROS: [u8; 128 * Digest::LEN] = [0; 128 * Digest::LEN];
        while self.next < chunk {
            let count = (chunk - self.next).min(128);
            self.hasher.update(&ZEROS[..count as usize * Digest::LEN]);
            self.next += count;
        }
    }

    fn push(&mut self, chunk: u64, digest: &Digest) {
        self.skip_to(chunk);
        self.hasher.update(digest.as_bytes());
        self.next += 1;
    }

    fn finish(mut self, chunk_count: u64) -> String {
        self.skip_to(chunk_count);
        self.hasher.finalize().to_hex().to_string()
    }
}
