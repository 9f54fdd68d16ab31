//! Files of ext2, ext3 and ext4, by the crate `ext4-view`, which applies the journal while it reads.

use std::io::{self, Read};

use ext4_view::{Ext4, Ext4Error, Ext4Read, FileType, Metadata, Path};

use crate::disk::{Disk, Part};
use crate::error::BrowseError;
use crate::names::escape;
use crate::tree::{DIRECTORY_MAX, Entry, EntryKind, FileTree};

/// Bytes of the target of a link, which is a path.
const LINK_LEN_MAX: u64 = 4096;

struct Source(Part);

impl Ext4Read for Source {
    fn read(
        &mut self,
        start_byte: u64,
        dst: &mut [u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        self.0.read_at(start_byte, dst).map_err(Into::into)
    }
}

/// Files of ext2, ext3 or ext4.
pub struct ExtTree(Ext4);

impl ExtTree {
    /// Opens a file system; a dirty journal is honoured, so a disk of a crash shows what a mount would.
    ///
    /// # Errors
    ///
    /// [`BrowseError::Unsupported`] for a feature that nothing here reads, [`BrowseError::Damaged`],
    /// [`BrowseError::Io`].
    pub fn open(part: Part) -> Result<Self, BrowseError> {
        Ext4::load(Box::new(Source(part))).map(Self).map_err(|error| of(&error, b"/"))
    }
}

/// Returns the error that one of the crate is, on a path.
fn of(error: &Ext4Error, path: &[u8]) -> BrowseError {
    let text = format!("{}: {error}", escape(path));
    match error {
        Ext4Error::NotFound => BrowseError::NotFound(text),
        Ext4Error::Io(_) => BrowseError::Io(io::Error::other(text)),
        Ext4Error::Incompatible(_) | Ext4Error::Encrypted => BrowseError::Unsupported(text),
        Ext4Error::Corrupt(_) => BrowseError::Damaged(text),
        Ext4Error::FileTooLarge => BrowseError::TooLarge(text),
        _ => BrowseError::Invalid(text),
    }
}

fn checked(path: &[u8]) -> Result<Path<'_>, BrowseError> {
    Path::try_from(path).map_err(|_| {
        BrowseError::Invalid(format!("{}: is no path: a part is too long, or NUL", escape(path)))
    })
}

fn kind(found: FileType) -> EntryKind {
    match found {
        FileType::Regular => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

impl ExtTree {
    fn described(
        &self,
        path: Path<'_>,
        name: Vec<u8>,
        found: &Metadata,
    ) -> Result<Entry, BrowseError> {
        let bytes: &[u8] = path.as_ref();
        let kind = kind(found.file_type());
        let target = match kind {
            EntryKind::Link if found.len() > LINK_LEN_MAX => {
                let text = format!("{}: is a link of {} bytes", escape(bytes), found.len());
                return Err(BrowseError::Damaged(text));
            }
            EntryKind::Link => {
                let target = self.0.read_link(path).map_err(|error| of(&error, bytes))?;
                Some(target.as_ref().to_vec())
            }
            _ => None,
        };
        let modified = found.modified();
        Ok(Entry {
            name,
            kind,
            size_bytes: found.len(),
            mode: u32::from(found.mode()) & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            modified_ns: i128::from(modified.seconds()) * 1_000_000_000
                + i128::from(modified.nanoseconds()),
            target,
        })
    }
}

impl FileTree for ExtTree {
    fn label(&self) -> String {
        self.0.label().display().to_string()
    }

    fn entry(&self, path: &[u8]) -> Result<Entry, BrowseError> {
        let checked = checked(path)?;
        let found = self.0.symlink_metadata(checked).map_err(|error| of(&error, path))?;
        let name = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
        self.described(checked, name.unwrap_or_default().to_vec(), &found)
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Entry>, BrowseError> {
        let found = self.0.read_dir(checked(path)?).map_err(|error| of(&error, path))?;
        let mut entries = Vec::new();
        for entry in found {
            let entry = entry.map_err(|error| of(&error, path))?;
            let name = entry.file_name().as_ref().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if entries.len() == DIRECTORY_MAX {
                return Err(BrowseError::TooLarge(format!(
                    "{}: has more than {DIRECTORY_MAX} files; ask for them by their paths",
                    escape(path)
                )));
            }
            let metadata = entry.metadata().map_err(|error| of(&error, path))?;
            entries.push(self.described(entry.path().as_path(), name, &metadata)?);
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn open(&self, path: &[u8], offset: u64) -> Result<Box<dyn Read + '_>, BrowseError> {
        let checked = checked(path)?;
        // Asked first, so that a link at the end of the path is not followed.
        let kind = self.entry(path)?.kind;
        if kind != EntryKind::File {
            let text = format!("{}: is no regular file but of kind {}", escape(path), kind.name());
            return Err(BrowseError::Invalid(text));
        }
        let mut file = self.0.open(checked).map_err(|error| of(&error, path))?;
        file.seek_to(offset).map_err(|error| of(&error, path))?;
        Ok(Box::new(Content { file, path: path.to_vec() }))
    }
}

struct Content {
    file: ext4_view::File,
    path: Vec<u8>,
}

impl Read for Content {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.file.read_bytes(out).map_err(|error| io::Error::other(of(&error, &self.path)))
    }
}
