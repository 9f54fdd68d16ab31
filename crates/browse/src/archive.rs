//! A directory with everything below it, as a tar archive.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use tar::{Builder, EntryType, Header};

use crate::error::BrowseError;
use crate::names::escape;
use crate::tree::{Entry, EntryKind, FileTree, join, list};

/// Bounds of an archive: what a disk says of itself may have no end.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveLimits {
    /// Files, directories and links.
    pub entries_max: u64,
    /// Bytes of content.
    pub bytes_max: u64,
    /// Directories within one another.
    pub depth_max: usize,
}

/// Bytes of a name in a header.
const NAME_LEN: usize = 100;
/// Name of an entry whose content is a longer name (GNU tar manual, "Basic Tar Format").
const LONG_NAME: &[u8] = b"././@LongLink";

/// A name that an entry has.
#[derive(Clone, Copy)]
enum NameKind {
    Path,
    Target,
}

impl NameKind {
    /// Place of it in a header.
    const fn offset(self) -> usize {
        match self {
            Self::Path => 0,
            Self::Target => 157,
        }
    }

    /// Type of the entry that has a longer one.
    const fn long(self) -> EntryType {
        match self {
            Self::Path => EntryType::GNULongName,
            Self::Target => EntryType::GNULongLink,
        }
    }
}

struct Writer<'a, W: Write> {
    tree: &'a dyn FileTree,
    archive: Builder<W>,
    limits: ArchiveLimits,
    entries: u64,
    bytes: u64,
}

/// Writes an archive; its names begin with that of the directory. Devices, pipes and sockets are left out.
///
/// # Errors
///
/// [`BrowseError::TooLarge`] at the first bound; as reading the files does. What was written by then is no archive:
/// the two blocks that end one are missing.
pub fn write_archive<W: Write>(
    tree: &dyn FileTree,
    path: &[u8],
    limits: ArchiveLimits,
    out: W,
) -> Result<(), BrowseError> {
    let is_broken = Rc::new(Cell::new(false));
    let archive = Builder::new(Unbroken { out, is_broken: Rc::clone(&is_broken) });
    let mut writer = Writer { tree, archive, limits, entries: 0, bytes: 0 };
    if let Err(error) = writer.add_all(path) {
        // A builder that is dropped ends its archive.
        is_broken.set(true);
        return Err(error);
    }
    writer.archive.into_inner()?.flush()?;
    Ok(())
}

/// Destination of an archive, until that is given up.
struct Unbroken<W> {
    out: W,
    is_broken: Rc<Cell<bool>>,
}

impl<W: Write> Write for Unbroken<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_broken.get() { Ok(bytes.len()) } else { self.out.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Writer<'_, W> {
    fn add_all(&mut self, path: &[u8]) -> Result<(), BrowseError> {
        let top = self.tree.entry(path)?;
        let prefix = if top.name.is_empty() { b"root".to_vec() } else { top.name.clone() };
        self.add(&top, path, &prefix)?;
        if top.kind == EntryKind::Directory {
            self.add_below(path, &prefix)?;
        }
        Ok(())
    }

    /// Adds everything below a directory, depth first, with a list of what is left in place of recursion.
    fn add_below(&mut self, path: &[u8], prefix: &[u8]) -> Result<(), BrowseError> {
        let mut open = vec![(path.to_vec(), prefix.to_vec(), list(self.tree, path)?.into_iter())];
        while let Some((path, prefix, left)) = open.last_mut() {
            let Some(entry) = left.next() else {
                open.pop();
                continue;
            };
            let (path, name) = (join(path, &entry.name), join(prefix, &entry.name));
            self.add(&entry, &path, &name)?;
            if entry.kind == EntryKind::Directory {
                if open.len() >= self.limits.depth_max {
                    return Err(self.too_large("directories within one another", &path));
                }
                let below = list(self.tree, &path)?.into_iter();
                open.push((path, name, below));
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: &Entry, path: &[u8], name: &[u8]) -> Result<(), BrowseError> {
        if entry.kind == EntryKind::Special {
            return Ok(());
        }
        self.entries += 1;
        if self.entries > self.limits.entries_max {
            return Err(self.too_large("files", path));
        }
        let mut header = header(entry);
        self.name(&mut header, NameKind::Path, name)?;
        match entry.kind {
            EntryKind::File => {
                self.bytes = self.bytes.saturating_add(entry.size_bytes);
                if self.bytes > self.limits.bytes_max {
                    return Err(self.too_large("bytes", path));
                }
                header.set_size(entry.size_bytes);
                header.set_cksum();
                let content = Exactly { file: self.tree.open(path, 0)?, left: entry.size_bytes };
                self.archive.append(&header, content)?;
            }
            kind => {
                if kind == EntryKind::Link {
                    let target = entry.target.as_deref().unwrap_or_default();
                    self.name(&mut header, NameKind::Target, target)?;
                }
                header.set_cksum();
                self.archive.append(&header, io::empty())?;
            }
        }
        Ok(())
    }

    /// Puts a name into a header, byte by byte; one that is too long goes before it, as GNU tar has it.
    fn name(
        &mut self,
        header: &mut Header,
        kind: NameKind,
        name: &[u8],
    ) -> Result<(), BrowseError> {
        let place = &mut header.as_mut_bytes()[kind.offset()..][..NAME_LEN];
        let len = name.len().min(NAME_LEN);
        place[..len].copy_from_slice(&name[..len]);
        if name.len() <= NAME_LEN {
            return Ok(());
        }
        let mut long = Header::new_gnu();
        long.as_mut_bytes()[..LONG_NAME.len()].copy_from_slice(LONG_NAME);
        long.set_entry_type(kind.long());
        long.set_mode(0o644);
        long.set_size(name.len() as u64 + 1);
        long.set_cksum();
        self.archive.append(&long, name.chain(&b"\0"[..]))?;
        Ok(())
    }

    fn too_large(&self, what: &str, path: &[u8]) -> BrowseError {
        let ArchiveLimits { entries_max, bytes_max, depth_max } = self.limits;
        BrowseError::TooLarge(format!(
            "{}: an archive has no more {what} (at most {entries_max} files, {bytes_max} bytes, {depth_max} levels); \
             ask for a smaller directory",
            escape(path)
        ))
    }
}

fn header(entry: &Entry) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(match entry.kind {
        EntryKind::Directory => EntryType::Directory,
        EntryKind::Link => EntryType::Symlink,
        _ => EntryType::Regular,
    });
    header.set_mode(entry.mode);
    header.set_uid(u64::from(entry.uid));
    header.set_gid(u64::from(entry.gid));
    // A time before 1970 has no place in a header.
    header.set_mtime(u64::try_from(entry.modified_ns / 1_000_000_000).unwrap_or(0));
    header.set_size(0);
    header
}

/// The content of a file as long as its entry says; another length would shift all that follows in the archive.
struct Exactly<R> {
    file: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if len == 0 {
            return Ok(0);
        }
        let count = self.file.read(&mut out[..len])?;
        if count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a file ends before its length",
            ));
        }
        self.left -= count as u64;
        Ok(count)
    }
}
