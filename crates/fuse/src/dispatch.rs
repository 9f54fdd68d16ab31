//! Every request and its answer. Nothing here waits: reads that must wait leave with `read::read`, opens
//! and seeks with `prepared::answer`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use acstor_readpath::ExtentKind;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use zerocopy::IntoBytes;

use crate::device::{Device, Sent};
use crate::file::File;
use crate::file_table::FileTable;
use crate::limits::{DIRECTORY_REPLY_MAX, NAME_MAX};
use crate::prepared::{self, Prepared};
use crate::read::{self, ReadRequest};
use crate::session::heartbeats::Heartbeats;
use crate::session::session_state::{SessionState, StateCell};
use crate::stats::{Counters, bump};
use crate::wire::abi::{self, fopen};
use crate::wire::inode::ROOT_INODE;
use crate::wire::negotiation::{self, Negotiated};
use crate::wire::reply::{self, DirectoryWriter};
use crate::wire::request::{Change, Opener, Operation, Request, RequestHeader, wants_answer};
use crate::{FuseConfig, FuseHooks, session::session_file};

/// Cookies of the first two directory entries; those of files are their inode numbers.
const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;
const BLOCK_BYTES: u32 = 4096;

/// State that all threads of a session share.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) config: FuseConfig,
    pub(crate) device: Arc<Device>,
    pub(crate) files: Arc<FileTable>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) hooks: FuseHooks,
    pub(crate) stats: Counters,
    /// One permit per read that may wait for peers and the origin at the same time.
    pub(crate) permits: Arc<Semaphore>,
    /// After a take-over: until when an image that guests have open may still be attached.
    pub(crate) attached_until: Option<Instant>,
    /// Heartbeats of the threads that read the device.
    pub(crate) heartbeats: Heartbeats,
    /// Set when another process goes on with the connection and answers what is open.
    pub(crate) is_handed_over: AtomicBool,
    pub(crate) state: StateCell,
    pub(crate) negotiated: Mutex<Option<Negotiated>>,
}

impl Dispatch {
    /// Returns whether an image that this process does not know may be one that it has not attached
    /// yet.
    pub(crate) fn may_be_attached_yet(&self, now: Instant) -> bool {
        self.attached_until.is_some_and(|until| now < until)
    }

    /// Answers one message; whatever happens, the kernel is not left waiting.
    pub(crate) fn handle(self: &Arc<Self>, message: &[u8]) {
        bump(&self.stats.requests);
        match Request::parse(message) {
            Ok(request) => {
                let header = request.header;
                if catch_unwind(AssertUnwindSafe(|| self.answer(request))).is_err() {
                    bump(&self.stats.panics);
                    tracing::error!(opcode = header.opcode, "a request made the server panic");
                    self.refuse(header, libc::EIO);
                }
            }
            Err((header, error)) => {
                bump(&self.stats.malformed);
                tracing::warn!(%error, "a malformed FUSE request");
                if let Some(header) = header {
                    self.refuse(header, libc::EINVAL);
                }
            }
        }
    }

    fn refuse(&self, header: RequestHeader, errno: i32) {
        if wants_answer(header.opcode) {
            self.errno(header, errno);
        }
    }

    fn answer(self: &Arc<Self>, request: Request<'_>) {
        let header = request.header;
        match request.operation {
            Operation::Init { major, minor, flags, .. } => self.init(header, major, minor, flags),
            Operation::Lookup { name } => self.look_up(header, name),
            Operation::Forget { lookups } => self.files.forget(header.inode, lookups),
            Operation::BatchForget(list) => {
                list.iter().for_each(|(inode, lookups)| self.files.forget(inode, lookups));
            }
            Operation::GetAttr => {
                bump(&self.stats.getattrs);
                self.attributes(header);
            }
            Operation::SetAttr(change) => self.set_attributes(header, change),
            Operation::Open { flags } => self.open(header, flags),
            Operation::Read { handle, offset, size, opener, reader } => {
                let (size, is_recorded) = (size as usize, opener.is_recorded);
                let request = ReadRequest { handle, offset, size, is_recorded, reader };
                read::read(self, header, request);
            }
            Operation::Release { opener, .. } => {
                self.files.release(header.inode, opener);
                self.errno(header, 0);
            }
            Operation::OpenDir => self.body(header, abi::OpenOut::default().as_bytes()),
            Operation::ReadDir { offset, size, plus } => {
                self.read_directory(header, offset, size as usize, plus);
            }
            Operation::StatFs => self.stat_fs(header),
            Operation::Lseek { offset, whence } => self.seek(header, offset, whence),
            Operation::Access { mask } => {
                let writes = mask & libc::W_OK as u32 != 0;
                self.errno(header, if writes { libc::EROFS } else { 0 });
            }
            // A disk read does not fail because of a signal; killed readers are found by
            // `reader::killed`.
            Operation::Interrupt { .. } => {}
            Operation::ReleaseDir | Operation::Destroy => self.errno(header, 0),
            Operation::Modify => {
                bump(&self.stats.modifications_refused);
                self.errno(header, libc::EROFS);
            }
            Operation::Unsupported => {
                bump(&self.stats.unsupported);
                self.errno(header, libc::ENOSYS);
            }
        }
    }

    fn init(&self, header: RequestHeader, major: u32, minor: u32, flags: u64) {
        match negotiation::negotiate(&self.config, major, minor, flags) {
            negotiation::Answer::Agreed(init, agreed) => {
                self.agree(agreed);
                self.body(header, init.as_bytes());
            }
            negotiation::Answer::AskAgain(init) => self.body(header, init.as_bytes()),
            negotiation::Answer::TooOld(why) => {
                tracing::error!("{why}");
                self.errno(header, libc::EPROTO);
                self.state.advance(SessionState::Failed);
            }
        }
    }

    fn agree(&self, agreed: Negotiated) {
        if !agreed.can_resend() {
            tracing::warn!(
                "this kernel cannot send requests again (Linux 6.9 can): reads in flight hang \
                 when the data plane is replaced"
            );
        }
        // Before the answer: a successor that finds no file assumes what this version asks for.
        if let Some(path) = &self.config.session_file
            && let Err(error) = session_file::save(path, &agreed)
        {
            tracing::error!(%error, "cannot keep the session for the next process");
        }
        *self.negotiated.lock() = Some(agreed);
        self.state.advance(SessionState::Serving);
    }

    fn look_up(&self, header: RequestHeader, name: &[u8]) {
        bump(&self.stats.lookups);
        if header.inode != ROOT_INODE {
            return self.errno(header, libc::ENOTDIR);
        }
        let Some(file) = self.files.look_up(name) else {
            return self.body(header, reply::no_entry_out().as_bytes());
        };
        let entry = reply::entry_out(&file, Some(file.cached_bytes()), self.config.reader_group);
        let sent = self.device.send_body(header.unique, entry.as_bytes());
        if !matches!(sent, Sent::Delivered) {
            self.files.forget(file.key.inode, 1);
        }
        self.note(sent);
    }

    fn attributes(&self, header: RequestHeader) {
        let attributes = if header.inode == ROOT_INODE {
            reply::root_attributes(self.config.reader_group)
        } else {
            match self.files.get(header.inode) {
                Some(file) => {
                    reply::file_attributes(&file, file.cached_bytes(), self.config.reader_group)
                }
                None => return self.errno(header, libc::ESTALE),
            }
        };
        self.body(header, reply::attr_out(attributes).as_bytes());
    }

    fn set_attributes(&self, header: RequestHeader, change: Change) {
        // libvirt takes EPERM of a chown for "not ours to change" and goes on; ENOSYS is fatal.
        let refused = match change {
            Change { size: true, .. } => Some(libc::EROFS),
            Change { owner: true, .. } | Change { mode: true, .. } => Some(libc::EPERM),
            _ => None,
        };
        if let Some(errno) = refused {
            bump(&self.stats.modifications_refused);
            return self.errno(header, errno);
        }
        self.attributes(header);
        if change.times {
            self.hint(header.inode);
        }
    }

    /// Nova sets the times of a base image when it is about to use it.
    fn hint(&self, inode: u64) {
        if let Some(file) = self.files.get(inode) {
            bump(&self.stats.prefetch_hints);
            if let Some(hook) = &self.hooks.prefetch {
                hook(file.disk);
            }
        }
    }

    fn open(self: &Arc<Self>, header: RequestHeader, flags: u32) {
        if flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32 {
            bump(&self.stats.modifications_refused);
            return self.errno(header, libc::EROFS);
        }
        // ESTALE makes the kernel look the name up again, so a detached name is ENOENT.
        let Some(file) = self.files.open(header.inode) else {
            return self.errno(header, libc::ESTALE);
        };
        // Before the answer, after which the guest may read.
        let opener = Opener::of(flags);
        file.opened(opener);
        prepared::answer(self, header, file, Prepared::Open { opener });
    }

    pub(crate) fn opened(&self, header: RequestHeader, file: &File, opener: Opener) {
        let out = abi::OpenOut {
            fh: file.key.handle,
            open_flags: fopen::KEEP_CACHE | fopen::NOFLUSH,
            padding: 0,
        };
        // As everything else, before the answer: who has the file open finds it counted.
        bump(&self.stats.opens);
        let sent = self.device.send_body(header.unique, out.as_bytes());
        if !matches!(sent, Sent::Delivered) {
            self.files.release(header.inode, opener);
        }
        self.note(sent);
    }

    fn read_directory(&self, header: RequestHeader, offset: u64, size: usize, plus: bool) {
        if header.inode != ROOT_INODE {
            return self.errno(header, libc::ENOTDIR);
        }
        let mut writer =
            DirectoryWriter::new(size.min(DIRECTORY_REPLY_MAX), plus, self.config.reader_group);
        let has_room = (offset >= COOKIE_DOT || writer.push_dot(b".", COOKIE_DOT))
            && (offset >= COOKIE_DOT_DOT || writer.push_dot(b"..", COOKIE_DOT_DOT));
        let mut listed = Vec::new();
        if has_room {
            // No entry is shorter than its fixed part and a name of one byte.
            let most = DIRECTORY_REPLY_MAX / (size_of::<abi::Dirent>() + 8);
            for file in self.files.listed_after(offset, most) {
                if !writer.push_file(&file) {
                    break;
                }
                listed.push(file);
            }
        }
        if plus {
            listed.iter().for_each(|file| file.kernel.lookups.add(1));
        }
        let sent = self.device.send_body(header.unique, writer.bytes());
        if plus && !matches!(sent, Sent::Delivered) {
            listed.iter().for_each(|file| self.files.forget(file.key.inode, 1));
        }
        self.note(sent);
    }

    fn stat_fs(&self, header: RequestHeader) {
        let (files, bytes) = self.files.totals();
        let out = abi::StatFsOut {
            blocks: bytes.div_ceil(u64::from(BLOCK_BYTES)),
            files,
            bsize: BLOCK_BYTES,
            frsize: BLOCK_BYTES,
            namelen: NAME_MAX as u32,
            ..Default::default()
        };
        self.body(header, out.as_bytes());
    }

    fn seek(self: &Arc<Self>, header: RequestHeader, offset: u64, whence: u32) {
        let Some(file) = self.files.get(header.inode) else {
            return self.errno(header, libc::ESTALE);
        };
        let kind = match whence as i32 {
            libc::SEEK_DATA => ExtentKind::Data,
            libc::SEEK_HOLE => ExtentKind::Hole,
            _ => return self.errno(header, libc::EINVAL),
        };
        file.kernel.note_use();
        prepared::answer(self, header, file, Prepared::Seek { offset, kind });
    }

    pub(crate) fn sought(&self, header: RequestHeader, file: &File, offset: u64, kind: ExtentKind) {
        match next_extent(file, offset, kind) {
            Some(offset) => self.body(header, abi::LseekOut { offset }.as_bytes()),
            None => self.errno(header, libc::ENXIO),
        }
    }

    fn body(&self, header: RequestHeader, body: &[u8]) {
        self.note(self.device.send_body(header.unique, body));
    }

    pub(crate) fn errno(&self, header: RequestHeader, errno: i32) {
        self.note(self.device.send_errno(header.unique, errno));
    }

    /// Counts what did not reach a reader.
    pub(crate) fn note(&self, sent: Sent) {
        match sent {
            Sent::Delivered => {}
            Sent::Unwanted => bump(&self.stats.unwanted),
            Sent::Fault => {
                bump(&self.stats.refused);
                tracing::warn!("the store's file was cut while a reader was answered from it");
            }
            Sent::Refused(error) => {
                bump(&self.stats.refused);
                tracing::error!(%error, "the kernel refused an answer");
            }
        }
    }
}

/// The next extent as lseek has it: nothing at or after the end.
fn next_extent(file: &File, offset: u64, kind: ExtentKind) -> Option<u64> {
    if offset >= file.view.size_bytes() {
        return None;
    }
    file.view.next_extent(offset, kind)
}

#[cfg(test)]
mod tests;
