//! A connection to a cluster.

use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

use super::functions::{Functions, Handle};
use super::namespace::Namespace;
use super::{Errno, checked};

/// Name that librados gives a cluster in paths of files, by default.
const CLUSTER_NAME: &CStr = c"ceph";
/// Longest name of a pool that is told; that a longer one is there is told all the same.
const POOL_NAME_MAX: usize = 256;

/// A handle that is connected, until it is dropped, or is about to be.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) functions: &'static Functions,
    handle: Handle,
}

// SAFETY: librados locks what its handles share; any thread may use them, several at a time.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    /// Makes a handle for the client `name`, which is like `client.acstor`; nothing is connected yet.
    ///
    /// # Errors
    /// [`Errno`] of librados.
    pub(crate) fn create(functions: &'static Functions, name: &CStr) -> Result<Connection, Errno> {
        let mut handle = ptr::null_mut();
        // SAFETY: the strings are C's, and there is room for the handle.
        checked(unsafe {
            (functions.create)(&raw mut handle, CLUSTER_NAME.as_ptr(), name.as_ptr(), 0)
        })?;
        Ok(Connection { functions, handle })
    }

    /// Reads ceph.conf.
    ///
    /// # Errors
    /// [`Errno`] of librados.
    pub(crate) fn read_configuration(&mut self, path: &CStr) -> Result<(), Errno> {
        // SAFETY: the handle is this one's, and not connected; the path is a string of C's.
        checked(unsafe { (self.functions.read_configuration)(self.handle, path.as_ptr()) })?;
        Ok(())
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Errno`] of librados.
    pub(crate) fn set_option(&mut self, option: &CStr, value: &CStr) -> Result<(), Errno> {
        // SAFETY: the handle is this one's, and not connected; the strings are C's.
        checked(unsafe {
            (self.functions.set_option)(self.handle, option.as_ptr(), value.as_ptr())
        })?;
        Ok(())
    }

    /// Connects; waits for as long as the options say.
    ///
    /// # Errors
    /// [`Errno`] of librados.
    pub(crate) fn connect(&mut self) -> Result<(), Errno> {
        // SAFETY: the handle is this one's, and nobody else uses it yet.
        checked(unsafe { (self.functions.connect)(self.handle) })?;
        Ok(())
    }

    /// Opens a namespace of a pool.
    ///
    /// # Errors
    /// [`Errno`] of librados; `ENOENT` where there is no such pool.
    pub(crate) fn open(
        self: &Arc<Connection>,
        pool: &CStr,
        namespace: &CStr,
    ) -> Result<Namespace, Errno> {
        let mut context = ptr::null_mut();
        // SAFETY: the handle is this one's; the name is a string of C's, and there is room for the context.
        checked(unsafe {
            (self.functions.create_context)(self.handle, pool.as_ptr(), &raw mut context)
        })?;
        // SAFETY: the context was just made on this connection, nobody else has it, and it is destroyed by
        // what it is handed to.
        Ok(unsafe { Namespace::of(self.clone(), context, namespace) })
    }

    /// Returns whether there is a pool of this id, as the newest map of the cluster has it.
    ///
    /// # Errors
    /// [`Errno`] of librados.
    pub(crate) fn has_pool(&self, id: i64) -> Result<bool, Errno> {
        let mut name = [0; POOL_NAME_MAX];
        // SAFETY: the handle is this one's, and `name` has room for as many bytes as are told.
        let found = checked(unsafe {
            (self.functions.pool_name)(self.handle, id, name.as_mut_ptr(), name.len())
        });
        match found {
            Ok(_) | Err(Errno(libc::ERANGE)) => Ok(true),
            Err(Errno(libc::ENOENT)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the handle was made by `create` and is ended once; every namespace, and so every read,
        // holds the connection, so that none of them is left.
        unsafe { (self.functions.shutdown)(self.handle) }
    }
}
