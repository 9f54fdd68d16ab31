//! The origin that Python gives a data plane: one reader, or those of its members.

use std::sync::Arc;

use acstor_members::{GenerationReader, MemberSettings};
use acstor_rados::RadosLogWriter;
use acstor_readpath::{OriginError, OriginSource, PosixPackReader};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::python_origin::{PythonOrigin, translate};
use crate::rados_reader::RadosReader;

/// An origin; there is none where a directory is named in the settings.
pub(crate) enum GivenOrigin {
    /// One store, and the writer of logs to it that goes past Python.
    Store(Arc<dyn OriginSource>, Option<RadosLogWriter>),
    /// Several.
    Members(Vec<MemberSettings>),
}

impl GivenOrigin {
    /// Takes a reader, or a list of members.
    ///
    /// # Errors
    /// That of an attribute that a member does not have.
    pub(crate) fn from_python(object: &Bound<'_, PyAny>) -> PyResult<GivenOrigin> {
        if let Ok(members) = object.cast::<PyList>() {
            let members = members.iter().map(|one| member_of(&one)).collect::<PyResult<_>>()?;
            return Ok(GivenOrigin::Members(members));
        }
        let (source, writer) = source_of(object);
        Ok(GivenOrigin::Store(source, writer))
    }
}

/// The reader behind a Python object, its own where it is a native one, and that one's writer.
fn source_of(object: &Bound<'_, PyAny>) -> (Arc<dyn OriginSource>, Option<RadosLogWriter>) {
    if let Ok(native) = object.cast::<RadosReader>() {
        return (native.get().source(), Some(native.get().log_writer()));
    }
    (Arc::new(PythonOrigin::new(object.clone().unbind())), None)
}

/// Reads the attributes of a `MemberReader`.
fn member_of(object: &Bound<'_, PyAny>) -> PyResult<MemberSettings> {
    let root: Option<std::path::PathBuf> = object.getattr("posix_root")?.extract()?;
    let source = match root {
        Some(root) => Arc::new(PosixPackReader::new(root)) as Arc<dyn OriginSource>,
        None => source_of(&object.getattr("reader")?).0,
    };
    Ok(MemberSettings {
        name: object.getattr("name")?.extract()?,
        generation: object.getattr("generation")?.extract()?,
        is_assigned: object.getattr("is_assigned")?.extract()?,
        source,
        generations: Arc::new(PythonGeneration(object.clone().unbind())),
    })
}

/// Reads a member's generation by `read_generation()`, on a thread of the member.
struct PythonGeneration(Py<PyAny>);

impl GenerationReader for PythonGeneration {
    fn read(&self) -> Result<u64, OriginError> {
        let outcome = Python::try_attach(|py| {
            let found = self.0.call_method0(py, "read_generation");
            let found = found.and_then(|found| found.extract::<u64>(py));
            found.map_err(|error| translate(py, "member", &error))
        });
        outcome.unwrap_or_else(|| {
            Err(OriginError::Internal("the interpreter is shutting down".into()))
        })
    }
}
