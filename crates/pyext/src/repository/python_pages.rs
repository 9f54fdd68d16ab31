//! Pages of a manifest that Python reads: `read(offset, size) -> bytes`.

use std::sync::Arc;

use acstor_manifest::{ManifestError, PAGE_LEN, PageBytes, RawPages};
use parking_lot::Mutex;
use pyo3::prelude::*;

use super::buffer::Buffer;
use crate::errors;

/// Pages that are read at once: who reads one page mostly reads those after it, and a call of an
/// origin costs more than their bytes.
const WINDOW_PAGES: u64 = 32;

/// Reason why there is no page.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The manifest is not in order.
    Manifest(ManifestError),
    /// An exception of Python.
    Python(PyErr),
}

impl From<ManifestError> for ReadError {
    fn from(error: ManifestError) -> ReadError {
        ReadError::Manifest(error)
    }
}

impl From<ReadError> for PyErr {
    fn from(error: ReadError) -> PyErr {
        match error {
            ReadError::Manifest(error) => errors::raise(error.kind(), error),
            ReadError::Python(error) => error,
        }
    }
}

struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

/// The bytes of one manifest; the last window of them is kept.
pub(super) struct PythonPages {
    read: Py<PyAny>,
    len: u64,
    last: Mutex<Option<Arc<Window>>>,
}

impl PythonPages {
    pub(super) fn new(read: Py<PyAny>, len: u64) -> PythonPages {
        PythonPages { read, len, last: Mutex::new(None) }
    }

    /// Length of the manifest, bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads a run of bytes, which must not reach past the end.
    pub(super) fn read_run(&self, offset: u64, len: u64) -> Result<Vec<u8>, ReadError> {
        // No lock is held here: whoever waits for one may have the GIL.
        let read = |py: Python<'_>| -> PyResult<Vec<u8>> {
            let found = self.read.bind(py).call1((offset, len))?;
            Ok(Buffer::readable(&found)?.bytes().to_vec())
        };
        let bytes = Python::attach(read).map_err(ReadError::Python)?;
        let actual = bytes.len() as u64;
        if actual == len {
            Ok(bytes)
        } else {
            Err(ManifestError::Length { actual, expected: len }.into())
        }
    }

    fn window(&self, offset: u64) -> Result<Arc<Window>, ReadError> {
        let last = self.last.lock().clone();
        let has = |window: &Arc<Window>| {
            let end = window.offset + window.bytes.len() as u64;
            window.offset <= offset && offset + PAGE_LEN as u64 <= end
        };
        if let Some(window) = last.filter(has) {
            return Ok(window);
        }
        let len = (WINDOW_PAGES * PAGE_LEN as u64).min(self.len.saturating_sub(offset));
        let window = Arc::new(Window { offset, bytes: self.read_run(offset, len)? });
        *self.last.lock() = Some(Arc::clone(&window));
        Ok(window)
    }
}

impl RawPages for PythonPages {
    type Error = ReadError;

    fn read(&self, number: u32, page: &mut PageBytes) -> Result<(), ReadError> {
        let offset = u64::from(number) * PAGE_LEN as u64;
        let window = self.window(offset)?;
        let start = (offset - window.offset) as usize;
        let expected = offset + PAGE_LEN as u64;
        let found = window.bytes.get(start..).and_then(<[u8]>::first_chunk::<PAGE_LEN>);
        let found = found.ok_or(ManifestError::Length { actual: self.len, expected })?;
        page.copy_from_slice(found);
        Ok(())
    }
}
