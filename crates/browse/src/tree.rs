//! Files of a file system, whatever its kind.

use std::io::Read;

use crate::error::BrowseError;
use crate::names::escape;

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link: shown, never followed at the end of a path.
    Link,
    /// A device, a pipe or a socket: shown, without content.
    Special,
}

impl EntryKind {
    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Link => "link",
            Self::Special => "special",
        }
    }
}

/// A file, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name in its directory, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// Kind.
    pub kind: EntryKind,
    /// Length of the content, bytes.
    pub size_bytes: u64,
    /// Permission bits, set-user-id, set-group-id and sticky bit.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the content, nanoseconds since 1970.
    pub modified_ns: i128,
    /// Target of a link.
    pub target: Option<Vec<u8>>,
}

/// Files of a file system. Paths are absolute, their parts divided by `/`; links within one are followed.
pub trait FileTree {
    /// Returns the name that its owner gave to the file system; empty: none.
    fn label(&self) -> String;

    /// Returns one file; of a link the link.
    ///
    /// # Errors
    ///
    /// [`BrowseError::NotFound`], or that of a disk that contradicts itself.
    fn entry(&self, path: &[u8]) -> Result<Entry, BrowseError>;

    /// Returns what is in a directory, by names ascending, without `.` and `..`.
    ///
    /// # Errors
    ///
    /// As [`Self::entry`]; [`BrowseError::Invalid`] for what is no directory, [`BrowseError::TooLarge`] where it has more
    /// than [`DIRECTORY_MAX`].
    fn list(&self, path: &[u8]) -> Result<Vec<Entry>, BrowseError>;

    /// Returns the content of a regular file, from `offset` on.
    ///
    /// # Errors
    ///
    /// As [`Self::entry`]; [`BrowseError::Invalid`] for what is no regular file.
    fn open(&self, path: &[u8], offset: u64) -> Result<Box<dyn Read + '_>, BrowseError>;
}

/// Files of one directory that are listed.
pub(crate) const DIRECTORY_MAX: usize = 1 << 17;

/// Returns what is in a directory that is one itself, not by a link at the end of its path.
///
/// # Errors
///
/// Those of [`FileTree::list`]; [`BrowseError::Damaged`] where a name is there twice.
pub(crate) fn list(tree: &dyn FileTree, path: &[u8]) -> Result<Vec<Entry>, BrowseError> {
    let found = tree.entry(path)?.kind;
    if found != EntryKind::Directory {
        let text = format!("{}: is no directory but of kind {}", escape(path), found.name());
        return Err(BrowseError::Invalid(text));
    }
    let entries = tree.list(path)?;
    if let Some([one, _]) = entries.array_windows().find(|[one, other]| one.name == other.name) {
        let text = format!("{}: has {} twice", escape(path), escape(&one.name));
        return Err(BrowseError::Damaged(text));
    }
    Ok(entries)
}

/// Returns the path of a file in a directory.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
