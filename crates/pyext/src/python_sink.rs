//! The origin of volumes' logs: a Python object with the methods of `acstor.origin.base.Origin`.
//!
//! Called from threads of a volume, which attach to the interpreter for one call. The object bounds
//! each call by a deadline and repeats what is worth it, with jitter.

use acstor_overlay::{OriginSink, SinkError};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyList};

/// Stores and reads log objects through a Python object.
pub(crate) struct PythonSink {
    object: Py<PyAny>,
}

impl PythonSink {
    pub(crate) fn new(object: Py<PyAny>) -> PythonSink {
        PythonSink { object }
    }

    /// Runs `call` attached to the interpreter.
    fn attached<T>(
        &self,
        key: &str,
        call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, SinkError> {
        let outcome = Python::try_attach(|py| {
            call(py, self.object.bind(py)).map_err(|error| translate(py, key, &error))
        });
        outcome.unwrap_or_else(|| {
            let cause = "the interpreter is shutting down".to_owned();
            Err(SinkError::Unavailable { key: key.to_owned(), cause })
        })
    }
}

impl OriginSink for PythonSink {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        self.attached(key, |py, origin| {
            let parts = PyList::new(py, parts.iter().map(|part| PyBytes::new(py, part)))?;
            origin.call_method1("put_if_absent", (key, parts))?.extract()
        })
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        let found = self.attached(key, |_, origin| {
            let content = origin.call_method1("get", (key, size_max))?;
            Ok(Bytes::copy_from_slice(content.cast::<PyBytes>()?.as_bytes()))
        });
        match found {
            Ok(content) => Ok(Some(content)),
            Err(SinkError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.attached(prefix, |_, origin| {
            let keys = origin.call_method1("list", (prefix,))?;
            keys.try_iter()?.map(|key| key?.extract()).collect()
        })
    }
}

/// Maps an exception by the `kind` that ACStor's exceptions carry; any other is unavailability.
fn translate(py: Python<'_>, key: &str, error: &PyErr) -> SinkError {
    let kind = error
        .value(py)
        .getattr("kind")
        .and_then(|kind| kind.str()?.extract::<String>())
        .unwrap_or_default();
    let (key, cause) = (key.to_owned(), error.value(py).to_string());
    match kind.as_str() {
        "not_found" => SinkError::NotFound(key),
        "exhausted" => SinkError::Exhausted(format!("{key}: {cause}")),
        "invalid" | "internal" | "unsupported" | "corrupt" => SinkError::Invalid { key, cause },
        _ => SinkError::Unavailable { key, cause },
    }
}

#[cfg(test)]
mod tests {
    use pyo3::types::PyModule;

    use super::*;

    const ORIGIN: &std::ffi::CStr = c"
class Error(Exception):
    def __init__(self, kind):
        super().__init__('said ' + kind)
        self.kind = kind

class Origin:
    def __init__(self):
        self.objects = {}
    def put_if_absent(self, key, buffers):
        if key.startswith('full'):
            raise Error('exhausted')
        return self.objects.setdefault(key, b''.join(buffers)) and len(self.objects) == 1
    def get(self, key, size_max):
        if key not in self.objects:
            raise Error('not_found')
        if len(self.objects[key]) > size_max:
            raise Error('invalid')
        return self.objects[key]
    def list(self, prefix=''):
        if prefix == 'away/':
            raise OSError('no route')
        yield from (key for key in self.objects if key.startswith(prefix))
";

    fn sink() -> PythonSink {
        Python::initialize();
        Python::attach(|py| {
            let module = PyModule::from_code(py, ORIGIN, c"origin.py", c"origin").unwrap();
            PythonSink::new(module.getattr("Origin").unwrap().call0().unwrap().unbind())
        })
    }

    #[test]
    fn test_objects_go_and_come_back() {
        let sink = sink();
        let parts = [Bytes::from_static(b"one "), Bytes::from_static(b"two")];
        assert_eq!(sink.put_if_absent("a/b", &parts), Ok(true));
        assert_eq!(sink.get("a/b", 100), Ok(Some(Bytes::from_static(b"one two"))));
        assert_eq!(sink.get("a/c", 100), Ok(None));
        assert_eq!(sink.list("a/"), Ok(vec!["a/b".to_owned()]));
        assert!(matches!(sink.get("a/b", 3), Err(SinkError::Invalid { .. })));
    }

    #[test]
    fn test_errors_keep_their_kind() {
        let sink = sink();
        assert!(matches!(sink.put_if_absent("full", &[]), Err(SinkError::Exhausted(_))));
        let error = sink.list("away/").unwrap_err();
        assert!(matches!(&error, SinkError::Unavailable { .. }));
        assert!(error.to_string().contains("no route"), "{error}");
    }
}
