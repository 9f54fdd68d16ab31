//! The header page: properties of the disk, sizes of all sections, the root of the page index.

use std::ops::Range;

use acstor_types::bytes_le::{array_at, u32_at, u64_at};
use acstor_types::{ChunkSize, Digest, DiskId};

use crate::format::index::{IndexShape, Parent};
use crate::format::layout::{
    self, Counts, DIRECTORIES_AT, DIRECTORIES_MAX, DIRECTORY_SLOTS, HAS_DIRECTORY, MAGIC, RESERVED,
    SPAN_CHUNKS, Sections,
};
use crate::{ManifestError, PAGE_LEN, PageBytes, limits};

/// Version of the format that this crate reads and writes.
pub const MANIFEST_VERSION: u32 = 2;

/// Features that a reader must know; this release knows none.
pub const KNOWN_FEATURES: u32 = 0;

/// Random bytes that keep two manifests of equal content from having equal names.
pub type Salt = [u8; 16];

const NO_DIGEST: Digest = Digest::from_bytes([0; Digest::LEN]);

/// Chunks that one directory page describes.
const DIRECTORY_CHUNKS: u64 = SPAN_CHUNKS as u64 * DIRECTORY_SLOTS as u64;

/// The header of a manifest, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    name: Digest,
    disk_id: DiskId,
    size_bytes: u64,
    chunk_size: ChunkSize,
    depth: u8,
    base: Option<Digest>,
    salt: Salt,
    content_name: Option<Digest>,
    summary_digest: Digest,
    top_digest: Digest,
    counts: Counts,
    sections: Sections,
    index: IndexShape,
    directories: Box<[Option<DirectoryRef>]>,
}

/// Directory page, as the header names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryRef {
    /// Number of the page in the file.
    pub(crate) page: u32,
    /// Ordinals of the data chunks that it describes.
    pub(crate) ordinals: Range<u32>,
}

/// Fields of a header as they are stored.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    pub(crate) disk_id: DiskId,
    pub(crate) size_bytes: u64,
    pub(crate) chunk_size: u32,
    pub(crate) depth: u32,
    pub(crate) salt: Salt,
    pub(crate) base: Option<Digest>,
    pub(crate) content_name: Option<Digest>,
    pub(crate) summary_digest: Option<Digest>,
    pub(crate) top_digest: Option<Digest>,
    pub(crate) data_chunks: u32,
    pub(crate) packs: u32,
    pub(crate) runs: u32,
    pub(crate) maps: u32,
    /// For each 2^22 chunks: a flag for their page, and the ordinal of the first data chunk
    /// there.
    pub(crate) directories: [u32; DIRECTORIES_MAX],
}

fn require(condition: bool, what: &'static str) -> Result<(), ManifestError> {
    if condition { Ok(()) } else { Err(ManifestError::Range(what)) }
}

impl Fields {
    fn read(page: &PageBytes) -> Fields {
        let bytes = &page[..];
        let digest = |offset| {
            let digest = Digest::from_bytes(array_at(bytes, offset));
            (digest != NO_DIGEST).then_some(digest)
        };
        let mut directories = [0; DIRECTORIES_MAX];
        for (number, field) in directories.iter_mut().enumerate() {
            *field = u32_at(bytes, DIRECTORIES_AT + 4 * number);
        }
        Fields {
            disk_id: DiskId::from_bytes(array_at(bytes, layout::DISK_ID_AT)),
            size_bytes: u64_at(bytes, layout::SIZE_AT),
            chunk_size: u32_at(bytes, layout::CHUNK_SIZE_AT),
            depth: u32_at(bytes, layout::DEPTH_AT),
            salt: array_at(bytes, layout::SALT_AT),
            base: digest(layout::BASE_AT),
            content_name: digest(layout::CONTENT_NAME_AT),
            summary_digest: digest(layout::SUMMARY_DIGEST_AT),
            top_digest: digest(layout::TOP_DIGEST_AT),
            data_chunks: u32_at(bytes, layout::DATA_CHUNKS_AT),
            packs: u32_at(bytes, layout::PACKS_AT),
            runs: u32_at(bytes, layout::RUNS_AT),
            maps: u32_at(bytes, layout::MAPS_AT),
            directories,
        }
    }

    /// Returns the header page.
    pub(crate) fn encode(&self) -> Box<PageBytes> {
        let mut page = Box::new([0; PAGE_LEN]);
        let mut put = |offset: usize, bytes: &[u8]| {
            page[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        let digest = |digest: &Option<Digest>| *digest.unwrap_or(NO_DIGEST).as_bytes();
        put(0, MAGIC);
        put(layout::VERSION_AT, &MANIFEST_VERSION.to_le_bytes());
        put(layout::FEATURES_AT, &KNOWN_FEATURES.to_le_bytes());
        put(layout::DISK_ID_AT, self.disk_id.as_bytes());
        put(layout::SIZE_AT, &self.size_bytes.to_le_bytes());
        put(layout::CHUNK_SIZE_AT, &self.chunk_size.to_le_bytes());
        put(layout::DEPTH_AT, &self.depth.to_le_bytes());
        put(layout::SALT_AT, &self.salt);
        put(layout::BASE_AT, &digest(&self.base));
        put(layout::CONTENT_NAME_AT, &digest(&self.content_name));
        put(layout::SUMMARY_DIGEST_AT, &digest(&self.summary_digest));
        put(layout::TOP_DIGEST_AT, &digest(&self.top_digest));
        put(layout::DATA_CHUNKS_AT, &self.data_chunks.to_le_bytes());
        put(layout::PACKS_AT, &self.packs.to_le_bytes());
        put(layout::RUNS_AT, &self.runs.to_le_bytes());
        put(layout::MAPS_AT, &self.maps.to_le_bytes());
        for (number, field) in self.directories.iter().enumerate() {
            put(DIRECTORIES_AT + 4 * number, &field.to_le_bytes());
        }
        let crc = crc32fast::hash(&page[..layout::CRC_AT]);
        page[layout::CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Checks what is said of the disk; returns size and number of its chunks.
    fn check_disk(&self) -> Result<(ChunkSize, u64), ManifestError> {
        let chunk_size =
            ChunkSize::new(self.chunk_size).ok_or(ManifestError::Range("chunk size"))?;
        require(self.size_bytes <= limits::DISK_SIZE_MAX, "disk size")?;
        let chunk_count = chunk_size.count_for(self.size_bytes);
        require(chunk_count <= limits::CHUNKS_MAX, "disk size for this size of chunk")?;
        Ok((chunk_size, chunk_count))
    }

    /// Checks what is said of the base; returns the depth.
    fn check_depth(&self) -> Result<u8, ManifestError> {
        let depth = u8::try_from(self.depth).unwrap_or(u8::MAX);
        require((1..=limits::DEPTH_MAX).contains(&depth), "depth")?;
        require(self.base.is_some() == (depth > 1), "base for this depth")?;
        require(self.content_name.is_some() == (depth == 1), "content name for this depth")?;
        Ok(depth)
    }

    fn check_counts(&self, chunk_count: u64) -> Result<Counts, ManifestError> {
        require(u64::from(self.data_chunks) <= chunk_count, "number of data chunks")?;
        require(self.packs <= limits::PACKS_MAX.min(self.data_chunks), "number of packs")?;
        require((self.packs == 0) == (self.data_chunks == 0), "packs for this many data chunks")?;
        require(self.runs <= self.data_chunks, "number of runs")?;
        let spans = chunk_count.div_ceil(u64::from(SPAN_CHUNKS));
        require(u64::from(self.maps) <= spans.min(limits::MAPS_MAX.into()), "number of maps")?;
        let directories = self.directories.iter().filter(|field| **field != 0).count() as u32;
        require(directories > 0 || (self.data_chunks == 0 && self.maps == 0), "no directories")?;
        let Fields { data_chunks, packs, runs, maps, .. } = *self;
        Ok(Counts { data_chunks, packs, runs, maps, directories })
    }

    /// Finds the directories' pages, which are numbered from `page` on.
    fn directories(
        &self,
        chunk_count: u64,
        mut page: u32,
    ) -> Result<Box<[Option<DirectoryRef>]>, ManifestError> {
        let count = chunk_count.div_ceil(DIRECTORY_CHUNKS) as usize;
        require(count <= DIRECTORIES_MAX, "disk size for this size of chunk")?;
        let beyond = &self.directories[count..];
        require(beyond.iter().all(|field| *field == 0), "directory past the end of the disk")?;
        let mut directories = vec![None; count];
        let mut end = self.data_chunks;
        // From the last one, since each ends where the next begins.
        for (number, field) in self.directories[..count].iter().enumerate().rev() {
            if *field == 0 {
                continue;
            }
            let first = field & !HAS_DIRECTORY;
            require(field & HAS_DIRECTORY != 0 && first <= end, "first ordinal of a directory")?;
            directories[number] = Some(DirectoryRef { page: 0, ordinals: first..end });
            end = first;
        }
        require(end == 0, "first ordinal of a directory")?;
        for directory in directories.iter_mut().flatten() {
            directory.page = page;
            page = page.saturating_add(1);
        }
        Ok(directories.into())
    }
}

fn check_format(page: &PageBytes) -> Result<(), ManifestError> {
    if &page[..MAGIC.len()] != MAGIC {
        return Err(ManifestError::Magic);
    }
    let version = u32_at(&page[..], layout::VERSION_AT);
    if version != MANIFEST_VERSION {
        return Err(ManifestError::Version(version));
    }
    if crc32fast::hash(&page[..layout::CRC_AT]) != u32_at(&page[..], layout::CRC_AT) {
        return Err(ManifestError::Corrupt("checksum of the header"));
    }
    let unknown = u32_at(&page[..], layout::FEATURES_AT) & !KNOWN_FEATURES;
    if unknown != 0 {
        return Err(ManifestError::Features(unknown));
    }
    let is_zero = |range: &Range<usize>| page[range.clone()].iter().all(|byte| *byte == 0);
    require(RESERVED.iter().all(is_zero), "reserved bytes of the header")
}

impl Header {
    /// Reads the header of a manifest that is `len` bytes long, from its first page.
    ///
    /// `front` may go on after the page. Whoever knows the manifest by its name calls
    /// [`Header::open`].
    ///
    /// # Errors
    /// [`ManifestError`] when it is no header, when anything in it is out of range, and when the
    /// manifest is longer or shorter than its header says.
    pub fn parse(front: &[u8], len: u64) -> Result<Header, ManifestError> {
        let expected = PAGE_LEN as u64;
        let page: &PageBytes = front
            .first_chunk()
            .ok_or(ManifestError::Length { actual: len.min(front.len() as u64), expected })?;
        check_format(page)?;
        let fields = Fields::read(page);
        let (chunk_size, chunk_count) = fields.check_disk()?;
        let depth = fields.check_depth()?;
        let counts = fields.check_counts(chunk_count)?;
        let sections = Sections::of(&counts)?;
        let directories = fields.directories(chunk_count, sections.directories.start)?;
        let expected = u64::from(sections.page_count()) * PAGE_LEN as u64;
        if len != expected {
            return Err(ManifestError::Length { actual: len, expected });
        }
        let has_pages = sections.page_count() > 1;
        require(fields.top_digest.is_some() == has_pages, "digest of the index")?;
        Ok(Header {
            name: Digest::of(&page[..]),
            disk_id: fields.disk_id,
            size_bytes: fields.size_bytes,
            chunk_size,
            depth,
            base: fields.base,
            salt: fields.salt,
            content_name: fields.content_name,
            summary_digest: fields.summary_digest.unwrap_or(NO_DIGEST),
            top_digest: fields.top_digest.unwrap_or(NO_DIGEST),
            counts,
            index: IndexShape::of(&sections),
            directories,
            sections,
        })
    }

    /// Reads the header of the manifest that is called `name`; see [`Header::parse`].
    ///
    /// # Errors
    /// As [`Header::parse`], and [`ManifestError::Name`] when it is another manifest.
    pub fn open(front: &[u8], len: u64, name: &Digest) -> Result<Header, ManifestError> {
        let header = Header::parse(front, len)?;
        if header.name != *name {
            return Err(ManifestError::Name { actual: header.name, expected: *name });
        }
        Ok(header)
    }

    /// BLAKE3 of the header page: the manifest's name in the origin.
    pub fn name(&self) -> Digest {
        self.name
    }

    /// The disk whose state this is.
    pub fn disk_id(&self) -> DiskId {
        self.disk_id
    }

    /// Size of the disk, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Size of every chunk.
    pub fn chunk_size(&self) -> ChunkSize {
        self.chunk_size
    }

    /// Number of chunks of the disk, with content or not.
    pub fn chunk_count(&self) -> u64 {
        self.chunk_size.count_for(self.size_bytes)
    }

    /// Manifests that a read may have to look into, this one included.
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// Name of the manifest that says what this one does not; `None`: this one is whole.
    pub fn base(&self) -> Option<Digest> {
        self.base
    }

    /// Returns whether chunks of which this manifest says nothing are as in its base.
    pub fn is_delta(&self) -> bool {
        self.base.is_some()
    }

    /// Random bytes that keep the name from ever being used twice.
    pub fn salt(&self) -> &Salt {
        &self.salt
    }

    /// Name of the content, as [`ContentName`](crate::ContentName) has it; `None` in a delta.
    pub fn content_name(&self) -> Option<Digest> {
        self.content_name
    }

    /// BLAKE3 of all pages of the summary.
    pub fn summary_digest(&self) -> Digest {
        self.summary_digest
    }

    /// BLAKE3 of the index's top page.
    pub fn top_digest(&self) -> Digest {
        self.top_digest
    }

    /// Numbers of entries, packs, runs and pages.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Sections of the file.
    pub fn sections(&self) -> &Sections {
        &self.sections
    }

    /// Length of the manifest, bytes.
    pub fn len_bytes(&self) -> u64 {
        u64::from(self.sections.page_count()) * PAGE_LEN as u64
    }

    /// Returns where the digest of a page is.
    ///
    /// # Errors
    /// [`ManifestError::Range`] past the end of the manifest.
    pub fn parent(&self, number: u32) -> Result<Parent, ManifestError> {
        self.index.parent(&self.sections, number).ok_or(ManifestError::Range("page number"))
    }

    /// Returns the directory of a number; `None` when there is nothing in it.
    pub(crate) fn directory(&self, number: u32) -> Option<&DirectoryRef> {
        self.directories.get(number as usize)?.as_ref()
    }

    /// Number of the directory on the `position`-th directory page.
    pub(crate) fn directory_number(&self, position: u32) -> Option<u32> {
        let page = self.sections.directories.start.checked_add(position)?;
        let is_it = |directory: &Option<DirectoryRef>| {
            directory.as_ref().is_some_and(|directory| directory.page == page)
        };
        self.directories.iter().position(is_it).map(|number| number as u32)
    }

    /// Number of spans of the disk.
    pub(crate) fn span_count(&self) -> u32 {
        self.chunk_count().div_ceil(u64::from(SPAN_CHUNKS)) as u32
    }

    /// Chunks of a span, which are fewer in the disk's last one.
    pub(crate) fn span_len(&self, span: u32) -> u32 {
        let left = self.chunk_count().saturating_sub(layout::first_of(span));
        left.min(SPAN_CHUNKS.into()) as u32
    }
}
