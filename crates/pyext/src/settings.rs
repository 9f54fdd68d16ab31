//! Settings that the host process gives the runtime: the dictionary `DataPlaneSettings` of
//! `acstor.dataplane.settings`, key by key. Units are in the names.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyAny;

macro_rules! settings {
    ($($(#[$meta:meta])* $name:ident: $kind:ty,)+) => {
        /// The runtime's settings, as the host process checked them.
        #[derive(Clone, Debug)]
        pub(crate) struct Settings {
            $($(#[$meta])* pub(crate) $name: $kind,)+
        }

        impl Settings {
            /// Reads every key of `config`.
            ///
            /// # Errors
            /// `ValueError` that names the key that is missing or of a wrong type.
            pub(crate) fn from_mapping(config: &Bound<'_, PyAny>) -> PyResult<Settings> {
                Ok(Settings { $($name: item(config, stringify!($name))?,)+ })
            }
        }
    };
}

settings! {
    host: String,
    version: String,
    state_path: PathBuf,
    origin_posix_root: Option<PathBuf>,
    store_path: PathBuf,
    store_capacity_bytes: u64,
    store_eviction: String,
    store_copies_max: usize,
    chunk_size: u32,
    mount_point: PathBuf,
    fuse_threads: usize,
    runtime_threads: usize,
    origin_threads: usize,
    read_ahead_kb: u32,
    allow_other: bool,
    image_group: Option<u32>,
    read_deadline_ms: u64,
    origin_deadline_ms: u64,
    peer_deadline_ms: u64,
    placement: String,
    placement_span_chunks: u32,
    keep: String,
    load_aware: bool,
    slow_fetch_ms: u64,
    compress_slow: bool,
    hedge_enabled: bool,
    hedge_min_ms: u64,
    prefetch_max_bytes: u64,
    boot_window_ms: u64,
    hint_preload_bytes_per_s: u64,
    peer_inflight_max: usize,
    distance_threshold: Option<u32>,
    peer_listen_address: String,
    peer_listen_port: u16,
    peer_advertise_address: String,
    peer_members_only: bool,
    tls_enabled: bool,
    tls_ca_file: PathBuf,
    tls_cert_file: PathBuf,
    tls_key_file: PathBuf,
    tls_crl_file: Option<PathBuf>,
    peer_connect_timeout_ms: u64,
    peer_idle_timeout_ms: u64,
    peer_connections_max: usize,
    peer_requests_inflight_max: usize,
    peer_bytes_inflight_max: u64,
    volumes_quota_bytes: u64,
    volumes_segment_bytes: u64,
    volumes_fold_bytes: u64,
    volumes_fold_objects: u64,
    volumes_push_bytes_per_s: u64,
    volumes_io_timeout_ms: u64,
    log_directives: String,
}

fn item<'py, T: for<'a> FromPyObject<'a, 'py>>(
    config: &Bound<'py, PyAny>,
    key: &str,
) -> PyResult<T> {
    let value = config
        .get_item(key)
        .map_err(|_| PyValueError::new_err(format!("data plane settings: {key} is missing")))?;
    value.extract::<T>().map_err(|_| {
        PyValueError::new_err(format!("data plane settings: {key} has a wrong type or range"))
    })
}
