//! A write: steps that are all done, or none.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use super::functions::{Functions, Handle};
use super::namespace::Namespace;
use super::{Errno, checked};

/// Of `rados_write_op_create`: it fails where the object is there.
const EXCLUSIVE: c_int = 1;

/// A write operation of librados, which keeps copies of what it was given.
#[derive(Debug)]
pub(super) struct WriteOperation {
    functions: &'static Functions,
    handle: Handle,
}

impl WriteOperation {
    /// Makes an operation without steps.
    ///
    /// # Errors
    /// [`Errno`] where librados has no memory.
    pub(super) fn new(functions: &'static Functions) -> Result<WriteOperation, Errno> {
        // SAFETY: it takes nothing.
        let handle = unsafe { (functions.create_write)() };
        if handle.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(WriteOperation { functions, handle })
    }

    /// Adds that the object is made, and consists of these bytes.
    pub(super) fn create(self, content: &[u8]) -> WriteOperation {
        // SAFETY: the operation is this one's, and was not done; it has no category. The bytes are as many as
        // are told, and librados copies them.
        unsafe {
            (self.functions.write_create)(self.handle, EXCLUSIVE, ptr::null());
            let memory = content.as_ptr().cast::<c_char>();
            (self.functions.write_full)(self.handle, memory, content.len());
        }
        self
    }

    /// Does all steps on an object; waits for that.
    ///
    /// # Errors
    /// [`Errno`] of librados.
    pub(super) fn operate(self, namespace: &Namespace, name: &CStr) -> Result<(), Errno> {
        // SAFETY: operation and context are alive; the name is a string of C's. The time is left to librados.
        let code = unsafe {
            let context = namespace.context();
            let now = ptr::null_mut();
            (self.functions.operate_write)(self.handle, context, name.as_ptr(), now, 0)
        };
        checked(code).map(|_| ())
    }
}

impl Drop for WriteOperation {
    fn drop(&mut self) {
        // SAFETY: the operation was made by `new`, is released once, and nothing of it is under way.
        unsafe { (self.functions.release_write)(self.handle) }
    }
}
