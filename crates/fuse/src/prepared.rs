//! OPEN and LSEEK of a disk whose view is to be prepared first, which may mean a read of this host's disk:
//! a task waits for it, never a FUSE thread. All others are answered at once.
//!
//! Every request is answered exactly once: by its task, or by the guard of a task that ended without
//! doing so. Only when the session was handed over no error is answered: the next process gets the
//! request again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use acstor_readpath::ExtentKind;
use tokio::time::{Instant, timeout_at};

use crate::dispatch::Dispatch;
use crate::file::File;
use crate::session::reader;
use crate::stats::bump;
use crate::wire::errno::errno_of;
use crate::wire::request::{Opener, RequestHeader};

/// Request that is answered once the view is prepared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Prepared {
    /// An open, which is counted already.
    Open { opener: Opener },
    /// A seek.
    Seek { offset: u64, kind: ExtentKind },
}

/// Answers once the view of the file is prepared.
pub(crate) fn answer(
    dispatch: &Arc<Dispatch>,
    header: RequestHeader,
    file: Arc<File>,
    what: Prepared,
) {
    let preparing = file.view.prepare().or_else(|| match what {
        Prepared::Open { .. } => None,
        Prepared::Seek { offset, kind } => file.view.prepare_extent(offset, kind),
    });
    let pending = Pending { dispatch: dispatch.clone(), header, file, what, done: false };
    let Some(preparing) = preparing else { return pending.succeed() };
    bump(&dispatch.stats.prepare_waits);
    let deadline = Instant::now() + dispatch.config.answer_deadline;
    dispatch.runtime.spawn(async move {
        let errno = tokio::select! {
            prepared = timeout_at(deadline, preparing) => match prepared {
                Ok(Ok(())) => return pending.succeed(),
                Ok(Err(error)) => {
                    tracing::warn!(disk = %pending.file.disk, "cannot be opened: {error}");
                    errno_of(error.kind())
                }
                Err(_) => libc::EIO,
            },
            () = reader::killed(header.pid) => libc::EINTR,
        };
        pending.fail(errno);
    });
}

/// A request that a task has to answer.
struct Pending {
    dispatch: Arc<Dispatch>,
    header: RequestHeader,
    file: Arc<File>,
    what: Prepared,
    done: bool,
}

impl Pending {
    fn succeed(mut self) {
        self.done = true;
        match self.what {
            Prepared::Open { opener } => {
                self.dispatch.opened(self.header, &self.file, opener);
            }
            Prepared::Seek { offset, kind } => {
                self.dispatch.sought(self.header, &self.file, offset, kind);
            }
        }
    }

    fn fail(mut self, errno: i32) {
        self.done = true;
        self.refuse(errno);
    }

    fn refuse(&self, errno: i32) {
        let dispatch = &self.dispatch;
        if let Prepared::Open { opener } = self.what {
            dispatch.files.release(self.header.inode, opener);
        }
        if dispatch.is_handed_over.load(Ordering::Acquire) {
            return;
        }
        bump(&dispatch.stats.prepare_errors);
        dispatch.errno(self.header, errno);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // The task panicked or the runtime ended.
        if !self.done {
            self.refuse(libc::EIO);
        }
    }
}
