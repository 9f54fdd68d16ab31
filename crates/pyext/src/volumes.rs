//! Conversions of the arguments and results of `DataPlane`'s volume methods, between Python and
//! Rust.

use std::os::fd::{BorrowedFd, FromRawFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use acstor_host::{Host, HostError};
use acstor_overlay::{LogRange, OriginSink, PushPoint, Sealed};
use acstor_rados::RadosLogWriter;
use acstor_types::{DedupScope, Digest, DiskId, ErrorKind, PackId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyDict};
use serde::de::DeserializeOwned;

use crate::errors::raise;
use crate::log_sink::{DirectPut, LogSink};
use crate::python_sink::PythonSink;

/// Reads a Python value by way of JSON, which is all that it may consist of.
pub(crate) fn from_python<T: DeserializeOwned>(
    what: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<T> {
    let json = value.py().import("json")?;
    let text: String = json.call_method1("dumps", (value,))?.extract()?;
    serde_json::from_str(&text).map_err(|error| PyValueError::new_err(format!("{what}: {error}")))
}

/// Wraps the origin that a volume's log goes to; `direct` stores log objects past Python, where the origin is
/// in Ceph.
pub(crate) fn sink(origin: Py<PyAny>, direct: Option<RadosLogWriter>) -> Arc<dyn OriginSink> {
    let direct = direct.map(|writer| Box::new(writer) as Box<dyn DirectPut>);
    Arc::new(LogSink::new(PythonSink::new(origin), direct))
}

/// Takes the ownership of a listening socket.
pub(crate) fn listener(descriptor: i32) -> UnixListener {
    // SAFETY: the caller passes the ownership of the descriptor, as the stubs say.
    unsafe { UnixListener::from_raw_fd(descriptor) }
}

/// Returns the point at which a push ended.
pub(crate) fn pushed<'py>(py: Python<'py>, point: &PushPoint) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("epoch", point.epoch)?;
    dict.set_item("sequence", point.sequence)?;
    Ok(dict)
}

/// Returns the end of a sealed log.
pub(crate) fn sealed<'py>(py: Python<'py>, sealed: &Sealed) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("last", sealed.last)?;
    dict.set_item("seal", sealed.seal)?;
    Ok(dict)
}

/// Ends an epoch of a volume's log, wherever its owner is; needs no runtime.
#[pyfunction]
pub(crate) fn seal_volume_log<'py>(
    py: Python<'py>,
    volume: &str,
    epoch: u32,
    first: u64,
    origin: Py<PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let id: DiskId = volume
        .parse()
        .map_err(|error| raise(ErrorKind::Invalid, format!("{volume:?}: {error}")))?;
    let sink = sink(origin, None);
    let end = py.detach(|| acstor_overlay::seal(&*sink, id, epoch, first));
    sealed(py, &end.map_err(|error| raise(error.kind(), error))?)
}

/// Writes what log objects have to a file, each byte at its place on the disk; returns the parts as start, end,
/// whether they are zeros.
#[pyfunction]
pub(crate) fn spool_volume_log(
    py: Python<'_>,
    logs: &Bound<'_, PyAny>,
    size_bytes: u64,
    fd: i32,
    origin: Py<PyAny>,
) -> PyResult<Vec<(u64, u64, bool)>> {
    let ranges: Vec<LogRange> = from_python("logs", logs)?;
    // SAFETY: the caller keeps the descriptor open during the call, as the stubs say.
    let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
    let sink = sink(origin, None);
    let runs = py.detach(|| acstor_overlay::spool_log(&*sink, &ranges, size_bytes, &file.into()));
    let runs = runs.map_err(|error| raise(error.kind(), error))?;
    Ok(runs.into_iter().map(|run| (run.start, run.end, run.is_zero)).collect())
}

/// A fold of a volume, as the host takes it.
pub(crate) struct Fold {
    pub(crate) volume: DiskId,
    pub(crate) spread: Duration,
    pub(crate) scope: Option<DedupScope>,
    pub(crate) is_paged: bool,
}

/// Folds a volume; `announce` is called, attached, before anything is stored.
pub(crate) fn fold<'py>(
    py: Python<'py>,
    host: &Host,
    Fold { volume, spread, scope, is_paged }: Fold,
    announce: &Py<PyAny>,
    exception: impl Fn(HostError) -> PyErr,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let mut refusal: Option<PyErr> = None;
    let outcome = py.detach(|| {
        host.volume_fold(
            volume,
            spread,
            scope,
            is_paged,
            &mut |packs: &[PackId], manifest: Option<Digest>| {
                let packs: Vec<String> = packs.iter().map(|pack| pack.0.to_string()).collect();
                let manifest = manifest.map(|digest| digest.to_string());
                let called = Python::attach(|py| announce.call1(py, (packs, manifest)).map(|_| ()));
                called.map_err(|error| {
                    let text = error.to_string();
                    refusal = Some(error);
                    text
                })
            },
        )
    });
    // What the callee raised says more than what the fold made of it.
    if let Some(error) = refusal {
        return Err(error);
    }
    let Some(fold) = outcome.map_err(exception)? else { return Ok(None) };
    let folded = PyDict::new(py);
    folded.set_item("volume", fold.until.volume.to_string())?;
    folded.set_item("epoch", fold.until.epoch)?;
    folded.set_item("sequence", fold.until.sequence)?;
    let dict = PyDict::new(py);
    dict.set_item("manifest", fold.digest.to_string())?;
    dict.set_item("content", PyBytes::new(py, &fold.content))?;
    dict.set_item("folded", folded)?;
    Ok(Some(dict))
}
