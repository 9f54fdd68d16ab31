//! Map of a disk, from chunk to content, by a manifest of either format.
//!
//! Look-ups that may not wait find the pages of a manifest of format 2 in memory or say that one is
//! missing; those that may wait read it from this host's disk. Both verify before they believe.

use std::ops::Range;
use std::sync::Arc;

use acstor_manifest::{
    CachedPages, Chunk, ManifestError, PageCache, PageError, PageSource, Reader, Stack,
};
use acstor_types::{Digest, Entry, Manifest};

use crate::origin::stored_place::StoredPlace;
use crate::view::disk_manifest::{DiskManifest, PagedManifest, PagedReader};
use crate::view::disk_shape::DiskShape;
use crate::view::manifest_source::ManifestFault;
use crate::{ExtentKind, limits};

/// Reason why a look-up that may not wait has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MapFault {
    /// A page has to be read from this host's disk first.
    Missing,
    /// The manifest is not in order.
    Damaged(ManifestFault),
}

impl From<PageError> for MapFault {
    fn from(error: PageError) -> MapFault {
        match error {
            PageError::Manifest(error) => MapFault::Damaged(error.into()),
            _ => MapFault::Missing,
        }
    }
}

impl From<ManifestError> for MapFault {
    fn from(error: ManifestError) -> MapFault {
        MapFault::Damaged(error.into())
    }
}

/// A chunk with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) digest: Digest,
    pub(crate) place: StoredPlace,
}

/// Chunks with content of a range, ascending, with their digests.
pub(crate) type Digests<'a> = Box<dyn Iterator<Item = Result<(u64, Digest), ManifestFault>> + 'a>;

/// A manifest of format 2 over a cache of pages.
pub(crate) struct PagedMap {
    manifest: PagedManifest,
    shape: DiskShape,
    /// Pages in memory.
    cached: Stack<CachedPages>,
    /// Pages in memory, or read from this host's disk.
    waiting: PagedReader,
}

impl PagedMap {
    fn new(manifest: PagedManifest, cache: &Arc<PageCache>) -> Result<PagedMap, ManifestError> {
        let cached = manifest.levels().iter().map(|(header, _)| {
            Reader::new(header.clone(), CachedPages::new(header.clone(), cache.clone()))
        });
        Ok(PagedMap {
            cached: Stack::new(cached.collect())?,
            waiting: manifest.reader(cache)?,
            shape: manifest.shape(),
            manifest,
        })
    }
}

fn digest_in<S: PageSource>(stack: &Stack<S>, index: u64) -> Result<Option<Digest>, S::Error> {
    Ok(match stack.look_up(index)? {
        Chunk::Zero => None,
        Chunk::Data { entry, .. } => Some(entry.chunk.digest),
    })
}

fn content_in<S: PageSource>(stack: &Stack<S>, index: u64) -> Result<Option<Content>, S::Error> {
    let Chunk::Data { level, entry } = stack.look_up(index)? else { return Ok(None) };
    let Some(reader) = stack.levels().get(level) else {
        return Err(ManifestError::Corrupt("level of a chunk").into());
    };
    let pack = reader.pack(entry.pack)?.pack.id;
    let place = StoredPlace::of(pack, &entry.chunk);
    Ok(Some(Content { digest: entry.chunk.digest, place }))
}

fn extent_in<S: PageSource>(
    stack: &Stack<S>,
    shape: &DiskShape,
    offset: u64,
    kind: ExtentKind,
) -> Result<Option<u64>, S::Error> {
    if offset >= shape.size_bytes {
        return Ok(None);
    }
    let index = shape.chunk_size.index_of(offset);
    let found = match kind {
        ExtentKind::Data => stack.next_data(index)?,
        ExtentKind::Hole => Some(stack.next_hole(index)?),
    };
    let chunk = shape.chunk_size.bytes() as u64;
    Ok(found.map(|found| (found * chunk).max(offset).min(shape.size_bytes)))
}

fn digest_of(entry: Entry) -> Option<Digest> {
    match entry {
        Entry::Zero => None,
        Entry::Chunk { digest, .. } => Some(digest),
    }
}

/// A pass over many chunks of a disk, each of which is looked at once.
pub(crate) enum Pass<'a> {
    Whole(&'a Manifest),
    Paged(PagedReader),
}

impl Pass<'_> {
    /// The chunks with content within `range`, at a cost by their number. Waits for this host's disk;
    /// ends after the first error.
    pub(crate) fn digests(&self, range: Range<u64>) -> Digests<'_> {
        match self {
            Pass::Whole(manifest) => {
                let range = range.start..range.end.min(manifest.chunk_count());
                Box::new(range.filter_map(|index| {
                    let digest = manifest.entry(index).and_then(digest_of)?;
                    Some(Ok((index, digest)))
                }))
            }
            Pass::Paged(reader) => Box::new(
                reader
                    .entries(range)
                    .map(|found| found.map(|found| (found.index, found.entry.chunk.digest))),
            ),
        }
    }
}

/// The chunks of one disk.
#[derive(Debug)]
pub(crate) enum DiskMap {
    Whole(Manifest),
    Paged(Box<PagedMap>),
}

impl std::fmt::Debug for PagedMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.manifest.fmt(f)
    }
}

impl DiskMap {
    /// The map of a manifest, whose pages are kept in `cache`.
    ///
    /// # Errors
    /// [`ManifestFault`] when its levels do not fit each other.
    pub(crate) fn new(
        manifest: DiskManifest,
        cache: &Arc<PageCache>,
    ) -> Result<DiskMap, ManifestFault> {
        Ok(match manifest {
            DiskManifest::Whole(manifest) => DiskMap::Whole(manifest),
            DiskManifest::Paged(manifest) => {
                DiskMap::Paged(Box::new(PagedMap::new(manifest, cache)?))
            }
        })
    }

    /// The manifest.
    pub(crate) fn manifest(&self) -> DiskManifest {
        match self {
            DiskMap::Whole(manifest) => DiskManifest::Whole(manifest.clone()),
            DiskMap::Paged(map) => DiskManifest::Paged(map.manifest.clone()),
        }
    }

    /// Shape of the disk.
    pub(crate) fn shape(&self) -> DiskShape {
        match self {
            DiskMap::Whole(manifest) => manifest.header().into(),
            DiskMap::Paged(map) => map.shape,
        }
    }

    /// Returns whether a look-up may have to wait for this host's disk.
    pub(crate) fn is_paged(&self) -> bool {
        matches!(self, DiskMap::Paged(_))
    }

    /// The digest of chunk `index`; `None` for a zero chunk or past the end. Does not wait.
    ///
    /// # Errors
    /// [`MapFault`].
    pub(crate) fn digest_at_hand(&self, index: u64) -> Result<Option<Digest>, MapFault> {
        match self {
            DiskMap::Whole(manifest) => Ok(manifest.entry(index).and_then(digest_of)),
            DiskMap::Paged(map) => Ok(digest_in(&map.cached, index)?),
        }
    }

    /// As [`DiskMap::digest_at_hand`], but waits for this host's disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn digest(&self, index: u64) -> Result<Option<Digest>, ManifestFault> {
        match self {
            DiskMap::Whole(manifest) => Ok(manifest.entry(index).and_then(digest_of)),
            DiskMap::Paged(map) => digest_in(&map.waiting, index),
        }
    }

    /// Chunk `index`; `None` for a zero chunk or past the end. Does not wait.
    ///
    /// # Errors
    /// [`MapFault`].
    pub(crate) fn content_at_hand(&self, index: u64) -> Result<Option<Content>, MapFault> {
        match self {
            DiskMap::Whole(manifest) => Ok(whole_content(manifest, index)),
            DiskMap::Paged(map) => Ok(content_in(&map.cached, index)?),
        }
    }

    /// As [`DiskMap::content_at_hand`], but waits for this host's disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn content(&self, index: u64) -> Result<Option<Content>, ManifestFault> {
        match self {
            DiskMap::Whole(manifest) => Ok(whole_content(manifest, index)),
            DiskMap::Paged(map) => content_in(&map.waiting, index),
        }
    }

    /// Begins a pass over many chunks, which leaves the cache to those who read.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn pass(&self) -> Result<Pass<'_>, ManifestFault> {
        Ok(match self {
            DiskMap::Whole(manifest) => Pass::Whole(manifest),
            DiskMap::Paged(map) => {
                let pages = Arc::new(PageCache::new(limits::PASS_PAGES_BYTES));
                Pass::Paged(map.manifest.reader(&pages)?)
            }
        })
    }

    /// As [`crate::BlockView::next_extent`], of a manifest of format 2 whose pages are in memory; `None`
    /// where they are not, or where the manifest is of format 1.
    pub(crate) fn extent_at_hand(&self, offset: u64, kind: ExtentKind) -> Option<Option<u64>> {
        match self {
            DiskMap::Whole(_) => None,
            DiskMap::Paged(map) => extent_in(&map.cached, &map.shape, offset, kind).ok(),
        }
    }

    /// Reads the pages that [`DiskMap::extent_at_hand`] needs. Waits for this host's disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn bring_extent(&self, offset: u64, kind: ExtentKind) -> Result<(), ManifestFault> {
        match self {
            DiskMap::Whole(_) => Ok(()),
            DiskMap::Paged(map) => extent_in(&map.waiting, &map.shape, offset, kind).map(drop),
        }
    }

    /// Returns whether `other` describes the same disk with the same content; the chunks may be
    /// elsewhere in the origin, and the manifest of another format. Waits for this host's disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub(crate) fn has_content_of(&self, other: &DiskMap) -> Result<bool, ManifestFault> {
        if self.shape() != other.shape() {
            return Ok(false);
        }
        if let (DiskMap::Whole(one), DiskMap::Whole(other)) = (self, other) {
            return Ok(one.has_content_of(other));
        }
        if let (DiskMap::Paged(one), DiskMap::Paged(other)) = (self, other) {
            let (one, other) = (&one.manifest, &other.manifest);
            if one.names().eq(other.names()) {
                return Ok(true);
            }
            if let (Some(one), Some(other)) = (one.content_name(), other.content_name()) {
                return Ok(one == other);
            }
        }
        let count = self.shape().chunk_count;
        let (ours, theirs) = (self.pass()?, other.pass()?);
        let (mut ours, mut theirs) = (ours.digests(0..count), theirs.digests(0..count));
        loop {
            let (one, other) = (ours.next().transpose()?, theirs.next().transpose()?);
            if one != other {
                return Ok(false);
            }
            if one.is_none() {
                return Ok(true);
            }
        }
    }
}

fn whole_content(manifest: &Manifest, index: u64) -> Option<Content> {
    let Entry::Chunk { digest, location } = manifest.entry(index)? else { return None };
    Some(Content { digest, place: StoredPlace::plain(location, manifest.chunk_size()) })
}

#[cfg(test)]
mod tests;
