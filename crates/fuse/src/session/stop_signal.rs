//! Waking a thread that waits in read(2) on the device.
//!
//! A real-time signal with an empty handler makes the read return EINTR; polling before each read
//! would cost a system call per request, and wake all threads for each one.

use std::io;
use std::os::unix::thread::{JoinHandleExt, RawPthread};
use std::sync::OnceLock;
use std::thread::JoinHandle;

/// First real-time signal that is tried, counted from SIGRTMIN; glibc and others use the lower
/// ones.
const FIRST: i32 = 6;

static SIGNAL: OnceLock<Option<i32>> = OnceLock::new();

extern "C" fn ignore(_signal: libc::c_int) {}

/// Installs the handler on a signal that nobody uses, once per process.
pub(crate) fn install() -> io::Result<i32> {
    let signal = SIGNAL.get_or_init(|| {
        (libc::SIGRTMIN() + FIRST..=libc::SIGRTMAX()).find(|&signal| install_on(signal))
    });
    signal.ok_or_else(|| io::Error::other("every real-time signal has a handler already"))
}

fn install_on(signal: i32) -> bool {
    // SAFETY: sigaction is a plain structure for which all zeros is a valid value.
    let (mut current, mut action): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = ignore as *const () as usize; // no SA_RESTART: read must end
    // SAFETY: both pointers are to live structures; the handler does nothing, which is
    // async-signal-safe.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), &mut current) == 0
            && current.sa_sigaction == libc::SIG_DFL
            && libc::sigaction(signal, &action, std::ptr::null_mut()) == 0
    }
}

/// Lets this thread receive the signal, whatever mask it inherited.
pub(crate) fn unblock(signal: i32) {
    // SAFETY: the set is initialised by sigemptyset before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// Interrupts a thread. It may be about to enter read(2), so call again until it has ended.
pub(crate) fn interrupt(thread: &JoinHandle<()>, signal: i32) {
    let thread: RawPthread = thread.as_pthread_t();
    // SAFETY: the handle is not joined yet, so the thread id is valid even if the thread ended.
    unsafe { libc::pthread_kill(thread, signal) };
}
