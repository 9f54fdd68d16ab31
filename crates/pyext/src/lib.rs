//! The one extension module, `acstor._dataplane`; this file only lists its parts.
//!
//! Importing it does no I/O, starts no threads and reads no configuration.

use pyo3::prelude::*;

#[pymodule]
mod _dataplane {}
