//! A connection that is being served: its threads, and the ways to end them.

pub(crate) mod heartbeats;
pub(crate) mod reader;
pub(crate) mod session_file;
pub(crate) mod session_state;
pub(crate) mod stop_signal;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::dispatch::Dispatch;
use crate::limits::{REQUEST_BUFFER_BYTES, STOP_WAIT};
use crate::mount::{self, Unmounted};
use crate::session::session_state::SessionState;
use crate::{FuseError, FuseStats, Negotiated, mount::mountinfo};

/// Pause between two tries to wake a thread up.
const WAKE_INTERVAL: Duration = Duration::from_millis(2);
/// Unexpected errors of the device in a row after which a thread gives up.
const DEVICE_ERRORS_MAX: u32 = 100;
/// Pause after an unexpected error.
const DEVICE_ERROR_PAUSE: Duration = Duration::from_millis(10);

/// A connection that is being served. Dropping it is [`FuseSession::shutdown`].
#[derive(Debug)]
pub struct FuseSession {
    dispatch: Arc<Dispatch>,
    mount_point: PathBuf,
    signal: i32,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl FuseSession {
    pub(crate) fn start(
        dispatch: Arc<Dispatch>,
        mount_point: PathBuf,
    ) -> Result<FuseSession, FuseError> {
        let signal = stop_signal::install().map_err(FuseError::Thread)?;
        let session =
            FuseSession { dispatch, mount_point, signal, threads: Mutex::new(Vec::new()) };
        let alive = Arc::new(AtomicUsize::new(session.dispatch.config.threads));
        for number in 0..session.dispatch.config.threads {
            let (dispatch, alive) = (session.dispatch.clone(), alive.clone());
            let thread = thread::Builder::new()
                .name(format!("acstor-fuse-{number}"))
                .spawn(move || {
                    stop_signal::unblock(signal);
                    let end = serve_requests(&dispatch, number);
                    dispatch.state.advance(end);
                    if alive.fetch_sub(1, Ordering::AcqRel) == 1 {
                        dispatch.files.disconnect(&dispatch.device);
                        dispatch.state.advance(SessionState::Stopped);
                    }
                })
                .map_err(FuseError::Thread)?;
            session.threads.lock().push(thread);
        }
        Ok(session)
    }

    /// Returns the state of the session.
    pub fn state(&self) -> SessionState {
        self.dispatch.state.get()
    }

    /// Returns the counters since this process serves the connection.
    pub fn stats(&self) -> FuseStats {
        self.dispatch.stats.snapshot()
    }

    /// Returns the age of the request that a thread has been handling longest: more than moments
    /// shows a thread that is stuck, since none waits for anything.
    pub fn longest_request(&self) -> Duration {
        self.dispatch.heartbeats.longest(Instant::now())
    }

    /// Returns the agreement of INIT; `None` before it, and after a take-over without session file.
    pub fn negotiated(&self) -> Option<Negotiated> {
        *self.dispatch.negotiated.lock()
    }

    /// Returns the mount point, links resolved.
    pub fn mount_point(&self) -> &std::path::Path {
        &self.mount_point
    }

    /// Number of the connection, N in `/sys/fs/fuse/connections/N`; `None` once it is unmounted.
    pub fn connection(&self) -> Option<u64> {
        let mount = mountinfo::find(&self.mount_point).ok()??;
        mount.connection()?.parse().ok()
    }

    /// Waits until the connection or its serving has ended, however that comes, at most for
    /// `timeout`; returns the state then.
    pub fn wait(&self, timeout: Option<Duration>) -> SessionState {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        self.dispatch.state.wait(deadline, SessionState::is_final)
    }

    /// Stops answering without unmounting: the connection goes on with the process that has its
    /// descriptor next. Reads in flight are not failed; that process gets them again. Bounded.
    pub fn shutdown(&self) -> SessionState {
        self.dispatch.is_handed_over.store(true, Ordering::Release);
        self.dispatch.state.advance(SessionState::Stopping);
        self.join()
    }

    /// Unmounts and stops. While the mount is in use, tries again for `grace`, then aborts the
    /// connection: its readers get an error at once. Bounded by `grace` and a few seconds.
    ///
    /// # Errors
    /// [`FuseError::Unmount`].
    pub fn unmount(&self, grace: Duration) -> Result<Unmounted, FuseError> {
        let outcome = mount::unmount(&self.mount_point, grace);
        // The kernel ends the threads' reads; where it does not (nothing was mounted there any
        // more, but a lazy unmount keeps the connection), they are stopped.
        let deadline = Instant::now() + STOP_WAIT / 10;
        if !self.dispatch.state.wait(Some(deadline), SessionState::is_final).is_final() {
            self.dispatch.state.advance(SessionState::Stopping);
        }
        self.join();
        outcome
    }

    /// Wakes the threads until they have ended; a thread stuck in a system call is left behind.
    fn join(&self) -> SessionState {
        let deadline = Instant::now() + STOP_WAIT;
        let mut threads = self.threads.lock();
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
            threads
                .iter()
                .filter(|thread| !thread.is_finished())
                .for_each(|thread| stop_signal::interrupt(thread, self.signal));
            thread::sleep(WAKE_INTERVAL);
        }
        for thread in threads.drain(..) {
            if thread.is_finished() {
                // A panic of the thread was counted where it happened.
                let _ = thread.join();
            } else {
                tracing::error!("a FUSE thread does not stop; it is left behind");
            }
        }
        self.dispatch.state.get()
    }
}

impl Drop for FuseSession {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty() {
            self.shutdown();
        }
    }
}

/// Reads and answers until told to stop or the connection ends; returns the state that follows.
fn serve_requests(dispatch: &Arc<Dispatch>, number: usize) -> SessionState {
    let mut buffer = request_buffer();
    let mut errors = 0;
    loop {
        match dispatch.state.get() {
            SessionState::Starting | SessionState::Serving => {}
            SessionState::Stopping => return SessionState::Stopping,
            other => return other,
        }
        match dispatch.device.receive(&mut buffer) {
            Ok(length) => {
                errors = 0;
                let _handling = dispatch.heartbeats.handling(number);
                dispatch.handle(&buffer[..length]);
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ENODEV) => return SessionState::Unmounted,
                Some(libc::ECONNABORTED) => return SessionState::Aborted,
                // EINTR: the stop signal, or another; ENOENT: the request was interrupted
                // before it was read.
                Some(libc::EINTR | libc::ENOENT | libc::EAGAIN) => {}
                _ => {
                    errors += 1;
                    if errors >= DEVICE_ERRORS_MAX {
                        tracing::error!(%error, "reading /dev/fuse fails; giving up");
                        return SessionState::Failed;
                    }
                    pause(&error);
                }
            },
        }
    }
}

/// A buffer whose pages are there and stay: a SIGKILL while the kernel has to make one for a
/// request being copied would fail that request.
fn request_buffer() -> Vec<u8> {
    let buffer = vec![1; REQUEST_BUFFER_BYTES];
    // SAFETY: the range is this live allocation; locking does not change it. The lock ends with
    // the process or the mapping.
    if unsafe { libc::mlock(buffer.as_ptr().cast(), buffer.len()) } != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "cannot lock a request buffer");
    }
    buffer
}

fn pause(error: &io::Error) {
    tracing::warn!(%error, "reading /dev/fuse failed");
    thread::sleep(DEVICE_ERROR_PAUSE);
}
