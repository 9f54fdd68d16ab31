//! An origin that is a Python object: `readinto(key, offset, memoryview) -> int`.
//!
//! The general case, for origins without a native reader. A run of neighbouring chunks is one
//! call; the origin pool's threads wait for it, nothing else does.

use std::ffi::{c_char, c_int};

use acstor_readpath::{OriginError, OriginRange, OriginSource};
use acstor_types::{Digest, PackId};
use bytes::BytesMut;
use pyo3::prelude::*;
use pyo3::types::PyAny;

/// `PyBUF_WRITE` of Python's C API.
const WRITABLE: c_int = 0x200;

/// Reads packs and manifests through a Python object.
pub(crate) struct PythonOrigin {
    object: Py<PyAny>,
}

impl PythonOrigin {
    pub(crate) fn new(object: Py<PyAny>) -> PythonOrigin {
        PythonOrigin { object }
    }

    /// Calls `readinto` until `buffer` is full; the outcome is a short read or an error otherwise.
    fn fill(
        &self,
        py: Python<'_>,
        pack: &str,
        key: &str,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        let mut done = 0;
        while done < buffer.len() {
            let count = readinto(py, &self.object, key, offset + done as u64, buffer, done)
                .map_err(|error| translate(py, pack, &error))?;
            if count == 0 {
                let end = offset + buffer.len() as u64;
                return Err(OriginError::ShortRead { pack: pack.to_owned(), end });
            }
            if count > buffer.len() - done {
                return Err(OriginError::Internal(format!(
                    "readinto returned {count} for a buffer of {} bytes",
                    buffer.len() - done
                )));
            }
            done += count;
        }
        Ok(())
    }
}

impl PythonOrigin {
    /// Fills `buffer` with the bytes of the object `name` in `folder`, from `offset` on.
    fn read_object(
        &self,
        folder: &str,
        name: &str,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        let key = format!("{folder}/{}/{name}", &name[..2]);
        let outcome = Python::try_attach(|py| self.fill(py, name, &key, offset, buffer));
        outcome.ok_or_else(|| OriginError::Internal("the interpreter is shutting down".into()))?
    }
}

impl OriginSource for PythonOrigin {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        let Some(first) = ranges.first() else { return Ok(()) };
        let offset = first.offset;
        let total = ranges.iter().map(|range| range.buffer.len()).sum();
        let mut run = BytesMut::zeroed(total);
        self.read_object("packs", &pack.0.to_string(), offset, &mut run)?;
        for range in ranges {
            let len = range.buffer.len();
            range.buffer = run.split_to(len);
        }
        Ok(())
    }

    fn read_manifest(&self, name: &Digest, range: &mut OriginRange) -> Result<(), OriginError> {
        self.read_object("manifests", &name.to_string(), range.offset, &mut range.buffer)
    }

    fn read_moved(
        &self,
        pack: &PackId,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        self.read_object("moved", &pack.0.to_string(), offset, buffer)
    }
}

/// One call of `readinto` on the buffer from `done` on.
fn readinto(
    py: Python<'_>,
    object: &Py<PyAny>,
    key: &str,
    offset: u64,
    buffer: &mut BytesMut,
    done: usize,
) -> PyResult<usize> {
    let rest = &mut buffer[done..];
    let len = isize::try_from(rest.len())?;
    // SAFETY: the memory is valid for `len` bytes and is written by nobody else until the view is
    // released below; where it cannot be released, the buffer is leaked and stays valid for ever.
    let view = unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            pyo3::ffi::PyMemoryView_FromMemory(rest.as_mut_ptr().cast::<c_char>(), len, WRITABLE),
        )?
    };
    let outcome = object.call_method1(py, "readinto", (key, offset, &view));
    if let Err(error) = view.call_method0("release") {
        // The callee kept a buffer of the view: its memory must outlive the process's Python.
        let len = buffer.len();
        std::mem::forget(std::mem::replace(buffer, BytesMut::zeroed(len)));
        return Err(error);
    }
    outcome?.extract(py)
}

/// Maps an exception by the `kind` that ACStor's exceptions carry; any other is unavailability.
pub(crate) fn translate(py: Python<'_>, pack: &str, error: &PyErr) -> OriginError {
    let kind = error
        .value(py)
        .getattr("kind")
        .and_then(|kind| kind.str()?.extract::<String>())
        .unwrap_or_default();
    let (pack, cause) = (pack.to_owned(), error.to_string());
    match kind.rsplit('.').next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "not_found" => OriginError::NotFound { pack },
        "overloaded" => OriginError::Overloaded("the origin's driver refuses"),
        "invalid" | "internal" | "unsupported" => OriginError::Internal(cause),
        _ => OriginError::Unavailable { pack, cause },
    }
}
