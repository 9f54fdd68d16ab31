//! Mounting and unmounting for the process that may: functions of the module, without a data plane.

use std::os::fd::IntoRawFd;
use std::path::PathBuf;

use acstor_fuse::{FuseConfig, Unmounted};
use pyo3::prelude::*;

use crate::data_plane::{exception, timeout};

/// Mounts a new connection and returns its descriptor; the documentation is in the stubs.
#[pyfunction]
pub(crate) fn mount_images(
    py: Python<'_>,
    mount_point: PathBuf,
    allow_other: bool,
    read_ahead_kb: u32,
) -> PyResult<i32> {
    let mut config = FuseConfig::new(mount_point);
    config.allow_other = allow_other;
    config.read_ahead_kb = read_ahead_kb;
    let mounted = py.detach(|| acstor_fuse::mount_connection(&config));
    mounted.map(IntoRawFd::into_raw_fd).map_err(|error| exception(error.into()))
}

/// Sets the read-ahead of a mount; the documentation is in the stubs.
#[pyfunction]
pub(crate) fn set_read_ahead(
    py: Python<'_>,
    mount_point: PathBuf,
    read_ahead_kb: u32,
) -> PyResult<()> {
    let set = py.detach(|| acstor_fuse::set_read_ahead(&mount_point, read_ahead_kb));
    set.map_err(|error| exception(error.into()))
}

/// Unmounts, or aborts after a grace; the documentation is in the stubs.
#[pyfunction]
pub(crate) fn unmount_images(
    py: Python<'_>,
    mount_point: PathBuf,
    grace: f64,
) -> PyResult<&'static str> {
    let grace = timeout(grace)?;
    let outcome = py.detach(|| acstor_fuse::unmount(&mount_point, grace));
    match outcome.map_err(|error| exception(error.into()))? {
        Unmounted::NotMounted => Ok("not mounted"),
        Unmounted::Clean => Ok("clean"),
        Unmounted::Aborted => Ok("aborted"),
    }
}
