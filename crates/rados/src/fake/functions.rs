//! The functions that stand in the place of librados'.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use super::{Asked, Completion, FakeCluster, locked};
use crate::binding::{Functions, Handle};

/// A table of this module's functions.
pub(crate) static FUNCTIONS: Functions = Functions {
    create,
    read_configuration,
    set_option,
    connect,
    shutdown,
    pool_name,
    create_context,
    pool_id,
    set_namespace,
    destroy_context,
    create_completion,
    create_write,
    write_create,
    write_full,
    operate_write,
    release_write,
    read,
    wait,
    result,
    cancel,
    release,
};

#[derive(Default)]
struct Connection {
    cluster: Option<Arc<FakeCluster>>,
    options: Vec<(String, String)>,
    is_connected: bool,
}

struct Context {
    cluster: Arc<FakeCluster>,
    pool: String,
    id: i64,
    namespace: String,
}

/// Writes to a reader's memory.
pub(super) fn write((address, len): (usize, usize), content: &[u8]) {
    assert!(content.len() <= len);
    // SAFETY: the binding keeps the memory until the completion has ended, which it has not; it has room.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), address as *mut u8, content.len()) }
}

unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the binding hands out strings of C's.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

unsafe extern "C" fn create(
    handle: *mut Handle,
    _cluster: *const c_char,
    name: *const c_char,
    flags: u64,
) -> c_int {
    // SAFETY: as of `text`.
    assert_eq!((unsafe { text(name) }.as_str(), flags), ("client.acstor", 0));
    // SAFETY: there is room for the handle.
    unsafe { *handle = Box::into_raw(Box::<Connection>::default()).cast() };
    0
}

unsafe fn connection<'a>(handle: Handle) -> &'a mut Connection {
    // SAFETY: of `create`, not ended, and used by one thread until it is connected.
    unsafe { &mut *handle.cast() }
}

unsafe extern "C" fn read_configuration(handle: Handle, path: *const c_char) -> c_int {
    // SAFETY: as of `text` and `connection`.
    let (connection, path) = unsafe { (connection(handle), text(path)) };
    connection.cluster = FakeCluster::of(&path);
    if connection.cluster.is_some() { 0 } else { -libc::ENOENT }
}

unsafe extern "C" fn set_option(
    handle: Handle,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: as of `text` and `connection`.
    unsafe { connection(handle).options.push((text(name), text(value))) };
    0
}

unsafe extern "C" fn connect(handle: Handle) -> c_int {
    // SAFETY: as of `connection`.
    let connection = unsafe { connection(handle) };
    let cluster = connection.cluster.clone().unwrap();
    let mut state = cluster.state();
    state.connects += 1;
    state.options.clone_from(&connection.options);
    if state.connect_error == 0 {
        connection.is_connected = true;
        state.open.connections += 1;
    }
    state.connect_error
}

unsafe extern "C" fn shutdown(handle: Handle) {
    // SAFETY: of `create`, and ended once.
    let connection = unsafe { Box::from_raw(handle.cast::<Connection>()) };
    if connection.is_connected {
        let cluster = connection.cluster.as_ref().unwrap();
        let mut state = cluster.state();
        assert_eq!((state.open.contexts, state.open.reads), (0, 0), "ended under what is open");
        state.open.connections -= 1;
    }
}

unsafe extern "C" fn pool_name(handle: Handle, id: i64, name: *mut c_char, len: usize) -> c_int {
    // SAFETY: of `create`, and not ended; nobody changes it once it is connected.
    let connection = unsafe { &*handle.cast::<Connection>() };
    let state = connection.cluster.as_ref().unwrap().state();
    let Some((found, _)) = state.pools.iter().find(|(_, number)| **number == id) else {
        return -libc::ENOENT;
    };
    assert!(found.len() < len);
    // SAFETY: there is room, as was told.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), name.cast(), found.len()) };
    found.len() as c_int
}

unsafe extern "C" fn create_context(
    handle: Handle,
    pool: *const c_char,
    context: *mut Handle,
) -> c_int {
    // SAFETY: as in `pool_name`, and of `text`.
    let (connection, pool) = unsafe { (&*handle.cast::<Connection>(), text(pool)) };
    let cluster = connection.cluster.clone().unwrap();
    let mut state = cluster.state();
    if state.open_error != 0 {
        return state.open_error;
    }
    let Some(&id) = state.pools.get(&pool) else { return -libc::ENOENT };
    state.open.contexts += 1;
    drop(state);
    let made = Context { cluster, pool, id, namespace: String::new() };
    // SAFETY: there is room for the handle.
    unsafe { *context = Box::into_raw(Box::new(made)).cast() };
    0
}

unsafe extern "C" fn pool_id(context: Handle) -> i64 {
    // SAFETY: of `create_context`, and not destroyed.
    unsafe { &*context.cast::<Context>() }.id
}

unsafe extern "C" fn set_namespace(context: Handle, namespace: *const c_char) {
    // SAFETY: of `create_context`, and nobody else has it yet.
    let (context, namespace) = unsafe { (&mut *context.cast::<Context>(), text(namespace)) };
    context.namespace = namespace;
}

unsafe extern "C" fn destroy_context(context: Handle) {
    // SAFETY: of `create_context`, and destroyed once.
    let context = unsafe { Box::from_raw(context.cast::<Context>()) };
    context.cluster.state().open.contexts -= 1;
}

unsafe extern "C" fn create_completion(
    _argument: *mut c_void,
    callback: Option<crate::binding::Callback>,
    completion: *mut Handle,
) -> c_int {
    assert!(callback.is_none());
    let made = Arc::new(Completion::default());
    // SAFETY: there is room for the handle.
    unsafe { *completion = Arc::into_raw(made).cast_mut().cast() };
    0
}

unsafe fn completion<'a>(handle: Handle) -> &'a Completion {
    // SAFETY: of `create_completion`, and not released.
    unsafe { &*handle.cast::<Completion>() }
}

unsafe extern "C" fn read(
    context: Handle,
    name: *const c_char,
    completion: Handle,
    memory: *mut c_char,
    len: usize,
    offset: u64,
) -> c_int {
    assert!(len > 0, "no bytes are all bytes");
    // SAFETY: of `create_context`, and not destroyed; as of `text`.
    let (context, name) = unsafe { (&*context.cast::<Context>(), text(name)) };
    // SAFETY: of `create_completion`, and not released: one more counts as this one.
    let completion = unsafe {
        Arc::increment_strong_count(completion.cast::<Completion>());
        Arc::from_raw(completion.cast::<Completion>())
    };
    {
        let mut ended = locked(&completion.state);
        ended.memory = Some((memory as usize, len));
        ended.cluster = Some(context.cluster.clone());
    }
    context.cluster.state().open.reads += 1;
    let asked = Asked { namespace: context.namespace.clone(), name, offset, len };
    context.cluster.read(&context.pool, asked, completion);
    0
}

/// A write operation, as far as it is used.
#[derive(Default)]
struct WriteOperation {
    is_exclusive: bool,
    content: Option<Vec<u8>>,
}

unsafe extern "C" fn create_write() -> Handle {
    Box::into_raw(Box::<WriteOperation>::default()).cast()
}

unsafe fn write_operation<'a>(handle: Handle) -> &'a mut WriteOperation {
    // SAFETY: of `create_write`, not released, and used by one thread.
    unsafe { &mut *handle.cast() }
}

unsafe extern "C" fn write_create(handle: Handle, exclusive: c_int, category: *const c_char) {
    assert!(category.is_null());
    // SAFETY: as of `write_operation`.
    unsafe { write_operation(handle) }.is_exclusive = exclusive == 1;
}

unsafe extern "C" fn write_full(handle: Handle, memory: *const c_char, len: usize) {
    // SAFETY: there are as many bytes as are told.
    let content = unsafe { std::slice::from_raw_parts(memory.cast::<u8>(), len) };
    // SAFETY: as of `write_operation`.
    unsafe { write_operation(handle) }.content = Some(content.to_vec());
}

unsafe extern "C" fn operate_write(
    handle: Handle,
    context: Handle,
    name: *const c_char,
    time: *mut i64,
    flags: c_int,
) -> c_int {
    assert!(time.is_null() && flags == 0);
    // SAFETY: as of `write_operation`; of `create_context`, and not destroyed; as of `text`.
    let (operation, context, name) =
        unsafe { (write_operation(handle), &*context.cast::<Context>(), text(name)) };
    assert!(operation.is_exclusive, "an object that is there would be replaced");
    let place = (context.pool.clone(), context.namespace.clone(), name);
    context.cluster.create(place, context.id, operation.content.take().unwrap())
}

unsafe extern "C" fn release_write(handle: Handle) {
    // SAFETY: of `create_write`, and released once.
    drop(unsafe { Box::from_raw(handle.cast::<WriteOperation>()) });
}

unsafe extern "C" fn wait(handle: Handle) -> c_int {
    // SAFETY: as of `completion`.
    unsafe { completion(handle) }.wait();
    0
}

unsafe extern "C" fn result(handle: Handle) -> c_int {
    // SAFETY: as of `completion`.
    locked(&unsafe { completion(handle) }.state).result.unwrap()
}

unsafe extern "C" fn cancel(context: Handle, handle: Handle) -> c_int {
    // SAFETY: of `create_context`, and not destroyed; as of `completion`.
    let (context, completion) = unsafe { (&*context.cast::<Context>(), completion(handle)) };
    context.cluster.state().cancelled += 1;
    completion.complete(&Err(-libc::ECANCELED));
    0
}

unsafe extern "C" fn release(handle: Handle) {
    // SAFETY: of `create_completion`, and released once.
    let completion = unsafe { Arc::from_raw(handle.cast::<Completion>()) };
    let cluster = locked(&completion.state).cluster.take();
    if let Some(cluster) = cluster {
        cluster.state().open.reads -= 1;
    }
}
