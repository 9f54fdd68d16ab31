//! READ: at once from this host's memory on the FUSE thread; from this host's disk by a thread that
//! reads it, which answers itself; else by a task of the runtime.
//!
//! The FUSE thread never waits, neither for the disk nor for others, so that names, attributes and
//! cached reads are answered whatever they do. Reads that must wait take a permit of their file and
//! then one of all; without one they queue, up to `max_waiting`. A file has a share of the permits
//! only, so that one whose reads hang leaves some to the others. Every read is answered exactly once: by its task, or by the guard of a
//! task that ended without doing so. Only when the session was handed over no error is answered:
//! the next process gets the request again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use acstor_readpath::{BlockView, ReadError, Reader, Segment, TryRead};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::device::Sent;
use crate::dispatch::Dispatch;
use crate::file::File;
use crate::limits::READ_SIZE_MAX;
use crate::session::reader;
use crate::stats::bump;
use crate::wire::errno::errno_of;
use crate::wire::request::RequestHeader;

/// Arguments of a READ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) size: usize,
    /// False if nothing is to be learnt of it, since no guest reads.
    pub(crate) is_recorded: bool,
    pub(crate) reader: Reader,
}

impl ReadRequest {
    /// The view to read instead of the file's own; `None`: there is none.
    fn other_view(&self, file: &File) -> Option<Arc<dyn BlockView>> {
        if self.is_recorded { None } else { file.view.unrecorded() }
    }
}

/// Result of a read that waited.
enum Waited {
    Segments(Vec<Segment>),
    Errno(i32),
}

pub(crate) fn read(dispatch: &Arc<Dispatch>, header: RequestHeader, request: ReadRequest) {
    bump(&dispatch.stats.reads);
    if request.size > READ_SIZE_MAX {
        return fail(dispatch, header.unique, libc::EINVAL);
    }
    let Some(file) = find(dispatch, header.inode, request.handle) else {
        bump(&dispatch.stats.read_unknown);
        if dispatch.may_be_attached_yet(Instant::now()) {
            return wait(dispatch, header, request, None);
        }
        return fail(dispatch, header.unique, libc::ESTALE);
    };
    if let (true, Some(boots)) = (request.is_recorded, &file.boots) {
        boots.arrived(request.reader, request.offset, request.size);
    }
    let other = request.other_view(&file);
    match other.as_deref().unwrap_or(&*file.view).try_read(request.offset, request.size) {
        Ok(TryRead::Ready(segments)) => {
            if !is_exact(&file, request, &segments) {
                bump(&dispatch.stats.read_miscounted);
                return fail(dispatch, header.unique, libc::EIO);
            }
            bump(&dispatch.stats.read_hits);
            send_segments(dispatch, header.unique, &segments);
        }
        Ok(TryRead::WouldWait) => wait(dispatch, header, request, Some(file)),
        Err(error) => fail_with(dispatch, header.unique, &error),
    }
}

/// The handle differs when another disk has the inode number: never answer with its bytes.
fn find(dispatch: &Dispatch, inode: u64, handle: u64) -> Option<Arc<File>> {
    dispatch.files.get(inode).filter(|file| file.key.handle == handle)
}

/// Answers by a thread that reads the disk, or by a task; `file` is `None` where it may be attached yet.
fn wait(
    dispatch: &Arc<Dispatch>,
    header: RequestHeader,
    request: ReadRequest,
    file: Option<Arc<File>>,
) {
    bump(&dispatch.stats.read_waits);
    if let Some(file) = &file {
        file.kernel.note_use();
    }
    let waiting = &dispatch.stats.read_waiting_now;
    if waiting.fetch_add(1, Ordering::AcqRel) >= dispatch.config.max_waiting as u64 {
        waiting.fetch_sub(1, Ordering::AcqRel);
        bump(&dispatch.stats.read_refused);
        return fail(dispatch, header.unique, libc::EIO);
    }
    let pending = PendingRead { dispatch: dispatch.clone(), unique: header.unique, done: false };
    let Some((file, permits)) =
        file.as_ref().and_then(|file| Some((file, permits(dispatch, file)?)))
    else {
        return spawn(pending, header, request, file);
    };
    let view = request.other_view(file).unwrap_or_else(|| file.view.clone());
    let file = file.clone();
    let done = move |segments: Option<Vec<Segment>>| {
        let Some(segments) = segments else {
            drop(permits);
            return spawn(pending, header, request, Some(file));
        };
        let answer = checked(&pending.dispatch, &file, request, segments);
        pending.answer(&answer);
    };
    view.start_read(request.offset, request.size, Box::new(done));
}

/// The permits of a read that waits for this host's disk, if there are any to be had at once.
fn permits(dispatch: &Dispatch, file: &File) -> Option<[OwnedSemaphorePermit; 2]> {
    let share = file.permits.clone().try_acquire_owned().ok()?;
    Some([share, dispatch.permits.clone().try_acquire_owned().ok()?])
}

/// Answers by a task.
fn spawn(
    pending: PendingRead,
    header: RequestHeader,
    request: ReadRequest,
    file: Option<Arc<File>>,
) {
    let dispatch = pending.dispatch.clone();
    let deadline = Instant::now() + dispatch.config.answer_deadline;
    dispatch.runtime.spawn(async move {
        let answer = answer_in_time(&pending.dispatch, file, header.inode, request);
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
    file: Option<Arc<File>>,
    inode: u64,
    request: ReadRequest,
) -> Waited {
    let mut file = match file {
        Some(file) => file,
        None => match wait_attached(dispatch, inode, request.handle).await {
            Some(file) => file,
            None => return Waited::Errno(libc::ESTALE),
        },
    };
    loop {
        let mut attached = std::pin::pin!(dispatch.files.attached());
        attached.as_mut().enable();
        // Looked for anew: it may have been attached between the look before and this.
        file = find(dispatch, inode, request.handle).unwrap_or(file);
        let error = match read_once(dispatch, &file, request).await {
            Ok(waited) => return waited,
            Err(error) => error,
        };
        // What is put aside as damaged is attached anew as soon as the origin gives it: those that had
        // it open before this process wait for that, as for one that is not attached at all.
        let until = dispatch.attached_until.filter(|until| Instant::now() < *until);
        let (ReadError::Manifest { is_damaged: true, .. }, Some(until)) = (&error, until) else {
            tracing::debug!(%error, "a read failed");
            return Waited::Errno(errno_of(error.kind()));
        };
        let _ = tokio::time::timeout_at(until, attached).await;
        match wait_attached(dispatch, inode, request.handle).await {
            Some(found) => file = found,
            None => return Waited::Errno(libc::ESTALE),
        }
    }
}

async fn read_once(
    dispatch: &Dispatch,
    file: &File,
    request: ReadRequest,
) -> Result<Waited, ReadError> {
    // First its own: what waits for a share of its file holds none of the others'.
    let Ok(_share) = file.permits.acquire().await else { return Ok(Waited::Errno(libc::EIO)) };
    let Ok(_permit) = dispatch.permits.acquire().await else {
        return Ok(Waited::Errno(libc::EIO));
    };
    let view = request.other_view(file).unwrap_or_else(|| file.view.clone());
    let segments = view.read(request.offset, request.size).await?;
    Ok(checked(dispatch, file, request, segments))
}

fn checked(
    dispatch: &Dispatch,
    file: &File,
    request: ReadRequest,
    segments: Vec<Segment>,
) -> Waited {
    if !is_exact(file, request, &segments) {
        bump(&dispatch.stats.read_miscounted);
        return Waited::Errno(libc::EIO);
    }
    Waited::Segments(segments)
}

/// Waits for an image that guests had open before this process, which it has not attached yet.
async fn wait_attached(dispatch: &Dispatch, inode: u64, handle: u64) -> Option<Arc<File>> {
    loop {
        let mut attached = std::pin::pin!(dispatch.files.attached());
        // Counted from here on, so that none between the look and the wait is missed.
        attached.as_mut().enable();
        if let Some(file) = find(dispatch, inode, handle) {
            return Some(file);
        }
        let until = dispatch.attached_until?;
        if tokio::time::timeout_at(until, attached).await.is_err() {
            return find(dispatch, inode, handle);
        }
    }
}

/// Returns whether the segments are as many bytes as the disk has there. The kernel takes a short
/// answer for the end of the file and fills up with zeros, so one must never be sent.
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
    let sent = dispatch.device.send_segments(unique, segments);
    if matches!(sent, Sent::Fault) {
        // The kernel has failed the read by now. Whoever sees the count finds the doubt.
        note_fault(segments);
        bump(&dispatch.stats.mapped_faults);
    }
    if matches!(sent, Sent::Delivered) {
        let bytes: usize = segments.iter().map(Segment::len).sum();
        dispatch.stats.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    } else {
        dispatch.note(sent);
    }
}

/// Tells the store of each mapped segment: which of them failed is not known.
fn note_fault(segments: &[Segment]) {
    for segment in segments {
        if let Segment::Mapped { chunk, .. } = segment {
            chunk.note_fault();
        }
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
