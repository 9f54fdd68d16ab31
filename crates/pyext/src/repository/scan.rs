//! Digests and zero chunks of a run of chunks, on all cores.

use std::os::fd::BorrowedFd;

use acstor_types::{ChunkSize, DedupScope, Digest, ErrorKind, is_zero};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::prelude::*;

use super::buffer::Buffer;
use super::{Failure, chunk_size_of, digests_of, failure, invalid};

/// Bytes that one task reads before it digests them: they are then still in the core's cache
/// (reading and digesting 64 KiB from the cache costs 16 us, digesting it from memory 14 us).
const READ_SIZE: usize = 256 << 10;

/// Content of a run of chunks, by digest.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct Scan {
    pub(super) chunk_size: ChunkSize,
    /// One per chunk; `None` for a zero chunk.
    pub(super) digests: Vec<Option<Digest>>,
}

#[pymethods]
impl Scan {
    fn __len__(&self) -> usize {
        self.digests.len()
    }

    #[getter]
    fn zero_count(&self) -> usize {
        self.digests.iter().filter(|digest| digest.is_none()).count()
    }

    fn digests<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = Vec::with_capacity(self.digests.len() * Digest::LEN);
        for digest in &self.digests {
            bytes.extend_from_slice(
                digest.as_ref().map_or(&[0; Digest::LEN], |digest| digest.as_bytes()),
            );
        }
        PyBytes::new(py, &bytes)
    }
}

/// Returns BLAKE3-256 of a buffer, digested on all cores when it is long.
#[pyfunction]
pub(crate) fn digest<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let buffer = Buffer::readable(buffer)?;
    let digest = py.detach(|| Digest::of(buffer.bytes()));
    Ok(PyBytes::new(py, digest.as_bytes()))
}

/// Returns what a buffer of whole chunks contains, with the names that a scope gives.
#[pyfunction]
#[pyo3(signature = (buffer, chunk_size, scope=None))]
pub(crate) fn scan_buffer(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    chunk_size: u32,
    scope: Option<&str>,
) -> PyResult<Scan> {
    let (chunk_size, scope) = (chunk_size_of(chunk_size)?, scope.map(DedupScope::new));
    let buffer = Buffer::readable(buffer)?;
    let bytes = buffer.bytes();
    check_whole_chunks(bytes.len(), chunk_size)?;
    let name = |chunk| name(scope.as_ref(), chunk);
    let digests = py.detach(|| bytes.par_chunks(chunk_size.bytes()).map(name).collect());
    Ok(Scan { chunk_size, digests })
}

/// Returns the positions of the chunks of a buffer that are not what their digests say; the digest
/// of a zero chunk is 32 zero bytes.
#[pyfunction]
pub(crate) fn unsound_chunks(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    chunk_size: u32,
    digests: &Bound<'_, PyAny>,
) -> PyResult<Vec<usize>> {
    let chunk_size = chunk_size_of(chunk_size)?;
    let (buffer, expected) = (Buffer::readable(buffer)?, Buffer::readable(digests)?);
    let (bytes, expected) = (buffer.bytes(), digests_of(expected.bytes())?);
    check_whole_chunks(bytes.len(), chunk_size)?;
    if bytes.len() / chunk_size.bytes() != expected.len() {
        return Err(invalid("there is not one digest for each chunk").into());
    }
    let is_sound = |chunk: &[u8], digest: &[u8; Digest::LEN]| match *digest {
        digest if digest == [0; Digest::LEN] => is_zero(chunk),
        digest => Digest::from_bytes(digest).matches(chunk),
    };
    Ok(py.detach(|| {
        let chunks = bytes.par_chunks(chunk_size.bytes()).zip(expected).enumerate();
        let unsound = chunks.filter(|(_, (chunk, digest))| !is_sound(chunk, digest));
        unsound.map(|(position, _)| position).collect()
    }))
}

/// Reads `size` bytes of a file from `offset` on into a buffer of whole chunks, pads it with zeros
/// and returns what it then contains, with the names that a scope gives.
#[pyfunction]
#[pyo3(signature = (fd, offset, size, buffer, chunk_size, scope=None))]
pub(crate) fn scan_file(
    py: Python<'_>,
    fd: i32,
    offset: u64,
    size: usize,
    buffer: &Bound<'_, PyAny>,
    chunk_size: u32,
    scope: Option<&str>,
) -> PyResult<Scan> {
    let (chunk_size, scope) = (chunk_size_of(chunk_size)?, scope.map(DedupScope::new));
    let mut buffer = Buffer::writable(buffer)?;
    let bytes = buffer.bytes_mut();
    check_whole_chunks(bytes.len(), chunk_size)?;
    if fd < 0 || size > bytes.len() {
        return Err(invalid("bad descriptor, or more bytes than the buffer holds").into());
    }
    // SAFETY: the caller keeps the descriptor open during the call (documented); -1 is refused.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let task = READ_SIZE.max(chunk_size.bytes());
    let name = |chunk| name(scope.as_ref(), chunk);
    let digests = py.detach(|| {
        let runs: Result<Vec<Vec<_>>, Failure> = bytes
            .par_chunks_mut(task)
            .enumerate()
            .map(|(number, run)| {
                let start = number * task;
                let filled = size.saturating_sub(start).min(run.len());
                let (content, padding) = run.split_at_mut(filled);
                read_exact_at(file, content, offset + start as u64)?;
                padding.fill(0);
                Ok(run.chunks(chunk_size.bytes()).map(name).collect())
            })
            .collect();
        runs.map(|runs| runs.concat())
    });
    Ok(Scan { chunk_size, digests: digests? })
}

fn name(scope: Option<&DedupScope>, chunk: &[u8]) -> Option<Digest> {
    if is_zero(chunk) { None } else { Some(Digest::of_in(scope, chunk)) }
}

fn check_whole_chunks(len: usize, chunk_size: ChunkSize) -> Result<(), Failure> {
    if len.is_multiple_of(chunk_size.bytes()) {
        Ok(())
    } else {
        Err(invalid(format!("{len} bytes are no whole chunks of {} bytes", chunk_size.bytes())))
    }
}

fn read_failure(errno: rustix::io::Errno) -> Failure {
    let error = std::io::Error::from(errno);
    failure(ErrorKind::Unavailable, format!("reading the file: {error}"))
}

fn read_exact_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<(), Failure> {
    let mut done = 0;
    while done < buffer.len() {
        let position = offset + done as u64;
        match rustix::io::pread(file, &mut buffer[done..], position) {
            Ok(0) => {
                let end = offset + buffer.len() as u64;
                return Err(invalid(format!("the file ends before byte {end}")));
            }
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(read_failure(errno)),
        }
    }
    Ok(())
}
