//! The one table from error kinds to Python exceptions.

use acstor_types::ErrorKind;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    acstor._dataplane,
    DataPlaneError,
    PyException,
    "Base of what the runtime raises; ``kind`` is the error kind in snake_case."
);
create_exception!(
    acstor._dataplane,
    StaleDescriptorError,
    DataPlaneError,
    "A passed ``/dev/fuse`` descriptor is no longer connected; ``kind`` is ``unavailable``."
);

/// Returns the Python exception for an error of `kind`, its text being `message`.
pub(crate) fn raise(kind: ErrorKind, message: impl ToString) -> PyErr {
    with_kind(DataPlaneError::new_err(message.to_string()), kind)
}

/// Returns the exception that says that a passed descriptor is dead.
pub(crate) fn raise_stale(message: impl ToString) -> PyErr {
    with_kind(StaleDescriptorError::new_err(message.to_string()), ErrorKind::Unavailable)
}

fn with_kind(error: PyErr, kind: ErrorKind) -> PyErr {
    Python::attach(|py| match error.value(py).setattr("kind", kind.as_str()) {
        Ok(()) => error,
        Err(failure) => failure,
    })
}
