//! The Python class `RadosReader`: the native reader of an origin in Ceph.

use std::collections::BTreeMap;
use std::sync::Arc;

use acstor_rados::{RadosError, RadosLogWriter, RadosPackReader, RadosSettings};
use acstor_readpath::OriginSource;
use bytes::BytesMut;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::data_plane::timeout;
use crate::errors::raise;

/// A reader, for a data plane or for Python; the documentation is in the stubs.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct RadosReader(Arc<RadosPackReader>);

fn exception(error: RadosError) -> PyErr {
    raise(error.kind(), error)
}

impl RadosReader {
    /// The reader, to be read without Python.
    pub(crate) fn source(&self) -> Arc<dyn OriginSource> {
        self.0.clone()
    }

    /// The writer of volumes' logs to the same repository.
    pub(crate) fn log_writer(&self) -> RadosLogWriter {
        self.0.log_writer()
    }
}

#[pymethods]
impl RadosReader {
    #[new]
    #[pyo3(signature = (*, conf, client, pool, stripe_pool, namespace, timeout_seconds, options))]
    fn new(
        conf: String,
        client: String,
        pool: String,
        stripe_pool: String,
        namespace: String,
        timeout_seconds: f64,
        options: BTreeMap<String, String>,
    ) -> PyResult<RadosReader> {
        let settings = RadosSettings {
            conf,
            client,
            pool,
            stripe_pool,
            namespace,
            timeout: timeout(timeout_seconds)?,
            options: options.into_iter().collect(),
        };
        Ok(RadosReader(Arc::new(RadosPackReader::new(&settings).map_err(exception)?)))
    }

    fn readinto(
        &self,
        py: Python<'_>,
        key: &str,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let buffer = PyBuffer::<u8>::get(buffer)?;
        let mut content = buffer.to_vec(py)?;
        // Nothing of Python's is written to while the interpreter is released.
        let mut memory = BytesMut::zeroed(content.len());
        let read = py.detach(|| self.0.read_object(key, offset, &mut memory));
        let count = read.map_err(exception)?;
        content[..count].copy_from_slice(&memory[..count]);
        buffer.copy_from_slice(py, &content)?;
        Ok(count)
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
