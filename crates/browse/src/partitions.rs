//! Partitions of a disk.

use std::rc::Rc;

use crate::disk::{Disk, Part};
use crate::error::BrowseError;
use crate::signatures::{FileSystem, file_system};
use crate::{gpt, mbr};

/// Number of the partition that is the whole disk: one without a table.
pub(crate) const WHOLE: u32 = 0;

/// A partition, as its table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number, as Linux counts; 0: the whole disk.
    pub number: u32,
    /// First byte.
    pub start: u64,
    /// Length, bytes; more than is on the disk where the table lies.
    pub size_bytes: u64,
    /// Name in the table; empty: it has none.
    pub name: String,
}

impl Partition {
    /// Returns its bytes.
    #[must_use]
    pub fn open(&self, disk: &Rc<dyn Disk>) -> Part {
        Part::new(Rc::clone(disk), self.start, self.size_bytes)
    }
}

/// Returns the partitions of a disk: one, the whole, where it has no table.
///
/// # Errors
///
/// [`BrowseError::Damaged`] when there is a table that cannot be read, [`BrowseError::Io`] when bytes cannot be had.
pub fn partitions(disk: &Rc<dyn Disk>) -> Result<Vec<Partition>, BrowseError> {
    let size_bytes = disk.size_bytes();
    let whole = Partition { number: WHOLE, start: 0, size_bytes, name: String::new() };
    // As Linux does, a GPT counts where an MBR protects it: else it is what was left at the end of the disk.
    if mbr::protects_gpt(disk.as_ref())?
        && let Some(found) = gpt::read(disk.as_ref())?
    {
        return Ok(found);
    }
    // A boot sector of these ends as a table does. Other signatures lie behind it, where an older use of the disk
    // may have left them.
    let first = file_system(disk.as_ref())?;
    if matches!(first, FileSystem::Fat | FileSystem::ExFat | FileSystem::Ntfs) {
        return Ok(vec![whole]);
    }
    Ok(mbr::read(disk.as_ref())?.unwrap_or_else(|| vec![whole]))
}
