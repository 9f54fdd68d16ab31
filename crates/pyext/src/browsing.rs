//! Files of a disk, served by this process once it can do nothing else.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use acstor_browse::SandboxLimits;
use acstor_types::ErrorKind;
use pyo3::prelude::*;

use crate::errors::raise;

/// Confines this process, then answers questions on a socket until its other end closes; returns how many.
#[pyfunction]
pub(crate) fn serve_files(
    py: Python<'_>,
    fd: i32,
    size_bytes: u64,
    memory_bytes: u64,
    cpu_seconds: u64,
) -> PyResult<u64> {
    // SAFETY: the caller keeps the descriptor open during the call, as the stubs say.
    let socket = UnixStream::from(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?);
    let served = py.detach(|| {
        acstor_browse::confine(SandboxLimits { memory_bytes, cpu_seconds })?;
        acstor_browse::serve(socket, size_bytes)
    });
    served.map(|answered| answered.requests).map_err(|error| raise(ErrorKind::Unavailable, error))
}
