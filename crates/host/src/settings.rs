//! Settings of a data plane. Units are in the names.

/// Calls a macro with every setting as `name: type,`, so that whoever reads them from elsewhere leaves
/// none out.
#[macro_export]
macro_rules! for_each_setting {
    ($callback:ident) => {
        $callback! {
            host: String,
            version: String,
            state_path: ::std::path::PathBuf,
            origin_posix_root: Option<::std::path::PathBuf>,
            store_path: ::std::path::PathBuf,
            store_capacity_bytes: u64,
            store_eviction: String,
            store_copies_max: usize,
            chunk_size: u32,
            mount_point: ::std::path::PathBuf,
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
            prefer: String,
            hedge_enabled: bool,
            hedge_min_ms: u64,
            prefetch_max_bytes: u64,
            boot_window_ms: u64,
            hint_preload_bytes_per_s: u64,
            multicast_group: Option<String>,
            multicast_interface: String,
            multicast_link_bytes_per_s: u64,
            multicast_rate_bytes_per_s: u64,
            read_ahead_budget_bytes: u64,
            exchange: String,
            exchange_fan_out: u32,
            manifest_cache_bytes: u64,
            peer_inflight_max: usize,
            distance_threshold: Option<u32>,
            peer_listen_address: String,
            peer_listen_port: u16,
            peer_advertise_address: String,
            peer_members_only: bool,
            tls_enabled: bool,
            tls_ca_file: ::std::path::PathBuf,
            tls_cert_file: ::std::path::PathBuf,
            tls_key_file: ::std::path::PathBuf,
            tls_crl_file: Option<::std::path::PathBuf>,
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
    };
}

macro_rules! declare {
    ($($name:ident: $kind:ty,)+) => {
        /// The settings of a data plane, as its process has checked them. Each is a key of
        /// `DataPlaneSettings` in `acstor.dataplane.settings`, which documents it.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $(
                #[doc = concat!("The key `", stringify!($name), "`.")]
                pub $name: $kind,
            )+
        }
    };
}

for_each_setting!(declare);
