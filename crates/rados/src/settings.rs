//! Settings of the connection to a cluster.

use std::ffi::CString;
use std::time::Duration;

use crate::RadosError;

/// Cluster, client, pools and namespace: what an URL `rados://` says, taken apart by Python
/// (`acstor/origin/rados/location.py`).
#[derive(Clone, Debug)]
pub struct RadosSettings {
    /// Path of ceph.conf.
    pub conf: String,
    /// Name of the client, without its type.
    pub client: String,
    /// Pool of heads and small objects.
    pub pool: String,
    /// Pool of stripes.
    pub stripe_pool: String,
    /// First part of all namespaces.
    pub namespace: String,
    /// Deadline that `options` set for each operation.
    pub timeout: Duration,
    /// Options of librados, the deadlines among them.
    pub options: Vec<(String, String)>,
}

/// A text as librados takes it.
///
/// # Errors
/// [`RadosError::ZeroByte`], which names the text by `what`.
pub(crate) fn c_string(text: &str, what: &'static str) -> Result<CString, RadosError> {
    CString::new(text).map_err(|_| RadosError::ZeroByte { what })
}
