//! Answers to requests: one at a time, on one socket, until the other end closes it.

use std::cell::RefCell;
use std::io::{self, BufWriter, Read, Write};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveLimits, write_archive};
use crate::buffered::Buffered;
use crate::disk::Disk;
use crate::error::BrowseError;
use crate::extfs::ExtTree;
use crate::names::{escape, unescape};
use crate::partitions::{Partition, WHOLE, partitions};
use crate::signatures::{FileSystem, file_system};
use crate::tree::{Entry, EntryKind, FileTree, join, list};
use crate::wire::{Channel, PROTOCOL_VERSION, RemoteDisk, kind};

/// Bytes of a file that go in one frame.
const BLOCK_LEN: usize = 256 << 10;
/// Bytes after which a frame of entries ends: with the longest entry it is a frame yet.
const ITEMS_LEN: usize = 256 << 10;
/// Files that a walk tells of.
const WALK_MAX: u64 = 4 << 20;
/// Directories within one another that a walk goes down.
const DEPTH_MAX: usize = 256;

/// A question about the disk.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Question {
    /// Partitions, with what each has.
    Partitions,
    /// One file, without its content.
    Entry { partition: u32, path: String },
    /// Files of a directory.
    List { partition: u32, path: String },
    /// Bytes of a file.
    Read { partition: u32, path: String, offset: u64, length: u64 },
    /// A directory as a tar archive.
    Archive { partition: u32, path: String, entries_max: u64, bytes_max: u64, depth_max: usize },
    /// Everything below a directory, in an order in which two disks can be compared.
    Walk { partition: u32, path: String },
}

/// End of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Requests that were answered, with an error or without.
    pub requests: u64,
}

#[derive(Serialize)]
struct PartitionItem {
    number: u32,
    start: u64,
    size_bytes: u64,
    name: String,
    file_system: &'static str,
    label: String,
    is_readable: bool,
    reason: Option<String>,
}

#[derive(Serialize)]
struct EntryItem {
    name: String,
    kind: &'static str,
    size_bytes: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    modified_ns: String,
    target: Option<String>,
}

impl EntryItem {
    /// Returns the item of an entry, with a path in place of its name.
    fn new(entry: &Entry, path: &[u8]) -> Self {
        Self {
            name: escape(path),
            kind: entry.kind.name(),
            size_bytes: entry.size_bytes,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            modified_ns: entry.modified_ns.to_string(),
            target: entry.target.as_deref().map(escape),
        }
    }
}

/// Serves requests on a disk of `size_bytes`, whose bytes the other end has.
///
/// # Errors
///
/// What the socket comes to; an error of a request is its answer.
pub fn serve<S: Read + Write + 'static>(stream: S, size_bytes: u64) -> io::Result<Answered> {
    let channel = Rc::new(RefCell::new(Channel::new(stream)));
    let remote = RemoteDisk::new(Rc::clone(&channel), size_bytes);
    let disk: Rc<dyn Disk> = Rc::new(Buffered::new(remote));
    let hello = serde_json::json!({ "version": PROTOCOL_VERSION, "size_bytes": size_bytes });
    channel.borrow_mut().send(kind::HELLO, hello.to_string().as_bytes())?;
    let mut session = Session { disk, out: Answer(channel), tree: None };
    let mut answered = Answered { requests: 0 };
    loop {
        let received = session.out.0.borrow_mut().receive()?;
        let Some((frame, content)) = received else { return Ok(answered) };
        session.answer(frame, &content)?;
        answered.requests += 1;
    }
}

struct Session<S> {
    disk: Rc<dyn Disk>,
    out: Answer<S>,
    /// File system that was opened last, by its partition: most requests are about one.
    tree: Option<(u32, Rc<dyn FileTree>)>,
}

impl<S: Read + Write> Session<S> {
    fn answer(&mut self, frame: u8, content: &[u8]) -> io::Result<()> {
        let result = match (frame, serde_json::from_slice::<Question>(content)) {
            (kind::QUESTION, Ok(question)) => self.carry_out(question),
            (kind::QUESTION, Err(error)) => {
                Err(BrowseError::Invalid(format!("no question: {error}")))
            }
            _ => Err(BrowseError::Invalid(format!("a frame {frame} is no question"))),
        };
        let mut channel = self.out.0.borrow_mut();
        match result {
            Ok(()) => channel.send(kind::END, &[]),
            Err(error) => {
                let item =
                    serde_json::json!({ "kind": error.kind(), "message": error.to_string() });
                channel.send(kind::ERROR, item.to_string().as_bytes())
            }
        }
    }

    fn carry_out(&mut self, question: Question) -> Result<(), BrowseError> {
        match question {
            Question::Partitions => self.partitions(),
            Question::Entry { partition, path } => {
                let path = unescape(&path)?;
                let entry = self.tree(partition)?.entry(&path)?;
                self.out.items([EntryItem::new(&entry, &entry.name)])
            }
            Question::List { partition, path } => {
                let entries = list(self.tree(partition)?.as_ref(), &unescape(&path)?)?;
                self.out.items(entries.iter().map(|entry| EntryItem::new(entry, &entry.name)))
            }
            Question::Read { partition, path, offset, length } => {
                let tree = self.tree(partition)?;
                let mut content = tree.open(&unescape(&path)?, offset)?.take(length);
                io::copy(&mut content, &mut BufWriter::with_capacity(BLOCK_LEN, &mut self.out))?;
                Ok(())
            }
            Question::Archive { partition, path, entries_max, bytes_max, depth_max } => {
                let tree = self.tree(partition)?;
                let limits = ArchiveLimits { entries_max, bytes_max, depth_max };
                let out = BufWriter::with_capacity(BLOCK_LEN, self.out.clone());
                write_archive(tree.as_ref(), &unescape(&path)?, limits, out)
            }
            Question::Walk { partition, path } => self.walk(partition, &unescape(&path)?),
        }
    }

    fn partitions(&mut self) -> Result<(), BrowseError> {
        let found = partitions(&self.disk)?;
        for one in &found {
            let kind = file_system(&one.open(&self.disk))?;
            let opened = self.open(one);
            let item = PartitionItem {
                number: one.number,
                start: one.start,
                size_bytes: one.size_bytes,
                name: escape(one.name.as_bytes()),
                file_system: kind.name(),
                label: opened
                    .as_ref()
                    .map(|tree| escape(tree.label().as_bytes()))
                    .unwrap_or_default(),
                is_readable: opened.is_ok(),
                reason: opened.err().map(|error| error.to_string()),
            };
            self.out.items([item])?;
        }
        Ok(())
    }

    fn tree(&mut self, number: u32) -> Result<Rc<dyn FileTree>, BrowseError> {
        if let Some((opened, tree)) = &self.tree
            && *opened == number
        {
            return Ok(Rc::clone(tree));
        }
        let found = partitions(&self.disk)?.into_iter().find(|one| one.number == number);
        let Some(partition) = found else {
            return Err(BrowseError::NotFound(format!("the disk has no partition {number}")));
        };
        let tree = self.open(&partition)?;
        self.tree = Some((number, Rc::clone(&tree)));
        Ok(tree)
    }

    fn open(&self, partition: &Partition) -> Result<Rc<dyn FileTree>, BrowseError> {
        let part = partition.open(&self.disk);
        match file_system(&part)? {
            FileSystem::Ext => Ok(Rc::new(ExtTree::open(part)?)),
            other => Err(unreadable(partition.number, other)),
        }
    }

    /// Sends what is below a directory: what a directory has, by names, before what lies below each of these.
    fn walk(&mut self, partition: u32, path: &[u8]) -> Result<(), BrowseError> {
        let tree = self.tree(partition)?;
        let mut waiting = vec![(path.to_vec(), 0)];
        let mut told = 0;
        while let Some((directory, depth)) = waiting.pop() {
            let entries = list(tree.as_ref(), &directory)?;
            told += entries.len() as u64;
            let below = entries.iter().filter(|entry| entry.kind == EntryKind::Directory);
            if told > WALK_MAX || (depth == DEPTH_MAX && below.clone().next().is_some()) {
                return Err(BrowseError::TooLarge(format!(
                    "{}: is below more than {DEPTH_MAX} directories, or behind {WALK_MAX} files; \
                     begin further down",
                    escape(&directory)
                )));
            }
            self.out.items(
                entries.iter().map(|entry| EntryItem::new(entry, &join(&directory, &entry.name))),
            )?;
            waiting.extend(below.rev().map(|entry| (join(&directory, &entry.name), depth + 1)));
        }
        Ok(())
    }
}

fn unreadable(number: u32, found: FileSystem) -> BrowseError {
    let place = if number == WHOLE { "the disk".to_owned() } else { format!("partition {number}") };
    let text = match found {
        FileSystem::Unknown => format!("{place} has no file system that is known"),
        _ => format!("{place} has {}, whose files are not shown", found.name()),
    };
    BrowseError::Unsupported(text)
}

/// The answer that is under way.
struct Answer<S>(Rc<RefCell<Channel<S>>>);

impl<S> Clone for Answer<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: Read + Write> Answer<S> {
    fn items(&self, items: impl IntoIterator<Item = impl Serialize>) -> Result<(), BrowseError> {
        let mut frame = Vec::new();
        for item in items {
            frame.push(if frame.is_empty() { b'[' } else { b',' });
            serde_json::to_writer(&mut frame, &item).map_err(io::Error::other)?;
            if frame.len() >= ITEMS_LEN {
                self.send_items(&mut frame)?;
            }
        }
        if frame.is_empty() { Ok(()) } else { self.send_items(&mut frame) }
    }

    fn send_items(&self, frame: &mut Vec<u8>) -> Result<(), BrowseError> {
        frame.push(b']');
        self.0.borrow_mut().send(kind::ITEM, frame)?;
        frame.clear();
        Ok(())
    }
}

impl<S: Read + Write> Write for Answer<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(BLOCK_LEN);
        self.0.borrow_mut().send(kind::BYTES, &bytes[..len])?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
