//! Building a manifest, chunk by chunk, in the order of the disk.

use std::io::{Read, Seek, Write};
use std::ops::Range;

use acstor_types::{ChunkSize, Digest, DiskId, ErrorKind, StoredChunk};

use crate::format::entry::Entry;
use crate::format::header::{Fields, Header, Salt};
use crate::format::index::build_index;
use crate::format::layout::{SPAN_CHUNKS, first_of, split};
use crate::format::summary::Pack;
use crate::read::content_name::ContentName;
use crate::write::built::Built;
use crate::write::entry_spool::EntrySpool;
use crate::write::pack_table::PackTable;
use crate::write::span_list::SpanList;
use crate::{ManifestError, PAGE_LEN, limits};

/// Reason why a manifest was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The spool failed.
    #[error("spool of a manifest: {0}")]
    Spool(#[from] std::io::Error),
    /// The chunks that were added do not fit a manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A chunk that is before the last one, or past the end of the disk.
    #[error("chunk {0} is out of order, or past the end of the disk")]
    Order(u64),
}

impl BuildError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            BuildError::Spool(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                ErrorKind::Exhausted
            }
            BuildError::Spool(_) => ErrorKind::Unavailable,
            BuildError::Manifest(error) => error.kind(),
            BuildError::Order(_) => ErrorKind::Invalid,
        }
    }
}

/// The manifest that a delta is against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its name.
    pub name: Digest,
    /// Its depth.
    pub depth: u8,
}

impl Base {
    /// The manifest of a header.
    pub fn of(header: &Header) -> Base {
        Base { name: header.name(), depth: header.depth() }
    }
}

/// Properties of a manifest that is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The disk whose state it is.
    pub disk_id: DiskId,
    /// Size of the disk, bytes.
    pub size_bytes: u64,
    /// Size of every chunk.
    pub chunk_size: ChunkSize,
    /// Random bytes, which make manifests of equal entries differ.
    pub salt: Salt,
    /// Manifest that says what this one does not; `None`: this one is whole.
    pub base: Option<Base>,
}

/// Builds one manifest.
///
/// Entries go to a spool as they come. What stays in memory is 32 bytes a page of entries, at most
/// 2 KiB a span that needs a map, and for each pack its record and the runs of bytes that are used
/// of it: one where chunks come in the order in which they are stored. Packs are numbered in the
/// order in which they are added, so equal calls give equal bytes.
#[derive(Debug)]
pub struct Builder<W> {
    disk: Disk,
    depth: u8,
    chunk_count: u64,
    /// Smallest index that may come.
    next: u64,
    packs: PackTable,
    spans: SpanList,
    entries: EntrySpool<W>,
    content: Option<ContentName>,
}

impl<W: Read + Write + Seek> Builder<W> {
    /// Starts a manifest, whose entries are written to `spool` from where it is.
    ///
    /// # Errors
    /// [`BuildError`] when the disk is larger than a manifest describes or the base too deep, and
    /// when the spool cannot be used.
    pub fn new(disk: Disk, spool: W) -> Result<Builder<W>, BuildError> {
        if disk.size_bytes > limits::DISK_SIZE_MAX {
            return Err(ManifestError::Range("disk size").into());
        }
        let chunk_count = disk.chunk_size.count_for(disk.size_bytes);
        if chunk_count > limits::CHUNKS_MAX {
            return Err(ManifestError::Range("disk size for this size of chunk").into());
        }
        let depth = disk.base.map_or(0, |base| base.depth).saturating_add(1);
        if depth > limits::DEPTH_MAX {
            return Err(ManifestError::Range("depth").into());
        }
        let content = || ContentName::new(disk.size_bytes, disk.chunk_size);
        Ok(Builder {
            depth,
            chunk_count,
            next: 0,
            packs: PackTable::default(),
            spans: SpanList::new(chunk_count),
            entries: EntrySpool::new(spool)?,
            content: disk.base.is_none().then(content),
            disk,
        })
    }

    /// Returns the number of a pack; a pack that is added is used by a chunk that follows.
    ///
    /// # Errors
    /// [`BuildError`] when there are too many, or it had other bytes or another class before.
    pub fn add_pack(&mut self, pack: Pack) -> Result<u32, BuildError> {
        Ok(self.packs.add(pack)?)
    }

    /// Adds a chunk with content, of the pack of number `pack`.
    ///
    /// # Errors
    /// [`BuildError`] when it is out of order, when no chunk can be stored like that, and when the
    /// spool fails.
    pub fn push(&mut self, index: u64, pack: u32, chunk: StoredChunk) -> Result<(), BuildError> {
        self.take(index..index.saturating_add(1))?;
        let entry = Entry { pack, chunk };
        let (start, end) = entry.check(self.packs.len(), self.disk.chunk_size.as_u32())?;
        let (span, place) = split(index);
        self.packs.use_bytes(pack, start, end);
        self.spans.add_data(span, place);
        if let Some(content) = &mut self.content {
            content.push(index, &chunk.digest);
        }
        Ok(self.entries.push(entry)?)
    }

    /// Adds chunks of a delta that are zero, whatever the base has.
    ///
    /// They need not be said where the base has no data; a whole span costs least.
    ///
    /// # Errors
    /// [`BuildError`] when they are out of order, or the manifest is no delta.
    pub fn push_zeros(&mut self, chunks: Range<u64>) -> Result<(), BuildError> {
        if chunks.is_empty() {
            return Ok(());
        }
        if self.disk.base.is_none() {
            return Err(ManifestError::Range("zeros in a whole manifest").into());
        }
        self.take(chunks.clone())?;
        let mut at = chunks.start;
        while at < chunks.end {
            let (span, start) = split(at);
            let end = (chunks.end - first_of(span)).min(SPAN_CHUNKS.into());
            self.spans.add_zeros(span, start, end as u32);
            at = first_of(span) + end;
        }
        Ok(())
    }

    fn take(&mut self, chunks: Range<u64>) -> Result<(), BuildError> {
        if chunks.start < self.next || chunks.end > self.chunk_count {
            return Err(BuildError::Order(chunks.start));
        }
        self.next = chunks.end;
        Ok(())
    }

    /// Number of chunks with content so far.
    pub fn data_chunks(&self) -> u32 {
        self.entries.entries()
    }

    /// Ends the manifest.
    ///
    /// # Errors
    /// [`BuildError`] when the spool fails, when a pack that was added is used by no chunk or by
    /// more bytes than it holds.
    pub fn finish(self) -> Result<Built<W>, BuildError> {
        let summary = self.packs.finish()?;
        let spans = self.spans.finish();
        let entries = self.entries.finish()?;
        let (directories, directory_fields) = spans.directories();
        let mut leaves: Vec<Digest> =
            summary.bytes.chunks_exact(PAGE_LEN).map(Digest::of).collect();
        leaves.extend(directories.chunks_exact(PAGE_LEN).map(Digest::of));
        leaves.extend(spans.map_pages().map(|page| Digest::of(&page)));
        leaves.extend_from_slice(&entries.digests);
        let page_count = leaves.len();
        let (index, top_digest) = build_index(leaves);
        let fields = Fields {
            disk_id: self.disk.disk_id,
            size_bytes: self.disk.size_bytes,
            chunk_size: self.disk.chunk_size.as_u32(),
            depth: self.depth.into(),
            salt: self.disk.salt,
            base: self.disk.base.map(|base| base.name),
            content_name: self.content.map(ContentName::finish),
            summary_digest: (summary.packs > 0).then(|| Digest::of(&summary.bytes)),
            top_digest,
            data_chunks: entries.entries,
            packs: summary.packs,
            runs: summary.runs,
            maps: spans.map_count(),
            directories: directory_fields,
        };
        let page = fields.encode();
        let len = PAGE_LEN as u64 * (1 + page_count as u64) + index.len() as u64;
        let header = Header::parse(&page[..], len)?;
        Ok(Built { header, page, summary: summary.bytes, index, directories, spans, entries })
    }
}
