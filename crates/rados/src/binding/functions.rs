//! The functions of librados, found in the library when they are needed.
//!
//! Nothing is linked when ACStor is built: hosts whose origin is not in Ceph have no librados. The
//! interface of this version of the library (its soname) is stable.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::RadosError;

/// File of the library.
const LIBRARY: &str = "librados.so.2";

/// Whatever librados hands out: a cluster, an I/O context or a completion.
pub(crate) type Handle = *mut c_void;
/// Function that librados calls when a read has ended.
pub(crate) type Callback = unsafe extern "C" fn(Handle, *mut c_void);

macro_rules! functions {
    ($($name:ident: $kind:ty = $symbol:literal;)+) => {
        /// Everything that is called, with the types that `rados/librados.h` declares.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $name: $kind,)+
        }

        impl Functions {
            /// Finds all functions by their names.
            ///
            /// # Safety
            /// `find` returns addresses of librados' own functions.
            unsafe fn found(
                find: impl Fn(&CStr) -> Result<Handle, String>,
            ) -> Result<Functions, String> {
                Ok(Functions {
                    // SAFETY: the address is that of the function of this name, whose type in C is
                    // the one given; a data pointer is as large as a function's where dlsym(3) is.
                    $($name: unsafe { std::mem::transmute::<Handle, $kind>(find($symbol)?) },)+
                })
            }
        }
    };
}

functions! {
    create: unsafe extern "C" fn(*mut Handle, *const c_char, *const c_char, u64) -> c_int
        = c"rados_create2";
    read_configuration: unsafe extern "C" fn(Handle, *const c_char) -> c_int
        = c"rados_conf_read_file";
    set_option: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int
        = c"rados_conf_set";
    connect: unsafe extern "C" fn(Handle) -> c_int = c"rados_connect";
    shutdown: unsafe extern "C" fn(Handle) = c"rados_shutdown";
    pool_name: unsafe extern "C" fn(Handle, i64, *mut c_char, usize) -> c_int
        = c"rados_pool_reverse_lookup";
    create_context: unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int
        = c"rados_ioctx_create";
    pool_id: unsafe extern "C" fn(Handle) -> i64 = c"rados_ioctx_get_id";
    set_namespace: unsafe extern "C" fn(Handle, *const c_char) = c"rados_ioctx_set_namespace";
    destroy_context: unsafe extern "C" fn(Handle) = c"rados_ioctx_destroy";
    create_completion: unsafe extern "C" fn(*mut c_void, Option<Callback>, *mut Handle) -> c_int
        = c"rados_aio_create_completion2";
    create_write: unsafe extern "C" fn() -> Handle = c"rados_create_write_op";
    write_create: unsafe extern "C" fn(Handle, c_int, *const c_char) = c"rados_write_op_create";
    write_full: unsafe extern "C" fn(Handle, *const c_char, usize) = c"rados_write_op_write_full";
    operate_write: unsafe extern "C" fn(Handle, Handle, *const c_char, *mut i64, c_int) -> c_int
        = c"rados_write_op_operate";
    release_write: unsafe extern "C" fn(Handle) = c"rados_release_write_op";
    read: unsafe extern "C" fn(Handle, *const c_char, Handle, *mut c_char, usize, u64) -> c_int
        = c"rados_aio_read";
    wait: unsafe extern "C" fn(Handle) -> c_int = c"rados_aio_wait_for_complete";
    result: unsafe extern "C" fn(Handle) -> c_int = c"rados_aio_get_return_value";
    cancel: unsafe extern "C" fn(Handle, Handle) -> c_int = c"rados_aio_cancel";
    release: unsafe extern "C" fn(Handle) = c"rados_aio_release";
}

/// Returns the functions of the library, which is loaded once and stays.
///
/// # Errors
/// [`RadosError::Library`].
pub(crate) fn load() -> Result<&'static Functions, RadosError> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| open(c"librados.so.2"));
    loaded.as_ref().map_err(|cause| RadosError::Library { library: LIBRARY, cause: cause.clone() })
}

/// Loads a library and finds the functions in it.
fn open(name: &CStr) -> Result<Functions, String> {
    // SAFETY: the name is a string of C's. Initialisers of the library run, as they do in every program
    // that uses it, and ask nothing of this thread. It is never closed: threads of it stay.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(last_error());
    }
    let find = |symbol: &CStr| {
        // SAFETY: the library is open, and the symbol is a string of C's.
        let address = unsafe { libc::dlsym(library, symbol.as_ptr()) };
        if address.is_null() { Err(last_error()) } else { Ok(address) }
    };
    // SAFETY: a library of this name is librados, or it could serve nobody else either.
    unsafe { Functions::found(find) }
}

/// Returns the loader's text for the error that this thread has just met.
fn last_error() -> String {
    // SAFETY: dlerror(3) may be called at any time, and returns null or a string that stays until this
    // thread calls the loader again.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy()) }
    };
    text.map_or_else(|| "unknown error".to_owned(), |text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_missing_library_and_missing_function_are_named() {
        let error = open(c"libradio.so.2").unwrap_err();
        assert!(error.contains("libradio.so.2"), "{error}");
        // Every process on Linux has the C library, which is no librados.
        let error = open(c"libc.so.6").unwrap_err();
        assert!(error.contains("rados_create2"), "{error}");
        let error = RadosError::Library { library: LIBRARY, cause: error };
        assert!(error.to_string().contains("librados2"), "{error}");
    }
}
