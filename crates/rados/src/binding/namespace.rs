//! A namespace of a pool.

use std::ffi::CStr;
use std::sync::Arc;

use bytes::BytesMut;

use super::Errno;
use super::connection::Connection;
use super::functions::{Functions, Handle};
use super::pending_read::PendingRead;
use super::write_operation::WriteOperation;

/// An I/O context of librados. Namespace and pool are set once, before anybody else has it.
#[derive(Debug)]
pub(crate) struct Namespace {
    connection: Arc<Connection>,
    context: Handle,
}

// SAFETY: contexts lock what they share, but for their settings, which do not change after `of`.
unsafe impl Send for Namespace {}
// SAFETY: as above.
unsafe impl Sync for Namespace {}

impl Namespace {
    /// Takes a context over and sets its namespace.
    ///
    /// # Safety
    /// `context` is one of `connection` that nobody else has, and destroys.
    pub(super) unsafe fn of(
        connection: Arc<Connection>,
        context: Handle,
        namespace: &CStr,
    ) -> Namespace {
        // SAFETY: nobody else has the context; the name is a string of C's, which librados copies.
        unsafe { (connection.functions.set_namespace)(context, namespace.as_ptr()) }
        Namespace { connection, context }
    }

    /// Id of the pool.
    pub(crate) fn pool_id(&self) -> i64 {
        // SAFETY: the context lives as long as this.
        unsafe { (self.functions().pool_id)(self.context) }
    }

    /// Starts to read an object into a buffer, from `offset` on and as far as both reach.
    pub(crate) fn start_read(
        self: &Arc<Namespace>,
        name: &CStr,
        offset: u64,
        buffer: BytesMut,
    ) -> PendingRead {
        PendingRead::start(self.clone(), name, offset, buffer)
    }

    /// Makes an object of these bytes, in one operation that fails where there is one; waits for as long as
    /// the options of the connection say.
    ///
    /// # Errors
    /// [`Errno`] of librados, `EEXIST` where there is one. After any other one it may have been made.
    pub(crate) fn create(&self, name: &CStr, content: &[u8]) -> Result<(), Errno> {
        WriteOperation::new(self.functions())?.create(content).operate(self, name)
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.connection.functions
    }

    /// The context, which lives as long as this.
    pub(super) fn context(&self) -> Handle {
        self.context
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // SAFETY: the context was taken over by `of`, is destroyed once, and every read on it, which holds
        // this, has ended. Its connection is dropped after it.
        unsafe { (self.functions().destroy_context)(self.context) }
    }
}
