//! READ: at once from this host on the FUSE thread, else by a task of the runtime.
//!
//! The FUSE thread never waits, so that names, attributes and cached reads are answered whatever
//! the origin does. Reads that must wait take a permit first; without one they queue, up to
//! `max_waiting`. Every read is answered exactly once: by its task, or by the guard of a
//! task that ended without doing so. Only when the session was handed over no error is answered:
//! the next process gets the request again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use acstor_readpath::{ReadError, Segment, TryRead};
use tokio::time::Instant;

use crate::device::{self, Sent};
use crate::dispatch::Dispatch;
use crate::errno::errno_of;
use crate::file::File;
use crate::limits::READ_SIZE_MAX;
use crate::reader;
use crate::request::RequestHeader;
use crate::stats::bump;

/// What a READ asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) size: usize,
}

/// How a read that waited ended.
enum Waited {
    Segments(Vec<Segment>),
    Bytes(Vec<u8>),
    Errno(i32),
}

pub(crate) fn read(dispatch: &Arc<Dispatch>, header: RequestHeader, request: ReadRequest) {
    bump(&dispatch.stats.reads);
    let file = dispatch.files.get(header.inode);
    // The handle differs when another disk has the inode number: never answer with its bytes.
    let Some(file) = file.filter(|file| file.key.handle == request.handle) else {
        bump(&dispatch.stats.read_unknown);
        return fail(dispatch, header.unique, libc::ESTALE);
    };
    if request.size > READ_SIZE_MAX {
        return fail(dispatch, header.unique, libc::EINVAL);
    }
    match file.view.try_read(request.offset, request.size) {
        Ok(TryRead::Ready(segments)) => answer_at_once(dispatch, header, request, file, segments),
        Ok(TryRead::WouldWait) => wait(dispatch, header, request, file, false),
        Err(error) => fail_with(dispatch, header.unique, &error),
    }
}

fn answer_at_once(
    dispatch: &Arc<Dispatch>,
    header: RequestHeader,
    request: ReadRequest,
    file: Arc<File>,
    segments: Vec<Segment>,
) {
    if !is_exact(&file, request, &segments) {
        bump(&dispatch.stats.read_miscounted);
        return fail(dispatch, header.unique, libc::EIO);
    }
    if device::populate(&segments).is_err() {
        bump(&dispatch.stats.mapped_faults);
        return wait(dispatch, header, request, file, true);
    }
    bump(&dispatch.stats.read_hits);
    send_segments(dispatch, header.unique, &segments);
}

fn wait(
    dispatch: &Arc<Dispatch>,
    header: RequestHeader,
    request: ReadRequest,
    file: Arc<File>,
    by_copy: bool,
) {
    bump(&dispatch.stats.read_waits);
    let waiting = &dispatch.stats.read_waiting_now;
    if waiting.fetch_add(1, Ordering::AcqRel) >= dispatch.config.max_waiting as u64 {
        waiting.fetch_sub(1, Ordering::AcqRel);
        bump(&dispatch.stats.read_refused);
        return fail(dispatch, header.unique, libc::EIO);
    }
    let pending = PendingRead { dispatch: dispatch.clone(), unique: header.unique, done: false };
    let deadline = Instant::now() + dispatch.config.answer_deadline;
    dispatch.runtime.spawn(async move {
        let answer = answer_in_time(&pending.dispatch, &file, request, by_copy);
        let waited = tokio::select! {
            waited = tokio::time::timeout_at(deadline, answer) => match waited {
                Ok(waited) => waited,
                Err(_) => {
                    bump(&pending.dispatch.stats.read_deadlines);
                    Waited::Errno(libc::EIO)
                }
            },
            () = reader::killed(header.pid) => {
                bump(&pending.dispatch.stats.read_killed);
                Waited::Errno(libc::EINTR)
            }
        };
        pending.answer(&waited);
    });
}

async fn answer_in_time(
    dispatch: &Dispatch,
    file: &File,
    request: ReadRequest,
    by_copy: bool,
) -> Waited {
    let Ok(_permit) = dispatch.permits.acquire().await else { return Waited::Errno(libc::EIO) };
    let mut by_copy = by_copy;
    // Twice: reading a damaged chunk by copy drops it from the store, and the second time the
    // bytes come from elsewhere.
    for _ in 0..2 {
        let segments = match file.view.read(request.offset, request.size).await {
            Ok(segments) => segments,
            Err(error) => return Waited::Errno(errno_of(error.kind())),
        };
        if !is_exact(file, request, &segments) {
            bump(&dispatch.stats.read_miscounted);
            return Waited::Errno(libc::EIO);
        }
        if !by_copy && device::populate(&segments).is_ok() {
            return Waited::Segments(segments);
        }
        if let Ok(bytes) = device::gather(&segments) {
            return Waited::Bytes(bytes);
        }
        bump(&dispatch.stats.mapped_faults);
        by_copy = true;
    }
    Waited::Errno(libc::EIO)
}

/// Whether the segments are as many bytes as the disk has there. The kernel takes a short answer
/// for the end of the file and fills up with zeros, so one must never be sent.
fn is_exact(file: &File, request: ReadRequest, segments: &[Segment]) -> bool {
    let left = file.view.size_bytes().saturating_sub(request.offset);
    let due = left.min(request.size as u64);
    segments.iter().map(|segment| segment.len() as u64).sum::<u64>() == due
}

/// A read that a task has to answer.
struct PendingRead {
    dispatch: Arc<Dispatch>,
    unique: u64,
    done: bool,
}

impl PendingRead {
    fn answer(mut self, waited: &Waited) {
        self.done = true;
        let dispatch = &self.dispatch;
        match waited {
            Waited::Segments(segments) => send_segments(dispatch, self.unique, segments),
            Waited::Bytes(bytes) => {
                sent(dispatch, dispatch.device.send_body(self.unique, bytes), bytes.len());
            }
            Waited::Errno(errno) => fail(dispatch, self.unique, *errno),
        }
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        self.dispatch.stats.read_waiting_now.fetch_sub(1, Ordering::AcqRel);
        // The task panicked or the runtime ended.
        if !self.done {
            fail(&self.dispatch, self.unique, libc::EIO);
        }
    }
}

fn send_segments(dispatch: &Dispatch, unique: u64, segments: &[Segment]) {
    let bytes = segments.iter().map(Segment::len).sum();
    sent(dispatch, dispatch.device.send_segments(unique, segments), bytes);
}

fn sent(dispatch: &Dispatch, sent: Sent, bytes: usize) {
    if matches!(sent, Sent::Delivered) {
        dispatch.stats.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    } else {
        dispatch.note(sent);
    }
}

fn fail_with(dispatch: &Dispatch, unique: u64, error: &ReadError) {
    // Counted; an origin that is gone would fill the log.
    tracing::debug!(%error, "a read failed");
    fail(dispatch, unique, errno_of(error.kind()));
}

/// Answers a READ with an errno, unless the session was handed over: what fails because this
/// process is on its way out (the read path stops, the runtime ends) the next one is to answer.
fn fail(dispatch: &Dispatch, unique: u64, errno: i32) {
    if dispatch.is_handed_over.load(Ordering::Acquire) {
        return;
    }
    bump(&dispatch.stats.read_errors);
    dispatch.note(dispatch.device.send_errno(unique, errno));
}
