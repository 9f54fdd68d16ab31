//! Access to Python buffers while the GIL is released.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use super::invalid;

/// A contiguous buffer of bytes, held (and so neither freed nor resized) until it is dropped.
pub(super) struct Buffer(PyBuffer<u8>);

impl Buffer {
    /// Takes a buffer to read from.
    pub(super) fn readable(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let buffer = PyBuffer::<u8>::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(invalid("the buffer is not contiguous").into());
        }
        Ok(Buffer(buffer))
    }

    /// Takes a buffer to write to.
    pub(super) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let buffer = Buffer::readable(object)?;
        if buffer.0.readonly() {
            return Err(invalid("the buffer is read-only").into());
        }
        Ok(buffer)
    }

    /// The bytes. The caller of the extension promises that no other thread writes to the buffer
    /// during the call; the functions that use this document it.
    pub(super) fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: PyBuffer keeps the memory alive and at its place while it lives, the buffer is
        // contiguous (checked), and nobody writes meanwhile (the callers' documented promise).
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }

    /// The bytes, to be changed; nobody else may use them during the call.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: as in `bytes`; the buffer is writable where it was taken by `writable`, and
        // only those callers use this.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}
