//! The Python class `DataPlane`: converts, releases the interpreter, delegates to [`Host`].

use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use acstor_host::{Connection, FreeRates, Host, HostError, VolumeSpec, Withdrawal, parse_what};
use acstor_rados::RadosLogWriter;
use acstor_readpath::{PreloadRequest, ReadPathError, encode_order};
use acstor_types::{DedupScope, Digest, DiskId, ErrorKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde_json::Value;

use crate::errors::{raise, raise_stale};
use crate::log_channel::LogChannel;
use crate::origin::GivenOrigin;
use crate::settings;
use crate::volumes;

/// Longest wait that a caller may ask for.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The data plane of one host; the documentation is in the stubs.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct DataPlane {
    host: Host,
    /// Writes logs of volumes past Python, where the origin is in Ceph.
    log_writer: Option<RadosLogWriter>,
}

pub(crate) fn exception(error: HostError) -> PyErr {
    match &error {
        HostError::Setting { .. } => PyValueError::new_err(error.to_string()),
        HostError::Stale(_) => raise_stale(error),
        _ => raise(error.kind(), error),
    }
}

fn disk_id(text: &str) -> PyResult<DiskId> {
    text.parse().map_err(|error| raise(ErrorKind::Invalid, format!("{text:?}: {error}")))
}

fn manifest_digest(text: &str) -> PyResult<Digest> {
    text.parse().map_err(|error| raise(ErrorKind::Invalid, format!("the digest: {error}")))
}

/// Returns the name of the manifest in a file.
#[pyfunction]
pub(crate) fn manifest_name(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let name = py.detach(|| acstor_host::manifest_name(&path)).map_err(exception)?;
    Ok(name.to_string())
}

pub(crate) fn timeout(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map(|timeout| timeout.min(TIMEOUT_MAX))
        .map_err(|_| PyValueError::new_err(format!("{seconds} is no number of seconds")))
}

/// Converts plain JSON values to their Python counterparts.
fn python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (None, Some(number)) => number.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().unwrap_or(f64::NAN).into_pyobject(py)?.into_any(),
        },
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(python(py, item)?)?;
            }
            list.into_any()
        }
        Value::Object(items) => {
            let dict = PyDict::new(py);
            for (key, item) in items {
                dict.set_item(key, python(py, item)?)?;
            }
            dict.into_any()
        }
    })
}

#[pymethods]
impl DataPlane {
    #[new]
    fn new(config: &Bound<'_, PyAny>, origin: Option<Py<PyAny>>) -> PyResult<DataPlane> {
        let settings = settings::from_mapping(config)?;
        LogChannel::installed()
            .set_directives(&settings.log_directives)
            .map_err(|error| PyValueError::new_err(format!("log_directives: {error}")))?;
        let given = origin.map(|object| GivenOrigin::from_python(object.bind(config.py())));
        let given = given.transpose()?;
        if given.is_some() == settings.origin_posix_root.is_some() {
            return Err(PyValueError::new_err(
                "give either an origin object or origin_posix_root, not both",
            ));
        }
        let (opened, log_writer) = config.py().detach(|| match given {
            None => (Host::open(settings, None), None),
            Some(GivenOrigin::Store(source, writer)) => {
                (Host::open(settings, Some(source)), writer)
            }
            Some(GivenOrigin::Members(members)) => {
                (Host::open_over_members(settings, members), None)
            }
        });
        Ok(DataPlane { host: opened.map_err(exception)?, log_writer })
    }

    fn start(
        &self,
        py: Python<'_>,
        fuse_fd: i32,
        is_new: bool,
        peer_listener_fd: Option<i32>,
    ) -> PyResult<()> {
        // SAFETY: the caller passes the ownership of both descriptors, as the stubs say.
        let fuse = unsafe { OwnedFd::from_raw_fd(fuse_fd) };
        let fuse = if is_new { Connection::New(fuse) } else { Connection::TakenOver(fuse) };
        // SAFETY: as above.
        let listener = peer_listener_fd.map(|fd| unsafe { TcpListener::from_raw_fd(fd) });
        py.detach(|| self.host.start(fuse, listener)).map_err(exception)
    }

    fn fuse_fd(&self) -> PyResult<i32> {
        Ok(self.host.descriptors().map_err(exception)?.0)
    }

    fn peer_listener_fd(&self) -> PyResult<i32> {
        Ok(self.host.descriptors().map_err(exception)?.1)
    }

    fn peer_address(&self) -> PyResult<String> {
        self.host.peer_address().map_err(exception)
    }

    #[pyo3(signature = (manifest_path, hidden=false, digest=None))]
    fn attach_image<'py>(
        &self,
        py: Python<'py>,
        manifest_path: PathBuf,
        hidden: bool,
        digest: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let digest = digest.map(manifest_digest).transpose()?;
        let attach = || self.host.attach_image(&manifest_path, hidden, digest);
        let image = py.detach(attach).map_err(exception)?;
        python(py, &image)
    }

    fn damaged_images(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.host.damaged_images()).iter().map(DiskId::to_string).collect()
    }

    fn detach_image(&self, py: Python<'_>, disk_id: &str) -> PyResult<&'static str> {
        let disk = self::disk_id(disk_id)?;
        match py.detach(|| self.host.detach_image(disk)).map_err(exception)? {
            Withdrawal::Removed => Ok("removed"),
            Withdrawal::Hidden => Ok("hidden"),
        }
    }

    fn list_images<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let images = py.detach(|| self.host.list_images());
        python(py, &Value::Array(images))
    }

    fn pin_image<'py>(
        &self,
        py: Python<'py>,
        disk_id: &str,
        head_bytes: u64,
        tail_bytes: u64,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let disk = self::disk_id(disk_id)?;
        let timeout = self::timeout(timeout)?;
        let (pinned, missing) = py
            .detach(|| self.host.pin_image(disk, head_bytes, tail_bytes, timeout))
            .map_err(exception)?;
        python(py, &serde_json::json!({"pinned_bytes": pinned, "missing_bytes": missing}))
    }

    fn set_member_generation(&self, member: &str, generation: u64) -> PyResult<()> {
        self.host.set_member_generation(member, generation).map_err(exception)
    }

    fn set_drain(&self, on: bool) {
        self.host.set_drain(on);
    }

    #[pyo3(signature = (in_bytes_per_s, out_bytes_per_s, valid_s))]
    fn set_free_rates(
        &self,
        in_bytes_per_s: Option<u64>,
        out_bytes_per_s: Option<u64>,
        valid_s: f64,
    ) -> PyResult<()> {
        let rates = FreeRates { inwards: in_bytes_per_s, outwards: out_bytes_per_s };
        self.host.set_free_rates(rates, timeout(valid_s)?).map_err(exception)
    }

    fn set_ring<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        py.detach(|| self.host.set_ring(&path)).map_err(exception)?;
        self.ring_info(py)
    }

    fn store_sketch<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyAny>> {
        let sketch = py.detach(|| self.host.store_sketch(count));
        python(py, &sketch)
    }

    #[pyo3(signature = (hops))]
    fn set_distance_threshold(&self, hops: Option<u32>) -> PyResult<()> {
        self.host.set_distance_threshold(hops).map_err(exception)
    }

    fn ring_info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let ring = py.detach(|| self.host.ring_info());
        python(py, &ring.unwrap_or(Value::Null))
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let status = py.detach(|| self.host.status());
        python(py, &status)
    }

    fn metrics_text(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.host.metrics_text()).map_err(exception)
    }

    fn trace_start(&self, disk_id: &str, capacity: usize) -> PyResult<()> {
        let disk = self::disk_id(disk_id)?;
        self.host.read_path().trace_start(&disk, capacity).map_err(|e| exception(e.into()))
    }

    fn trace_get(&self, py: Python<'_>, disk_id: &str) -> PyResult<String> {
        let disk = self::disk_id(disk_id)?;
        py.detach(|| self.host.read_path().trace_get(&disk)).map_err(|e| exception(e.into()))
    }

    fn trace_stop(&self, disk_id: &str) -> PyResult<()> {
        let disk = self::disk_id(disk_id)?;
        match self.host.read_path().trace_stop(&disk) {
            Ok(()) | Err(ReadPathError::NotAttached(_)) => Ok(()),
            Err(error) => Err(exception(error.into())),
        }
    }

    fn working_set<'py>(&self, py: Python<'py>, disk_id: &str) -> PyResult<Bound<'py, PyDict>> {
        let disk = self::disk_id(disk_id)?;
        let seen = py.detach(|| self.host.working_set(disk)).map_err(exception)?;
        let dict = PyDict::new(py);
        dict.set_item("boots", seen.boots)?;
        dict.set_item("chunk_count", seen.chunk_count)?;
        dict.set_item("bitmap", PyBytes::new(py, &seen.bitmap))?;
        Ok(dict)
    }

    fn set_working_set(&self, py: Python<'_>, disk_id: &str, path: PathBuf) -> PyResult<()> {
        let disk = self::disk_id(disk_id)?;
        py.detach(|| self.host.set_working_set(disk, &path)).map_err(exception)
    }

    fn held_chunks<'py>(&self, py: Python<'py>, disk_id: &str) -> PyResult<Bound<'py, PyDict>> {
        let disk = self::disk_id(disk_id)?;
        let held = py.detach(|| self.host.held_chunks(disk)).map_err(exception)?;
        let dict = PyDict::new(py);
        dict.set_item("chunk_count", held.chunk_count)?;
        dict.set_item("bitmap", PyBytes::new(py, &held.bitmap))?;
        Ok(dict)
    }

    fn count_chunks<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        let counted = py.detach(|| self.host.count_chunks(&path)).map_err(exception)?;
        python(py, &counted)
    }

    fn discard_chunks<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        let discarded = py.detach(|| self.host.discard_chunks(&path)).map_err(exception)?;
        python(py, &discarded)
    }

    fn recorded_boots<'py>(
        &self,
        py: Python<'py>,
        acknowledged: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let told = PyList::empty(py);
        for boot in py.detach(|| self.host.recorded_boots(acknowledged)) {
            let dict = PyDict::new(py);
            dict.set_item("number", boot.number)?;
            dict.set_item("image", boot.disk.to_string())?;
            dict.set_item("chunk_count", boot.chunk_count)?;
            dict.set_item("order", PyBytes::new(py, &encode_order(&boot.order)))?;
            told.append(dict)?;
        }
        Ok(told)
    }

    fn set_boot_profile(&self, py: Python<'_>, disk_id: &str, path: PathBuf) -> PyResult<()> {
        let disk = self::disk_id(disk_id)?;
        py.detach(|| self.host.set_boot_profile(disk, &path)).map_err(exception)
    }

    fn coverage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let coverage = py.detach(|| self.host.coverage());
        python(py, &Value::Array(coverage))
    }

    fn preload_start<'py>(
        &self,
        py: Python<'py>,
        disk_id: &str,
        what: &str,
        rate_bytes_per_s: u64,
        pin: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let disk = self::disk_id(disk_id)?;
        let what = parse_what(what).map_err(exception)?;
        let request = PreloadRequest { what, rate_bytes_per_s, pin };
        let job = py.detach(|| self.host.preload_start(disk, request)).map_err(exception)?;
        python(py, &job)
    }

    fn preload_status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let jobs = py.detach(|| self.host.preload_status());
        python(py, &Value::Array(jobs))
    }

    fn preload_stop(&self, py: Python<'_>, disk_id: &str) -> PyResult<()> {
        let disk = self::disk_id(disk_id)?;
        py.detach(|| self.host.preload_stop(disk)).map_err(exception)
    }

    fn preload_estimate<'py>(
        &self,
        py: Python<'py>,
        disk_id: &str,
        what: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let disk = self::disk_id(disk_id)?;
        let what = parse_what(what).map_err(exception)?;
        let estimate = py.detach(|| self.host.preload_estimate(disk, what)).map_err(exception)?;
        python(py, &estimate)
    }

    fn volume_seal<'py>(
        &self,
        py: Python<'py>,
        volume: &str,
        epoch: u32,
        first: u64,
        origin: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (volume, sink) = (disk_id(volume)?, volumes::sink(origin, self.log_writer.clone()));
        let sealed = py.detach(|| self.host.volume_seal(volume, epoch, first, &*sink));
        volumes::sealed(py, &sealed.map_err(exception)?)
    }

    fn volume_open(
        &self,
        py: Python<'_>,
        volume: &str,
        spec: &Bound<'_, PyAny>,
        origin: Py<PyAny>,
    ) -> PyResult<()> {
        let (volume, sink) = (disk_id(volume)?, volumes::sink(origin, self.log_writer.clone()));
        let spec: VolumeSpec = volumes::from_python("volume spec", spec)?;
        py.detach(|| self.host.volume_open(volume, &spec, sink)).map_err(exception)
    }

    fn volume_follow(&self, volume: &str, size_bytes: u64) -> PyResult<()> {
        self.host.volume_follow(disk_id(volume)?, size_bytes).map_err(exception)
    }

    fn volume_serve(
        &self,
        py: Python<'_>,
        volume: &str,
        listener_fd: i32,
        token: &str,
    ) -> PyResult<()> {
        let listener = volumes::listener(listener_fd);
        let volume = disk_id(volume)?;
        py.detach(|| self.host.volume_serve(volume, listener, token)).map_err(exception)
    }

    fn volume_unserve(&self, py: Python<'_>, volume: &str, force: bool) -> PyResult<()> {
        let volume = disk_id(volume)?;
        py.detach(|| self.host.volume_unserve(volume, force)).map_err(exception)
    }

    fn volume_release<'py>(&self, py: Python<'py>, volume: &str) -> PyResult<Bound<'py, PyDict>> {
        let volume = disk_id(volume)?;
        let point = py.detach(|| self.host.volume_release(volume)).map_err(exception)?;
        volumes::pushed(py, &point)
    }

    fn volume_push_ahead(&self, py: Python<'_>, volume: &str) -> PyResult<bool> {
        let volume = disk_id(volume)?;
        py.detach(|| self.host.volume_push_ahead(volume)).map_err(exception)
    }

    fn volume_begin_head(&self, volume: &str) -> PyResult<Option<u64>> {
        self.host.volume_begin_head(disk_id(volume)?).map_err(exception)
    }

    fn volume_answer_head(&self, volume: &str, look: u64, content: Vec<u8>) -> PyResult<()> {
        self.host.volume_answer_head(disk_id(volume)?, look, content).map_err(exception)
    }

    fn volume_give_up_head(&self, volume: &str) -> PyResult<()> {
        self.host.volume_give_up_head(disk_id(volume)?).map_err(exception)
    }

    fn volume_read_head<'py>(
        &self,
        py: Python<'py>,
        volume: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let volume = disk_id(volume)?;
        let content = py.detach(|| self.host.volume_read_head(volume)).map_err(exception)?;
        Ok(PyBytes::new(py, &content))
    }

    fn volume_close(&self, py: Python<'_>, volume: &str) -> PyResult<()> {
        let volume = disk_id(volume)?;
        py.detach(|| self.host.volume_close(volume));
        Ok(())
    }

    fn volume_fence(&self, py: Python<'_>, volume: &str, why: &str) -> PyResult<()> {
        let volume = disk_id(volume)?;
        py.detach(|| self.host.volume_fence(volume, why)).map_err(exception)
    }

    fn volume_list(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.host.volume_list())
    }

    fn volume_status<'py>(&self, py: Python<'py>, volume: &str) -> PyResult<Bound<'py, PyAny>> {
        let volume = disk_id(volume)?;
        let status = py.detach(|| self.host.volume_status(volume)).map_err(exception)?;
        python(py, &status)
    }

    fn volume_push<'py>(&self, py: Python<'py>, volume: &str) -> PyResult<Bound<'py, PyDict>> {
        let volume = disk_id(volume)?;
        let point = py.detach(|| self.host.volume_push(volume)).map_err(exception)?;
        volumes::pushed(py, &point)
    }

    fn volume_freeze(&self, py: Python<'_>, volume: &str, timeout: f64) -> PyResult<()> {
        let (volume, timeout) = (disk_id(volume)?, self::timeout(timeout)?);
        py.detach(|| self.host.volume_freeze(volume, timeout)).map_err(exception)
    }

    fn volume_thaw(&self, py: Python<'_>, volume: &str) -> PyResult<()> {
        let volume = disk_id(volume)?;
        py.detach(|| self.host.volume_thaw(volume)).map_err(exception)
    }

    fn volume_resize(&self, py: Python<'_>, volume: &str, size_bytes: u64) -> PyResult<()> {
        let volume = disk_id(volume)?;
        py.detach(|| self.host.volume_resize(volume, size_bytes)).map_err(exception)
    }

    fn volume_set_durability(
        &self,
        py: Python<'_>,
        volume: &str,
        durability: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let volume = disk_id(volume)?;
        let request: Value = volumes::from_python("durability", durability)?;
        py.detach(|| self.host.volume_set_durability(volume, &request)).map_err(exception)
    }

    fn volume_set_limits(&self, volume: &str, iops: u64, bytes_per_s: u64) -> PyResult<()> {
        let volume = disk_id(volume)?;
        self.host.volume_set_limits(volume, iops, bytes_per_s).map_err(exception)
    }

    #[pyo3(signature = (volume, announce, spread, scope, is_paged))]
    fn volume_fold<'py>(
        &self,
        py: Python<'py>,
        volume: &str,
        announce: Py<PyAny>,
        spread: f64,
        scope: Option<&str>,
        is_paged: bool,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (volume, spread) = (disk_id(volume)?, self::timeout(spread)?);
        let fold = volumes::Fold { volume, spread, scope: scope.map(DedupScope::new), is_paged };
        volumes::fold(py, &self.host, fold, &announce, exception)
    }

    fn volume_set_fold_unwanted(
        &self,
        py: Python<'_>,
        volume: &str,
        is_unwanted: bool,
    ) -> PyResult<()> {
        let volume = disk_id(volume)?;
        py.detach(|| self.host.volume_set_fold_unwanted(volume, is_unwanted)).map_err(exception)
    }

    fn volume_set_base(
        &self,
        py: Python<'_>,
        volume: &str,
        manifest_path: PathBuf,
        manifest: &str,
    ) -> PyResult<()> {
        let (volume, name) = (disk_id(volume)?, manifest_digest(manifest)?);
        py.detach(|| self.host.volume_set_base(volume, &manifest_path, name)).map_err(exception)
    }

    fn set_log_level(&self, directives: &str) -> PyResult<()> {
        LogChannel::installed()
            .set_directives(directives)
            .map_err(|error| raise(ErrorKind::Invalid, format!("log level: {error}")))
    }

    fn take_log_lines(&self, lines_max: usize) -> Vec<String> {
        LogChannel::installed().take(lines_max)
    }

    fn stop(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = self::timeout(timeout)?;
        py.detach(|| self.host.stop(timeout));
        Ok(())
    }
}
