//! The one extension module, `acstor._dataplane`; this file only lists its parts.
//!
//! Importing it does no I/O, starts no threads and reads no configuration.

mod errors;
mod log_channel;

use pyo3::prelude::*;

#[pymodule]
mod _dataplane {
    #[pymodule_export]
    use crate::errors::{DataPlaneError, StaleDescriptorError};
}
