//! The files of a mount: which names exist, and which withdrawn ones are still open.
//!
//! Invariants: an inode number belongs to one disk for ever; a name leads to a listed file; a file
//! that is not listed stays until the kernel lets go of its inode, so that guests which have it
//! open go on. After a take-over the kernel may hold opens that this process never saw, so then
//! only the kernel's word (FORGET, or not knowing the inode) ends a withdrawn file.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use acstor_readpath::BlockView;
use acstor_types::DiskId;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::FuseError;
use crate::device::Device;
use crate::file::{File, FileStatus, KernelUse};
use crate::limits::{FILES_MAX, NAME_MAX};
use crate::wire::inode::FileKey;
use crate::wire::notify;
use crate::wire::request::Opener;

/// Result of detaching a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Detached {
    /// Nobody has it open; its view is dropped.
    Gone,
    /// Its name is gone, but it may be open: reads go on until it is closed. Attach it hidden
    /// again after a restart as long as [`FileTable::list`] shows it.
    StillOpen,
}

/// The files of a mount. Shared by all threads; independent of whether it is mounted.
#[derive(Default)]
pub struct FileTable {
    /// Needs no other lock; never held over a call to a view or to the kernel.
    files: RwLock<Files>,
    kernel: RwLock<Kernel>,
    /// Wakes those who wait for a file to be attached.
    attached: Notify,
}

#[derive(Default)]
struct Files {
    by_inode: BTreeMap<u64, Entry>,
    by_name: HashMap<String, u64>,
}

#[derive(Clone)]
struct Entry {
    file: Arc<File>,
    is_listed: bool,
}

impl Entry {
    fn status(&self) -> FileStatus {
        FileStatus {
            name: self.file.name.clone(),
            disk: self.file.disk,
            key: self.file.key,
            size_bytes: self.file.view.size_bytes(),
            is_listed: self.is_listed,
            opens: self.file.kernel.opens.get(),
        }
    }
}

#[derive(Default)]
struct Kernel {
    device: Option<Arc<Device>>,
    /// True if the connection was taken over, so that not every open has been seen.
    is_inherited: bool,
}

impl FileTable {
    /// Returns an empty table.
    pub fn new() -> FileTable {
        FileTable::default()
    }

    /// Makes a disk appear under `name` (an image: `<image id>.raw`). A disk that was detached
    /// and is still open gets its name back.
    ///
    /// # Errors
    /// [`FuseError::Name`], [`FuseError::Attached`], [`FuseError::SizeChanged`],
    /// [`FuseError::InodeTaken`], [`FuseError::TableFull`].
    pub fn attach(
        &self,
        name: &str,
        disk: DiskId,
        view: Arc<dyn BlockView>,
    ) -> Result<(), FuseError> {
        self.insert(name, disk, view, true)
    }

    /// Serves a disk to those who have it open from before, without a name.
    ///
    /// # Errors
    /// As [`FileTable::attach`].
    pub fn attach_hidden(
        &self,
        name: &str,
        disk: DiskId,
        view: Arc<dyn BlockView>,
    ) -> Result<(), FuseError> {
        self.insert(name, disk, view, false)
    }

    /// Takes the name of a disk away. New opens fail at once; reads through open files go on.
    ///
    /// Blocks while the kernel drops its cached pages, at most until a read-ahead that is under
    /// way is answered: not for a thread that answers reads.
    ///
    /// # Errors
    /// [`FuseError::NotAttached`].
    pub fn detach(&self, disk: DiskId) -> Result<Detached, FuseError> {
        let inode = FileKey::of(disk).inode;
        {
            let mut files = self.files.write();
            let entry = match files.by_inode.get_mut(&inode) {
                Some(entry) if entry.is_listed && entry.file.disk == disk => entry,
                _ => return Err(FuseError::NotAttached { disk }),
            };
            entry.is_listed = false;
            let name = entry.file.name.clone();
            files.by_name.remove(&name);
        }
        Ok(if self.retire_unless_used(inode) { Detached::Gone } else { Detached::StillOpen })
    }

    /// Drops the withdrawn files that the kernel has let go of, and returns how many. Worth
    /// calling now and then after a take-over. Blocks as [`FileTable::detach`] does.
    pub fn sweep(&self) -> usize {
        let hidden: Vec<u64> = {
            let files = self.files.read();
            files.by_inode.iter().filter(|(_, e)| !e.is_listed).map(|(&inode, _)| inode).collect()
        };
        hidden.into_iter().filter(|&inode| self.retire_unless_used(inode)).count()
    }

    /// Returns every file, withdrawn ones that may be open included, in the order of inodes.
    pub fn list(&self) -> Vec<FileStatus> {
        let files = self.files.read();
        files.by_inode.values().map(Entry::status).collect()
    }

    /// Returns one file, listed or withdrawn.
    pub fn status(&self, disk: DiskId) -> Option<FileStatus> {
        let entry = self.entry(FileKey::of(disk).inode)?;
        (entry.file.disk == disk).then(|| entry.status())
    }

    /// Returns whether somebody has a disk open, as far as this process has seen: after a take-over
    /// a file that nobody has read since may be open as well.
    pub fn is_open(&self, disk: DiskId) -> bool {
        let entry = self.entry(FileKey::of(disk).inode);
        entry.is_some_and(|entry| entry.file.disk == disk && entry.file.kernel.is_open())
    }

    fn insert(
        &self,
        name: &str,
        disk: DiskId,
        view: Arc<dyn BlockView>,
        is_listed: bool,
    ) -> Result<(), FuseError> {
        check_name(name)?;
        let inode = FileKey::of(disk).inode;
        let mut files = self.files.write();
        if is_listed && files.by_name.contains_key(name) {
            return Err(FuseError::Attached { what: name.to_owned() });
        }
        let kernel = match files.by_inode.get(&inode) {
            None if files.by_inode.len() >= FILES_MAX => {
                return Err(FuseError::TableFull(FILES_MAX));
            }
            None => Arc::default(),
            Some(entry) => kernel_use_of(entry, disk, view.size_bytes())?,
        };
        let file = Arc::new(File::new(name.to_owned(), disk, view, kernel));
        files.by_inode.insert(inode, Entry { file, is_listed });
        if is_listed {
            files.by_name.insert(name.to_owned(), inode);
        }
        drop(files);
        self.attached.notify_waiters();
        Ok(())
    }

    /// Has reads that wait for a file to be attached anew look again: what is behind it has changed.
    pub fn wake_waiting(&self) {
        self.attached.notify_waiters();
    }

    /// Ends when a file is attached.
    pub(crate) fn attached(&self) -> Notified<'_> {
        self.attached.notified()
    }

    /// Connects the table with the kernel, which may hold inodes from before.
    pub(crate) fn connect(&self, device: Arc<Device>, is_inherited: bool) {
        *self.kernel.write() = Kernel { device: Some(device), is_inherited };
    }

    /// Disconnects it when `device` is the one that it was connected with.
    pub(crate) fn disconnect(&self, device: &Arc<Device>) {
        let mut kernel = self.kernel.write();
        if kernel.device.as_ref().is_some_and(|current| Arc::ptr_eq(current, device)) {
            kernel.device = None;
        }
    }

    /// Finds a listed file by name and counts a lookup of it.
    pub(crate) fn look_up(&self, name: &[u8]) -> Option<Arc<File>> {
        let name = std::str::from_utf8(name).ok()?;
        let files = self.files.read();
        let file = &files.by_inode.get(files.by_name.get(name)?)?.file;
        file.kernel.lookups.add(1);
        Some(file.clone())
    }

    /// Finds a file that the kernel knows, withdrawn ones included.
    pub(crate) fn get(&self, inode: u64) -> Option<Arc<File>> {
        Some(self.files.read().by_inode.get(&inode)?.file.clone())
    }

    /// Finds a listed file and counts an open of it; withdrawn files cannot be opened anew.
    pub(crate) fn open(&self, inode: u64) -> Option<Arc<File>> {
        let files = self.files.read();
        let entry = files.by_inode.get(&inode).filter(|entry| entry.is_listed)?;
        // Counted under the lock: a detach either prevents the open or sees it.
        entry.file.kernel.opens.add(1);
        Some(entry.file.clone())
    }

    /// Counts a close, or an open that failed.
    pub(crate) fn release(&self, inode: u64, opener: Opener) {
        let Some(entry) = self.entry(inode) else { return };
        entry.file.closed(opener);
        let left = entry.file.kernel.opens.take(1);
        if left == 0 {
            entry.file.kernel.note_closed();
        }
        if left == 0 && !entry.is_listed && !self.kernel.read().is_inherited {
            self.retire(inode);
        }
    }

    /// Takes lookups back; the last one means that the kernel has dropped the inode.
    pub(crate) fn forget(&self, inode: u64, lookups: u64) {
        let Some(entry) = self.entry(inode) else { return };
        if entry.file.kernel.lookups.take(lookups) > 0 {
            return;
        }
        entry.file.kernel.note_closed();
        if !entry.is_listed {
            self.retire(inode);
        }
    }

    /// Returns up to `count` listed files with an inode number above `after`, in order.
    pub(crate) fn listed_after(&self, after: u64, count: usize) -> Vec<Arc<File>> {
        let files = self.files.read();
        files
            .by_inode
            .range((Bound::Excluded(after), Bound::Unbounded))
            .filter(|(_, entry)| entry.is_listed)
            .take(count)
            .map(|(_, entry)| entry.file.clone())
            .collect()
    }

    /// Number of listed files and the sum of their sizes, bytes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let files = self.files.read();
        let listed = files.by_inode.values().filter(|entry| entry.is_listed);
        listed
            .fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.file.view.size_bytes()))
    }

    fn entry(&self, inode: u64) -> Option<Entry> {
        self.files.read().by_inode.get(&inode).cloned()
    }

    /// Drops a withdrawn file unless the kernel may still have it open; returns whether it is gone.
    fn retire_unless_used(&self, inode: u64) -> bool {
        let (device, is_inherited) = {
            let kernel = self.kernel.read();
            (kernel.device.clone(), kernel.is_inherited)
        };
        let Some(entry) = self.entry(inode) else { return true };
        let used_by_count = entry.file.kernel.opens.get() > 0;
        let used = match device {
            None => used_by_count || is_inherited,
            Some(device) => {
                // A kernel without PRUNE keeps the name cached; then the count has to do.
                let _ = notify::prune(&device, inode);
                let known = notify::knows(&device, inode).unwrap_or(true);
                known && (used_by_count || is_inherited)
            }
        };
        if !used {
            // The FORGET that pruning brought about may have done so already.
            self.retire(inode);
        }
        !used
    }

    fn retire(&self, inode: u64) {
        let mut files = self.files.write();
        if files.by_inode.get(&inode).is_some_and(|entry| !entry.is_listed) {
            files.by_inode.remove(&inode);
        }
    }
}

impl std::fmt::Debug for FileTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileTable").field("files", &self.files.read().by_inode.len()).finish()
    }
}

/// Returns the kernel's use of the inode that `entry` has, when `disk` may take its place.
fn kernel_use_of(
    entry: &Entry,
    disk: DiskId,
    size_bytes: u64,
) -> Result<Arc<KernelUse>, FuseError> {
    let attached = entry.file.view.size_bytes();
    if entry.file.disk != disk {
        return Err(FuseError::InodeTaken { disk, other: entry.file.disk });
    }
    if entry.is_listed {
        return Err(FuseError::Attached { what: disk.to_string() });
    }
    if attached != size_bytes {
        return Err(FuseError::SizeChanged { disk, attached, offered: size_bytes });
    }
    Ok(entry.file.kernel.clone())
}

fn check_name(name: &str) -> Result<(), FuseError> {
    let is_reserved = matches!(name, "" | "." | "..");
    if is_reserved || name.len() > NAME_MAX || name.contains(['/', '\0']) {
        return Err(FuseError::Name { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
